"""Delta's own transaction, called over py4j. Only this module and ``ledger.rewrite`` use Delta's internals.

Delta's public options ``txnAppId`` and ``txnVersion`` set one transaction id per write; a ledger commit sets one per
topic partition and three more.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from kdi_assets.delta.errors import KNOWN_DELTA, UnknownDelta
from kdi_assets.delta.log import physical_name_in
from kdi_assets.runtime.errors import SessionOfOtherLake
from kdi_assets.runtime.s3_access import lies_on_s3
from kdi_assets.runtime.spark import changed_settings
from kdi_assets.runtime.spark_config import refuse_other_log_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

CHECKPOINT_INTERVAL = {"delta.checkpointInterval": "30"}
"""For tables that we create. A checkpoint costs as much as two small drains; Delta's default is 10 commits."""

_BIN_MIB = "spark.databricks.delta.optimizeWrite.binSize"
_ATTEMPTS = "spark.databricks.delta.maxCommitAttempts"


@dataclass(frozen=True, slots=True)
class Staged:
    """Files written into a table's folder that are in no version yet; empty for a commit without rows.

    Attributes:
        actions: Delta's actions, a Scala sequence in the driver's JVM; ``None`` for no rows.
        files: Paths of the files, from the table's folder.
        rows_by_date: Rows in the files, from the writer's statistics.
        bytes: Size of the files.
        metadata: Delta's action with the table's new metadata; ``None`` if it stays.
        replaces: Files of the table that the commit removes, as the log names them.
        removed_by_date: Rows that the commit removes; rows that it only rewrites do not count.
    """

    actions: Any = None
    files: tuple[str, ...] = ()
    rows_by_date: Mapping[date, int] = field(default_factory=dict)
    bytes: int = 0
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
    spark: SparkSession, rows: DataFrame, uri: str, *, files: FileSize = ONE_FILE_PER_TASK, widening: bool = False
) -> Staged:
    """Write the rows as files that are in no version of the table: no reader sees them, VACUUM removes them.

    Args:
        rows: Exactly the table's columns and types, ``date`` included.
        widening: Whether ``rows`` may have columns and struct fields that the table does not have yet; the commit of
            the files adds them.
    """
    table = delta_log(spark, uri)
    transaction = start_transaction(spark, table)
    before = transaction.metadata()
    actions = _write(spark, transaction, table, rows, files, widening=widening).actions()
    after = transaction.metadata()
    staged = staged_of(actions, date_column=physical_name("date", after.schemaString()))
    return replace(staged, metadata=after) if widening and not after.equals(before) else staged


def latest_snapshot(spark: SparkSession, table: Any) -> Any:
    """The table's newest snapshot."""
    return table.update(False, scala_none(spark), scala_none(spark))


def start_transaction(spark: SparkSession, table: Any, snapshot: Any = None) -> Any:
    """A transaction on a snapshot, by default the newest."""
    return table.startTransaction(scala_none(spark), jvm_of(spark).scala.Option.apply(snapshot))


def send_commit(spark: SparkSession, transaction: Any, staged: Staged, user_metadata: str) -> int:
    """Commit the staged files, and return the version.

    Delta gets a single attempt. It would retry after commits that its own conflict check allows, also after a RESTORE.
    """
    nothing, jvm = scala_none(spark), jvm_of(spark)
    mode, metadata = jvm.org.apache.spark.sql.SaveMode.Append, jvm.scala.Option.apply(user_metadata)
    write = getattr(jvm.org.apache.spark.sql.delta, "DeltaOperations$Write")
    actions = staged.actions if staged.actions is not None else scala_seq(spark, [])
    operation = write(mode, nothing, nothing, metadata, nothing, nothing, nothing, nothing, nothing)
    with changed_settings(spark, {_ATTEMPTS: "0"}):
        return int(transaction.commit(actions, operation))


def missing_files(spark: SparkSession, table: Any, staged: Staged) -> tuple[str, ...]:
    """The staged files that no longer exist."""
    path = jvm_of(spark).org.apache.hadoop.fs.Path
    storage = table.dataPath().getFileSystem(table.newDeltaHadoopConf())
    return tuple(file for file in staged.files if not storage.exists(path(table.dataPath(), file)))


def is_conflict(failed: Any) -> bool:
    name, message = str(failed.java_exception.getClass().getName()), str(failed.java_exception.getMessage())
    return "Concurrent" in name or "MetadataChanged" in name or "ProtocolChanged" in name or "MAX_COMMIT" in message


def set_transactions(spark: SparkSession, transaction: Any, versions: Mapping[str, int]) -> None:
    """Set the versions of transaction ids."""
    now = jvm_of(spark).scala.Option.apply(int(time.time() * 1000))
    for txn, version in versions.items():
        transaction.updateSetTransaction(txn, version, now)


def _write(
    spark: SparkSession, transaction: Any, table: Any, rows: DataFrame, files: FileSize, *, widening: bool
) -> Any:
    jvm, nothing = jvm_of(spark), scala_none(spark)
    delta = jvm.org.apache.spark.sql.delta
    options = {} if files.shuffled_bytes is None else {"optimizeWrite": "true"}
    options |= {"mergeSchema": "true"} if widening else {}
    options |= {} if files.max_rows is None else {"maxRecordsPerFile": str(files.max_rows)}
    bin_mib = None if files.shuffled_bytes is None else max(1, files.shuffled_bytes >> 20)
    command = delta.commands.WriteIntoDelta(
        table,
        jvm.org.apache.spark.sql.SaveMode.Append,
        delta_options(spark, options),
        # If the table was dropped meanwhile, Delta takes this for a new one; the commit then notices it.
        scala_seq(spark, ["date"] if transaction.readVersion() < 0 else []),
        jvm.PythonUtils.toScalaMap({}),
        rows._jdf,
        nothing,
        nothing,
        False,
    )
    with changed_settings(spark, {} if bin_mib is None else {_BIN_MIB: str(bin_mib)}):
        return command.writeAndReturnCommitData(transaction, spark._jsparkSession, nothing, False)


def delta_options(spark: SparkSession, options: Mapping[str, str]) -> Any:
    """Delta's options of a write, in addition to the session's settings."""
    jvm = jvm_of(spark)
    scala_options = jvm.PythonUtils.toScalaMap(dict(options))
    return jvm.org.apache.spark.sql.delta.DeltaOptions(scala_options, spark._jsparkSession.sessionState().conf())


def new_metadata(
    spark: SparkSession, schema: StructType, properties: Mapping[str, str], *, partition_by: Sequence[str] = ("date",)
) -> Any:
    """The metadata that Delta would make for a first write without rows; this needs no Spark job."""
    to_map = jvm_of(spark).PythonUtils.toScalaMap
    configuration = jvm_of(spark).org.apache.spark.sql.delta.DeltaConfigs.validateConfigurations(
        to_map(dict(properties))
    )
    created = jvm_of(spark).scala.Option.apply(int(time.time() * 1000))
    return _metadata(spark, schema, str(uuid.uuid4()), list(partition_by), configuration, created)


def metadata_with_schema(spark: SparkSession, snapshot: Any, schema: StructType, *, partition_by: Sequence[str]) -> Any:
    """The metadata of a snapshot with other columns or partitions; properties and id stay."""
    old = snapshot.metadata()
    schema = _with_known_columns(schema, str(old.schemaString()))
    return _metadata(spark, schema, str(old.id()), list(partition_by), old.configuration(), old.createdTime())


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


def _metadata(
    spark: SparkSession, schema: StructType, table_id: str, partition_by: list[str], configuration: Any, created: Any
) -> Any:
    jvm = jvm_of(spark)
    actions, to_map = jvm.org.apache.spark.sql.delta.actions, jvm.PythonUtils.toScalaMap
    nullable = jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json()).asNullable()
    columns, parquet = scala_seq(spark, partition_by), actions.Format("parquet", to_map({}))
    return actions.Metadata(table_id, None, None, parquet, nullable.json(), columns, configuration, created)


def physical_name(column: str, schema: str) -> str:
    """``physical_name_in`` of a schema as Delta's text."""
    return physical_name_in(column, json.loads(schema))


def staged_of(actions: Any, *, date_column: str) -> Staged:
    """The files of Delta's writer and their statistics, files of the change feed included."""
    rows: Counter[date] = Counter()
    files, size = [], 0
    for i in range(actions.size()):
        action = json.loads(actions.apply(i).json())
        if add := action.get("add"):
            rows[date.fromisoformat(add["partitionValues"][date_column])] += json.loads(add["stats"])["numRecords"]
            size += add["size"]
        if file := add or action.get("cdc"):
            files.append(unquote(file["path"]))
    return Staged(actions, tuple(files), rows, size)


def delta_log(spark: SparkSession, uri: str) -> Any:
    """Delta's own log object, with the session's settings in force.

    Raises:
        UnknownDelta: The session has another version of Delta.
        OtherLock, OtherLogStore: On S3, the session commits by another log store than ours.
        SessionOfOtherLake: It was not started for S3.
    """
    found = str(jvm_of(spark).io.delta.package.VERSION())
    if found not in KNOWN_DELTA:
        raise UnknownDelta(found=found)
    if lies_on_s3(uri):
        _check_log_store(spark, uri)
    # Delta reads its settings from the active session of the JVM's thread, not from the session of the data frame.
    jvm_of(spark).org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)
    return jvm_of(spark).org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, uri)


def _check_log_store(spark: SparkSession, uri: str) -> None:
    setting = f"spark.delta.logStore.{urlsplit(uri).scheme}.impl"
    store = str(spark.conf.get(setting, ""))
    if not store:
        raise SessionOfOtherLake(uri=uri)
    refuse_other_log_store(uri, setting, store)


def jvm_of(spark: SparkSession) -> Any:
    return spark._jvm


def scala_none(spark: SparkSession) -> Any:
    return jvm_of(spark).scala.Option.apply(None)


def scala_seq(spark: SparkSession, items: list[Any]) -> Any:
    return jvm_of(spark).PythonUtils.toSeq(items)
