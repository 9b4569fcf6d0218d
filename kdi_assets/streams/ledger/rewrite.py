"""Rewrite of the files that hold some messages' rows, to remove or replace the rows in the next ledger commit.

Copy on write, by Delta's own writer; one commit then replaces the files. The change feed has only the rows that were
removed and added, not the other rows of these files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any

from kdi_assets.delta.files import CHANGE, FILE, TableAt, rows_at, write_rows
from kdi_assets.delta.internals import as_json, path_of, removals, row_count, snapshot_with_metadata, version_of
from kdi_assets.delta.transaction import Staged, staged_of
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.coordinates import Bounds, bounds_sql, coordinates, keeps_timestamps
from kdi_assets.runtime.spark_internals import listed, scala_seq
from kdi_assets.streams.ledger.dates import day_of
from kdi_assets.streams.ledger.errors import RowsUnaccounted, RowsWithoutDate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

MESSAGE = ("partition", "offset", "timestamp")
"""Identifies a message, also among messages with the same offset of a recreated topic."""
_AT = "_kdi_at"
_NAMES_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class OldRows:
    """The rows of some messages in one version of a table, and the files that hold them.

    Attributes:
        rows: All rows of these messages.
        rows_by_date: How many rows, by date.
        messages: How many messages; counted by first rows, so a message that is there twice counts twice.
        names: The files, as the log names them.
    """

    rows: DataFrame
    rows_by_date: Mapping[date, int]
    messages: int
    names: frozenset[str]
    _table: TableAt
    _adds: tuple[Any, ...]
    _kept_rows: DataFrame

    def written(self, added: Staged) -> DataFrame:
        """The rows of staged files, as the table will have them after the commit."""
        spark, table = self._spark, self._table
        if added.metadata is not None:
            snapshot = snapshot_with_metadata(spark, table.log, table.snapshot, added.metadata)
            table = replace(table, snapshot=snapshot)
        return table.rows_of([action for action in _listed(added.actions) if "add" in as_json(action)])

    def rewrite_files(self, changes: DataFrame, added: Staged | None = None) -> Staged:
        """Write the other rows of the files into new files.

        Args:
            changes: The table's columns and ``_change_type``: everything that the change feed shall have of the commit.
            added: Files that the same commit adds; they are not written again.

        Returns:
            Everything that the commit needs; ``removed_by_date`` counts the old rows.

        Raises:
            RowsUnaccounted: By the files' statistics, other rows than the old ones would be removed.
        """
        from pyspark.sql import functions as F

        added = added or Staged()
        kept_rows = self._kept_rows.withColumn(CHANGE, F.lit(None).cast("string"))
        rows = kept_rows.unionByName(changes, allowMissingColumns=True)
        written, _ = write_rows(self._table, rows, metadata=added.metadata)
        kept = staged_of(written, date_column=self._table.date_column)
        staged = Staged(
            actions=scala_seq(self._spark, [*_listed(added.actions), *listed(written), *removals(self._adds)]),
            files=(*added.files, *kept.files),
            rows_by_date=added.rows_by_date,
            bytes=added.bytes + kept.bytes,
            data_files=added.data_files + kept.data_files,
            metadata=added.metadata,
            replaces=self.names,
            removed_by_date=_difference(self._rows_in_files(), kept.rows_by_date),
        )
        if staged.removed_by_date != self.rows_by_date:
            expected, missing = sum(self.rows_by_date.values()), sum(staged.removed_by_date.values())
            version = version_of(self._table.snapshot)
            raise RowsUnaccounted(uri=self._table.uri, version=version, expected=expected, missing=missing)
        return staged

    @property
    def _spark(self) -> SparkSession:
        return self._table.spark

    def _rows_in_files(self) -> Mapping[date, int]:
        """By the statistics of the files; counted if another writer left a file without statistics."""
        counted: Counter[date] = Counter()
        column = self._table.date_column
        for add in self._adds:
            if (in_file := row_count(add)) is None:
                return count_by_date(self._table.rows_of(self._adds))
            counted[date.fromisoformat(as_json(add)["add"]["partitionValues"][column])] += in_file
        return counted


def count_by_date(rows: DataFrame) -> dict[date, int]:
    """How many rows have each date."""
    from pyspark.sql import functions as F

    return {r["day"]: r["count"] for r in rows.groupBy(F.expr(day_of()).alias("day")).count().collect()}


def old_rows(
    spark: SparkSession, stream: Stream, uri: str, messages: DataFrame, *, version: int, within: Bounds
) -> OldRows | None:
    """The rows of some messages in one version of a table; ``None`` if it has none.

    Args:
        messages: ``partition: int, offset: bigint, timestamp: timestamp``.
        within: Bounds of their offsets; rows outside are not read.

    Raises:
        RowsWithoutDate: Another writer left rows without a date.
        AssertionError: The log does not name the files that hold the rows.
    """
    from pyspark.sql import functions as F

    with_files = rows_with_files(spark, stream, uri, version=version, within=within)
    old = rows_of_messages(with_files, stream, messages)
    counts = F.count("*").alias("rows"), F.expr("count_if(index = 0)").alias("messages")
    placed = old.select(F.col(FILE), F.expr(day_of()).alias("day"), *coordinates(old, stream))
    found = placed.groupBy(FILE, "day").agg(*counts).collect()
    if not found:
        return None
    if undated := sum(r["rows"] for r in found if r["day"] is None):
        raise RowsWithoutDate(stream=stream.name, uri=uri, rows=undated)
    table = TableAt.open(spark, uri, version)
    adds = _files(table, {r[FILE] for r in found})
    rows = table.rows_of(adds)
    return OldRows(
        rows_of_messages(rows, stream, messages),
        _rows_by_date(found),
        sum(r["messages"] for r in found),
        frozenset(map(path_of, adds)),
        table,
        adds,
        rows_of_messages(rows, stream, messages, others=True),
    )


def _rows_by_date(found: Iterable[Row]) -> dict[date, int]:
    counted: Counter[date] = Counter()
    for row in found:
        counted[row["day"]] += row["rows"]
    return dict(sorted(counted.items()))


def rows_with_files(spark: SparkSession, stream: Stream, uri: str, *, version: int, within: Bounds) -> DataFrame:
    """The rows of a table at a version, with ``_kdi_file: string``, the name of the row's file."""
    table = rows_at(spark, uri, version)
    # Filter by the columns themselves: only then Delta skips files by their statistics.
    bounded = table.where(bounds_sql(within, struct=stream.coordinates))
    return bounded.selectExpr("*", f"_metadata.file_name AS {FILE}")


def rows_of_messages(rows: DataFrame, stream: Stream, messages: DataFrame, *, others: bool = False) -> DataFrame:
    """The rows of some messages, or of all others.

    A row with the offset of a message and another timestamp belongs to a message of an earlier topic. Without
    timestamps in the table, the offset decides.

    Args:
        rows: With the columns of the stream's table.
        messages: ``partition: int, offset: bigint, timestamp: timestamp``; a null timestamp matches a null one.
    """
    from pyspark.sql import functions as F

    at = {column: f"_kdi_{column}" for column in MESSAGE}
    named = messages.select(*(F.col(column).alias(name) for column, name in at.items()))
    marked = rows.withColumn(_AT, F.struct(*coordinates(rows, stream)))
    by = message_key(rows.schema.jsonValue(), stream)
    same = " AND ".join(f"{_AT}.{column} <=> {at[column]}" for column in by)
    return marked.join(named, F.expr(same), "left_anti" if others else "left_semi").drop(_AT)


def message_key(schema: Mapping[str, Any], stream: Stream) -> Sequence[str]:
    """The coordinates by which a table's rows are found for a message: those of ``MESSAGE`` that the table keeps.

    Args:
        schema: Of the table, as JSON.
    """
    return MESSAGE if keeps_timestamps(schema, stream) else MESSAGE[:2]


def as_deletions(rows: DataFrame) -> DataFrame:
    """Rows as the change feed has them when they are deleted."""
    from pyspark.sql import functions as F

    return rows.drop(FILE).withColumn(CHANGE, F.lit("delete"))


def _files(table: TableAt, names: Collection[str]) -> tuple[Any, ...]:
    """Delta's actions of the files with these names."""
    adds: list[Any] = []
    wanted = sorted(names)
    for start in range(0, len(wanted), _NAMES_AT_ONCE):
        adds += table.files_named(wanted[start : start + _NAMES_AT_ONCE])
    if len(adds) < len(wanted):
        said = f"version {version_of(table.snapshot)} names {len(adds)} of {len(wanted)} files that hold its rows"
        raise AssertionError(f"{table.uri}: {said}")
    return tuple(adds)


def _difference(all_rows: Mapping[date, int], kept: Mapping[date, int]) -> dict[date, int]:
    removed = {day: rows - kept.get(day, 0) for day, rows in all_rows.items()}
    return {day: rows for day, rows in sorted(removed.items()) if rows}


def _listed(actions: Any) -> list[Any]:
    return [] if actions is None else listed(actions)
