"""Rows taken out of a table: the files that hold them are written anew without them, and no version says so yet.

Copy on write, by Delta's own writer; one commit then exchanges the files. The change feed tells of the rows that went
and came, and not of those beside them.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from kdi_assets.ledger.coverage import Bounds
from kdi_assets.ledger.delta import (
    Staged,
    delta_log,
    jvm_of,
    physical_name,
    scala_none,
    scala_seq,
    staged_of,
    start_transaction,
)
from kdi_assets.ledger.offsets import coordinates, inside
from kdi_assets.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MESSAGE = ("partition", "offset", "timestamp")
"""What tells a message from every other, also from one at the same offset of a topic that was made anew."""
FILE, CHANGE = "_kdi_file", "_change_type"
_AT = "_kdi_at"
_NAMES_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Touched:
    """Files of one version of a table that hold rows which are to go.

    Attributes:
        snapshot: Delta's, of that version.
        rows: All rows of these files.
        rows_by_date: How many they are, by the files' statistics.
        removes: Delta's actions that take the files away.
        names: The files as the log names them.
    """

    log: Any
    snapshot: Any
    rows: DataFrame
    rows_by_date: Mapping[date, int]
    removes: tuple[Any, ...]
    names: frozenset[str]


def stage_removal(
    spark: SparkSession, stream: Stream, uri: str, messages: DataFrame, *, version: int, within: Bounds
) -> Staged:
    """Take all rows of some messages out of the table; they go with the commit of what this gives.

    Args:
        messages: ``partition: int, offset: bigint, timestamp: timestamp``, each once.
        within: Bounds of their offsets: what lies elsewhere is not looked at.

    Returns:
        ``removed_by_date`` counts the rows; nothing to commit if there are none.
    """
    rows = rows_with_files(spark, stream, uri, version=version, within=within)
    held = of_messages(rows, stream, messages).select(FILE).distinct().collect()
    if not held:
        return Staged()
    files = touched(spark, uri, [r[FILE] for r in held], version=version)
    gone = of_messages(files.rows, stream, messages)
    return stage_rewrite(spark, stream, files, messages, changes=as_changes(gone, "delete"))


def rows_with_files(spark: SparkSession, stream: Stream, uri: str, *, version: int, within: Bounds) -> DataFrame:
    """Rows of a table at a version, and ``_kdi_file: string``, the file that each lies in, as ``touched`` asks."""
    table = spark.read.format("delta").option("versionAsOf", version).load(uri)
    # By the columns themselves: only so Delta leaves files out by their statistics.
    bounded = table.where(inside(within, struct=stream.coordinates))
    return bounded.selectExpr("*", f"_metadata.file_name AS {FILE}")


def of_messages(rows: DataFrame, stream: Stream, messages: DataFrame, *, others: bool = False) -> DataFrame:
    """The rows of some messages, or those of all others.

    Args:
        rows: With the columns of the stream's table.
        messages: ``partition: int, offset: bigint, timestamp: timestamp``.
    """
    from pyspark.sql import functions as F

    at = {column: f"_kdi_{column}" for column in MESSAGE}
    named = messages.select(*(F.col(column).alias(name) for column, name in at.items()))
    marked = rows.withColumn(_AT, F.struct(*coordinates(rows, stream)))
    same = F.expr(" AND ".join(f"{_AT}.{column} = {name}" for column, name in at.items()))
    return marked.join(named, same, "left_anti" if others else "left_semi").drop(_AT)


def as_changes(rows: DataFrame, kind: str) -> DataFrame:
    """Rows as the change feed tells of them: ``insert`` or ``delete``."""
    from pyspark.sql import functions as F

    return rows.drop(FILE).withColumn(CHANGE, F.lit(kind))


def rows_written(spark: SparkSession, files: Touched, added: Staged) -> DataFrame:
    """The rows of files that were written and that no version names yet, as the table will have them."""
    jvm, snapshot = jvm_of(spark), files.snapshot
    if added.metadata is not None:
        protocol = jvm.scala.Option.apply(snapshot.protocol())
        snapshot = jvm.org.apache.spark.sql.delta.DummySnapshot(
            snapshot.logPath(), files.log, added.metadata, scala_none(spark), protocol
        )
    adds = [action for action in _listed(added.actions) if "add" in json.loads(action.json())]
    return _frame(spark, files.log.createDataFrame(snapshot, scala_seq(spark, adds), False, scala_none(spark)))


def touched(spark: SparkSession, uri: str, files: Collection[str], *, version: int) -> Touched:
    """Files of a version, by the names that ``rows_with_files`` gives.

    Raises:
        AssertionError: The version has no such file.
    """
    log = delta_log(spark, uri)
    snapshot = log.getSnapshotAt(version, scala_none(spark), scala_none(spark), False)
    adds, wanted = [], sorted(files)
    for start in range(0, len(wanted), _NAMES_AT_ONCE):
        names = ", ".join(f"'{name}'" for name in wanted[start : start + _NAMES_AT_ONCE])
        adds += list(snapshot.allFiles().where(f"substring_index(path, '/', -1) IN ({names})").collectAsList())
    if len(adds) < len(wanted):
        raise AssertionError(f"{uri}: version {version} names {len(adds)} of {len(wanted)} files that hold its rows")
    now = int(time.time() * 1000)
    rows = _frame(spark, log.createDataFrame(snapshot, scala_seq(spark, adds), False, scala_none(spark)))
    return Touched(
        log,
        snapshot,
        rows,
        _rows_by_date(adds, rows, date_column=physical_name("date", snapshot.metadata().schemaString())),
        tuple(add.removeWithTimestamp(now, True) for add in adds),
        frozenset(add.path() for add in adds),
    )


def stage_rewrite(
    spark: SparkSession,
    stream: Stream,
    files: Touched,
    messages: DataFrame,
    *,
    changes: DataFrame,
    added: Staged | None = None,
) -> Staged:
    """Write the files' rows anew, without those of some messages.

    Args:
        messages: As those of ``of_messages``.
        changes: The table's columns and ``_change_type``: all that the change feed is to tell of the commit.
        added: Rows that the same commit adds; they are not written again.

    Returns:
        All that the commit is made of.
    """
    from pyspark.sql import functions as F

    added = added or Staged()
    transaction = start_transaction(spark, files.log, files.snapshot)
    if added.metadata is not None:
        transaction.updateMetadata(added.metadata, False)
    kept = of_messages(files.rows, stream, messages, others=True)
    if _tells_changes(spark, transaction):
        # Delta's writer puts what has a kind of change into files of the change feed, and the rest into the table.
        kept = kept.withColumn(CHANGE, F.lit(None).cast("string")).unionByName(changes, allowMissingColumns=True)
    jvm, to_map = jvm_of(spark), jvm_of(spark).PythonUtils.toScalaMap
    # Few files of one date: the rows come from joins, and each task would write a file of its own.
    told = jvm.org.apache.spark.sql.delta.DeltaOptions(
        to_map({"optimizeWrite": "true"}), spark._jsparkSession.sessionState().conf()
    )
    written = transaction.writeFiles(kept._jdf, jvm.scala.Option.apply(told), scala_seq(spark, []))
    date_column = physical_name("date", transaction.metadata().schemaString())
    again = staged_of(written, date_column=date_column)
    return Staged(
        actions=scala_seq(spark, [*_listed(added.actions), *_listed(written), *files.removes]),
        files=(*added.files, *again.files),
        rows_by_date=added.rows_by_date,
        bytes=added.bytes + again.bytes,
        metadata=added.metadata,
        replaces=files.names,
        removed_by_date=_difference(files.rows_by_date, again.rows_by_date),
    )


def _difference(all_rows: Mapping[date, int], kept: Mapping[date, int]) -> dict[date, int]:
    gone = {day: rows - kept.get(day, 0) for day, rows in all_rows.items()}
    return {day: rows for day, rows in sorted(gone.items()) if rows}


def _rows_by_date(adds: Collection[Any], rows: DataFrame, *, date_column: str) -> dict[date, int]:
    """By the statistics of the files; by counting where another writer left them without."""
    counted: Counter[date] = Counter()
    for add in adds:
        if not add.numLogicalRecords().isDefined():
            return {r["date"]: r["count"] for r in rows.groupBy("date").count().collect()}
        day = json.loads(add.json())["add"]["partitionValues"][date_column]
        counted[date.fromisoformat(day)] += int(add.numLogicalRecords().get())
    return counted


def _tells_changes(spark: SparkSession, transaction: Any) -> bool:
    """Whether the table has a change feed; one that another writer made may have none."""
    reader = jvm_of(spark).org.apache.spark.sql.delta.commands.cdc.CDCReader
    return bool(reader.isCDCEnabledOnTable(transaction.metadata(), spark._jsparkSession))


def _listed(actions: Any) -> list[Any]:
    return [] if actions is None else [actions.apply(i) for i in range(actions.size())]


def _frame(spark: SparkSession, frame: Any) -> DataFrame:
    from pyspark.sql import DataFrame

    return DataFrame(frame, spark)
