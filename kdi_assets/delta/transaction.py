"""Staged files, and the parts of a commit of Delta's own transaction.

Delta's public options ``txnAppId`` and ``txnVersion`` set one transaction id per write; a ledger commit sets one per
topic partition and three more.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from kdi_assets.delta.errors import KNOWN_DELTA, UnknownDelta
from kdi_assets.delta.internals import (
    append_files,
    as_json,
    commit_actions,
    delta_version,
    id_of,
    latest_snapshot,
    log_of,
    log_with_own_writer,
    metadata_like,
    metadata_of,
    new_metadata,
    read_version,
    schema_text,
    set_first_metadata,
    start_transaction,
)
from kdi_assets.delta.log import physical_name_in
from kdi_assets.runtime.errors import SessionOfOtherLake
from kdi_assets.runtime.spark_config import LOG_STORES, log_store_setting, refuse_other_log_store
from kdi_assets.runtime.spark_internals import listed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

CHECKPOINT_INTERVAL = {"delta.checkpointInterval": "30"}
"""For tables that we create. A checkpoint costs as much as two small drains; Delta's default is 10 commits."""


@dataclass(frozen=True, slots=True)
class Staged:
    """Files written into a table's folder that are in no version yet; empty for a commit without rows.

    Attributes:
        actions: Delta's actions, a Scala sequence in the driver's JVM; ``None`` for no rows.
        files: Paths of the files, from the table's folder, with those of the change feed.
        rows_by_date: Rows in the files, from the writer's statistics.
        bytes: Size of the data files.
        data_files: How many of the files are data files.
        metadata: Delta's action with the table's new metadata; ``None`` if it stays.
        replaces: Files of the table that the commit removes, as the log names them.
        removed_by_date: Rows that the commit removes; rows that it only rewrites do not count.
    """

    actions: Any = None
    files: tuple[str, ...] = ()
    rows_by_date: Mapping[date, int] = field(default_factory=dict)
    bytes: int = 0
    data_files: int = 0
    metadata: Any = None
    replaces: frozenset[str] = frozenset()
    removed_by_date: Mapping[date, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(self.rows_by_date.values())


@dataclass(frozen=True, slots=True)
class FileSize:
    """The size of the files of a write.

    Attributes:
        shuffled_bytes: Rows of one date are shuffled together, up to this many bytes of shuffle data per file;
            ``None``: each task writes its own files.
        max_rows: At most this many rows per file; ``None``: no limit.
    """

    shuffled_bytes: int | None = None
    max_rows: int | None = None


ONE_FILE_PER_TASK = FileSize()
"""One file per task and date."""


def stage_rows(
    spark: SparkSession,
    rows: DataFrame,
    uri: str,
    *,
    files: FileSize = ONE_FILE_PER_TASK,
    distinct: Collection[str] = (),
    widening: bool = False,
) -> Staged:
    """Write the rows as files that are in no version of the table: no reader sees them, VACUUM removes them.

    Args:
        rows: Exactly the table's columns and types, ``date`` included.
        distinct: Columns whose values hardly repeat, by their paths in files: they are written without a dictionary.
        widening: Whether ``rows`` may have columns and struct fields that the table does not have yet; the commit of
            the files adds them.
    """
    newest = latest_snapshot(spark, log := delta_log(spark, uri))
    table = log_with_own_writer(spark, log)
    transaction = start_transaction(spark, table, newest)
    before = metadata_of(transaction)
    options = {} if files.shuffled_bytes is None else {"optimizeWrite": "true"}
    options |= {"mergeSchema": "true"} if widening else {}
    options |= {} if files.max_rows is None else {"maxRecordsPerFile": str(files.max_rows)}
    bin_mib = None if files.shuffled_bytes is None else max(1, files.shuffled_bytes >> 20)
    actions = append_files(spark, transaction, table, rows, options=options, bin_mib=bin_mib, distinct=distinct)
    after = metadata_of(transaction)
    staged = staged_of(actions, date_column=physical_name("date", schema_text(after)))
    return replace(staged, metadata=after) if widening and after != before else staged


def send_commit(spark: SparkSession, transaction: Any, staged: Staged, user_metadata: str) -> int:
    """Commit the staged files, and return the version."""
    return commit_actions(spark, transaction, staged.actions, user_metadata)


def start_table(
    spark: SparkSession,
    uri: str,
    schema: StructType,
    properties: Mapping[str, str],
    *,
    partition_by: Sequence[str] = ("date",),
) -> tuple[Any, str] | None:
    """A transaction that creates a table without rows, and the table's id; ``None`` if there is a table."""
    transaction = start_transaction(spark, delta_log(spark, uri))
    if read_version(transaction) >= 0:
        return None
    metadata = new_metadata(spark, str(uuid.uuid4()), schema, partition_by, properties)
    set_first_metadata(transaction, metadata)
    return transaction, id_of(metadata)


def metadata_with_schema(spark: SparkSession, snapshot: Any, schema: StructType, *, partition_by: Sequence[str]) -> Any:
    """The metadata of a snapshot with other columns or partitions; properties and id stay."""
    old = metadata_of(snapshot)
    return metadata_like(spark, old, _with_known_columns(schema, schema_text(old)), partition_by)


def _with_known_columns(schema: StructType, old: str) -> StructType:
    """The schema; columns of the same name and type keep what column mapping calls them in files.

    With other names, Delta takes them for columns that were dropped, which it refuses beside rows for a change feed.
    """
    from pyspark.sql.types import StructField, StructType

    known = {(f.name, f.dataType.simpleString()): f for f in StructType.fromJson(json.loads(old)).fields}

    def mapped(column: StructField) -> StructField:
        before = known.get((column.name, column.dataType.simpleString()), column)
        names = {key: said for key, said in before.metadata.items() if key.startswith("delta.columnMapping.")}
        return StructField(column.name, before.dataType, column.nullable, {**column.metadata, **names})

    return StructType([mapped(column) for column in schema.fields])


def physical_name(column: str, schema: str) -> str:
    """``physical_name_in`` of a schema as Delta's text."""
    return physical_name_in(column, json.loads(schema))


def staged_of(actions: Any, *, date_column: str) -> Staged:
    """The files of Delta's writer and their statistics, files of the change feed included."""
    rows: Counter[date] = Counter()
    files, size, data_files = [], 0, 0
    for action in map(as_json, listed(actions)):
        if add := action.get("add"):
            rows[date.fromisoformat(add["partitionValues"][date_column])] += json.loads(add["stats"])["numRecords"]
            size += add["size"]
            data_files += 1
        if file := add or action.get("cdc"):
            files.append(unquote(file["path"]))
    return Staged(actions, tuple(files), rows, size, data_files)


def delta_log(spark: SparkSession, uri: str) -> Any:
    """Delta's own log object, with the session's settings in force.

    Raises:
        UnknownDelta: The session has another version of Delta.
        OtherLock, OtherLogStore: On S3 or in a folder, the session commits by another log store than ours.
        SessionOfOtherLake: It was not started for S3.
    """
    found = delta_version(spark)
    if found not in KNOWN_DELTA:
        raise UnknownDelta(found=found)
    if (scheme := urlsplit(uri).scheme or "file") in LOG_STORES:
        _check_log_store(spark, uri, scheme)
    return log_of(spark, uri)


def _check_log_store(spark: SparkSession, uri: str, scheme: str) -> None:
    setting = log_store_setting(scheme)
    store = str(spark.conf.get(setting, ""))
    if not store and scheme != "file":
        raise SessionOfOtherLake(uri=uri)
    refuse_other_log_store(uri, setting, store or "not set", ours=LOG_STORES[scheme])
