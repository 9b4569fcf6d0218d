"""Rows taken out of a table, or exchanged: the files that hold them are written anew, and no version says so yet.

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

from kdi_assets.ledger.coordinates import Bounds, coordinates, inside
from kdi_assets.ledger.delta_transaction import (
    Staged,
    delta_log,
    delta_options,
    jvm_of,
    physical_name,
    scala_none,
    scala_seq,
    staged_of,
    start_transaction,
)
from kdi_assets.ledger.errors import RowsUnaccounted
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MESSAGE = ("partition", "offset", "timestamp")
"""What tells a message from every other, also from one at the same offset of a topic that was made anew."""
FILE, CHANGE = "_kdi_file", "_change_type"
_AT = "_kdi_at"
_NAMES_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class OldRows:
    """Rows that one version of a table has of some messages, and the files that hold them.

    Attributes:
        rows: All of them.
        rows_by_date: How many they are.
        messages: How many messages they are of, if each is there once: these have a first row.
        names: The files as the log names them.
    """

    rows: DataFrame
    rows_by_date: Mapping[date, int]
    messages: int
    names: frozenset[str]
    _uri: str
    _log: Any
    _snapshot: Any
    _adds: tuple[Any, ...]
    _beside: DataFrame

    def written(self, added: Staged) -> DataFrame:
        """The rows of files that were written and that no version names yet, as the table will have them."""
        spark, snapshot = self.rows.sparkSession, self._snapshot
        if added.metadata is not None:
            delta = jvm_of(spark).org.apache.spark.sql.delta
            protocol = jvm_of(spark).scala.Option.apply(snapshot.protocol())
            snapshot = delta.DummySnapshot(snapshot.logPath(), self._log, added.metadata, scala_none(spark), protocol)
        adds = [action for action in _listed(added.actions) if "add" in json.loads(action.json())]
        return _frame(spark, self._log, snapshot, adds)

    def exchanged(self, changes: DataFrame, added: Staged | None = None) -> Staged:
        """Write what else the files hold anew.

        Args:
            changes: The table's columns and ``_change_type``: all that the change feed is to tell of the commit.
            added: Rows that the same commit adds; they are not written again.

        Returns:
            All that the commit is made of; ``removed_by_date`` counts the old rows.

        Raises:
            RowsUnaccounted: By the files' statistics not exactly these rows go.
        """
        from pyspark.sql import functions as F

        spark, added = self.rows.sparkSession, added or Staged()
        transaction = start_transaction(spark, self._log, self._snapshot)
        if added.metadata is not None:
            transaction.updateMetadata(added.metadata, False)
        kept = self._beside
        if _tells_changes(spark, transaction):
            # Delta's writer puts what has a kind of change into files of the change feed, and the rest into the table.
            kept = kept.withColumn(CHANGE, F.lit(None).cast("string")).unionByName(changes, allowMissingColumns=True)
        # Few files of one date: the rows come from joins, and each task would write a file of its own.
        told = jvm_of(spark).scala.Option.apply(delta_options(spark, {"optimizeWrite": "true"}))
        written = transaction.writeFiles(kept._jdf, told, scala_seq(spark, []))
        again = staged_of(written, date_column=self._date_column)
        removed = [add.removeWithTimestamp(int(time.time() * 1000), True) for add in self._adds]
        staged = Staged(
            actions=scala_seq(spark, [*_listed(added.actions), *_listed(written), *removed]),
            files=(*added.files, *again.files),
            rows_by_date=added.rows_by_date,
            bytes=added.bytes + again.bytes,
            metadata=added.metadata,
            replaces=self.names,
            removed_by_date=_difference(self._rows_in_files(), again.rows_by_date),
        )
        if staged.removed_by_date != self.rows_by_date:
            expected, gone = sum(self.rows_by_date.values()), sum(staged.removed_by_date.values())
            raise RowsUnaccounted(uri=self._uri, version=self._snapshot.version(), expected=expected, missing=gone)
        return staged

    @property
    def _date_column(self) -> str:
        return physical_name("date", self._snapshot.metadata().schemaString())

    def _rows_in_files(self) -> Mapping[date, int]:
        """By the statistics of the files; by counting where another writer left them without."""
        counted: Counter[date] = Counter()
        for add in self._adds:
            if not add.numLogicalRecords().isDefined():
                rows = _frame(self.rows.sparkSession, self._log, self._snapshot, self._adds)
                return {r["date"]: r["count"] for r in rows.groupBy("date").count().collect()}
            day = json.loads(add.json())["add"]["partitionValues"][self._date_column]
            counted[date.fromisoformat(day)] += int(add.numLogicalRecords().get())
        return counted


def old_rows(
    spark: SparkSession, stream: Stream, uri: str, messages: DataFrame, *, version: int, within: Bounds
) -> OldRows | None:
    """The rows that a version of a table has of some messages; ``None`` if it has none.

    Args:
        messages: ``partition: int, offset: bigint, timestamp: timestamp``.
        within: Bounds of their offsets: what lies elsewhere is not looked at.

    Raises:
        AssertionError: The version does not have the files that its rows lie in.
    """
    from pyspark.sql import functions as F

    there = of_messages(rows_with_files(spark, stream, uri, version=version, within=within), stream, messages)
    first = F.expr("count_if(index = 0)").alias("messages")
    at = there.select(F.col(FILE), F.col("date"), *coordinates(there, stream))
    found = at.groupBy(FILE, "date").agg(F.count("*").alias("rows"), first).collect()
    if not found:
        return None
    rows_by_date: Counter[date] = Counter()
    for r in found:
        rows_by_date[r["date"]] += r["rows"]
    log = delta_log(spark, uri)
    snapshot = log.getSnapshotAt(version, scala_none(spark), scala_none(spark), False)
    adds = _files(snapshot, {r[FILE] for r in found}, uri=uri, version=version)
    rows = _frame(spark, log, snapshot, adds)
    return OldRows(
        of_messages(rows, stream, messages),
        dict(sorted(rows_by_date.items())),
        sum(r["messages"] for r in found),
        frozenset(add.path() for add in adds),
        uri,
        log,
        snapshot,
        adds,
        of_messages(rows, stream, messages, others=True),
    )


def rows_with_files(spark: SparkSession, stream: Stream, uri: str, *, version: int, within: Bounds) -> DataFrame:
    """Rows of a table at a version, and ``_kdi_file: string``, the file that each lies in."""
    table = spark.read.format("delta").option("versionAsOf", version).load(uri)
    # By the columns themselves: only so Delta leaves files out by their statistics.
    bounded = table.where(inside(within, struct=stream.coordinates))
    return bounded.selectExpr("*", f"_metadata.file_name AS {FILE}")


def of_messages(rows: DataFrame, stream: Stream, messages: DataFrame, *, others: bool = False) -> DataFrame:
    """The rows of some messages, or those of all others.

    A row with the offset of a message and another timestamp is of another message, of a topic that was there before.

    Args:
        rows: With the columns of the stream's table.
        messages: ``partition: int, offset: bigint, timestamp: timestamp``; a timestamp may be null where a row's is.
    """
    from pyspark.sql import functions as F

    at = {column: f"_kdi_{column}" for column in MESSAGE}
    named = messages.select(*(F.col(column).alias(name) for column, name in at.items()))
    marked = rows.withColumn(_AT, F.struct(*coordinates(rows, stream)))
    same = " AND ".join(f"{_AT}.{column} <=> {name}" for column, name in at.items())
    return marked.join(named, F.expr(same), "left_anti" if others else "left_semi").drop(_AT)


def as_changes(rows: DataFrame, kind: str) -> DataFrame:
    """Rows as the change feed tells of them: ``insert`` or ``delete``."""
    from pyspark.sql import functions as F

    return rows.drop(FILE).withColumn(CHANGE, F.lit(kind))


def _files(snapshot: Any, names: Collection[str], *, uri: str, version: int) -> tuple[Any, ...]:
    """Delta's actions of the files of a version, by the last step of their paths."""
    adds, wanted = [], sorted(names)
    for start in range(0, len(wanted), _NAMES_AT_ONCE):
        some = ", ".join(f"'{name}'" for name in wanted[start : start + _NAMES_AT_ONCE])
        adds += list(snapshot.allFiles().where(f"substring_index(path, '/', -1) IN ({some})").collectAsList())
    if len(adds) < len(wanted):
        raise AssertionError(f"{uri}: version {version} names {len(adds)} of {len(wanted)} files that hold its rows")
    return tuple(adds)


def _difference(all_rows: Mapping[date, int], kept: Mapping[date, int]) -> dict[date, int]:
    gone = {day: rows - kept.get(day, 0) for day, rows in all_rows.items()}
    return {day: rows for day, rows in sorted(gone.items()) if rows}


def _tells_changes(spark: SparkSession, transaction: Any) -> bool:
    """Whether the table has a change feed; one that another writer made may have none."""
    reader = jvm_of(spark).org.apache.spark.sql.delta.commands.cdc.CDCReader
    return bool(reader.isCDCEnabledOnTable(transaction.metadata(), spark._jsparkSession))


def _listed(actions: Any) -> list[Any]:
    return [] if actions is None else [actions.apply(i) for i in range(actions.size())]


def _frame(spark: SparkSession, log: Any, snapshot: Any, adds: Collection[Any]) -> DataFrame:
    """The rows of files, as a snapshot's table has them."""
    from pyspark.sql import DataFrame

    files = scala_seq(spark, list(adds))
    return DataFrame(log.createDataFrame(snapshot, files, False, scala_none(spark)), spark)
