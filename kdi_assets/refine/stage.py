"""Stage: write a change into files that no version of the table names yet, and name the files that it replaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from kdi_assets.ledger.delta_transaction import (
    CHECKPOINT_INTERVAL,
    Staged,
    delta_log,
    metadata_with_schema,
    new_metadata,
    start_transaction,
)
from kdi_assets.ledger.single_commit import CommitRequest, VersionTaken, commit_once
from kdi_assets.ledger.table_files import CHANGE, FILE, TableAt, replace_files
from kdi_assets.refine.aggregate import with_keys
from kdi_assets.refine.inputs import in_dates
from kdi_assets.refine.read import kept_at_hand
from kdi_assets.refine.table_change import Everything, Nothing, OfDates, OfKeys, TableChange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

TABLE_PROPERTIES = {"delta.enableChangeDataFeed": "true", **CHECKPOINT_INTERVAL}
"""Of tables that we create: what reads them takes changed rows from their change feed."""


@dataclass(frozen=True, slots=True)
class StagedChange:
    """A change that is written and not committed.

    Attributes:
        rows_added: Rows of the new files that are no copies of rows that stay.
        rows_removed: Rows of the table that the commit removes; copies of rows that stay do not count.
        dates: Dates whose rows change, ascending; empty for a table without date partitions.
        rows_by_date: Rows added, by date.
    """

    staged: Staged
    rows_added: int
    rows_removed: int
    dates: tuple[date, ...]
    rows_by_date: Mapping[date, int]

    @property
    def is_empty(self) -> bool:
        """Whether no row is added or removed."""
        return not self.staged.files and not self.staged.replaces


def same_columns(rows: DataFrame, table: TableAt) -> bool:
    """Whether rows have the table's columns and types; whether a value may be null makes no difference."""
    return _columns(rows.schema) == _columns(table.schema)


def _columns(schema: StructType) -> list[tuple[str, str]]:
    return [(f.name, f.dataType.simpleString()) for f in schema.fields]


def create_table(
    spark: SparkSession, request: CommitRequest, schema: StructType, properties: Mapping[str, str], *, by_date: bool
) -> str:
    """Create the table without rows, as version 0, and return its id.

    Raises:
        VersionTaken: Another process created it first.
    """
    transaction = start_transaction(spark, delta_log(spark, request.uri))
    if transaction.readVersion() >= 0:
        raise VersionTaken
    partitions = ("date",) if by_date else ()
    metadata = new_metadata(spark, schema, {**TABLE_PROPERTIES, **properties}, partition_by=partitions)
    transaction.updateMetadataForNewTable(metadata)
    commit_once(spark, transaction, Staged(), request, 0)
    return str(metadata.id())


def stage_change(change: TableChange, table: TableAt) -> StagedChange:
    """Write a change's rows.

    Args:
        change: Its rows have the table's columns, unless it replaces everything.
        table: At the version of the plan.
    """
    match change.replaces:
        case Nothing():
            staged, counted = replace_files(table, change.rows)
            return StagedChange(staged, counted.rows or 0, 0, tuple(counted.by_date), counted.by_date)
        case OfDates(dates):
            return _whole_files(change, table, table.files_of_dates(dates))
        case Everything():
            other = not same_columns(change.rows, table)
            metadata = metadata_with_schema(table.spark, table.snapshot, change.rows.schema) if other else None
            return _whole_files(change, table, table.files(), metadata=metadata)
        case OfKeys():
            return _rows_of_files(change, change.replaces, table)


def _whole_files(
    change: TableChange, table: TableAt, removed: tuple[Any, ...], *, metadata: Any = None
) -> StagedChange:
    staged, counted = replace_files(table, change.rows, removed=removed, metadata=metadata)
    old = table.counted(removed)
    dates = tuple(sorted({*old.by_date, *counted.by_date}))
    return StagedChange(staged, counted.rows or 0, old.rows or 0, dates, counted.by_date)


def _rows_of_files(change: TableChange, replaces: OfKeys, table: TableAt) -> StagedChange:
    """Write the files that hold old rows with the keys again, with new rows in place of these.

    Rows that come out as they were stay out of the change feed: what reads it shall not compute their dates again.
    """
    by = tuple(replaces.keys.columns)
    new = kept_at_hand(change.rows.select(*(f.name for f in table.schema.fields)))
    keys = kept_at_hand(replaces.keys)
    where = in_dates(replaces.dates) if replaces.dates is not None else "true"
    placed = table.rows_named().where(where)
    names = [row[FILE] for row in with_keys(placed, keys, by).select(FILE).distinct().collect()]
    files = table.files_named(names)
    held = table.rows_of(files)
    old, kept = with_keys(held, keys, by), with_keys(held, keys, by, others=True)
    deleted, inserted = old.exceptAll(new), new.exceptAll(old)
    feed = kept_at_hand(_feed(deleted, "delete").unionByName(_feed(inserted, "insert")))
    counted = {(r[CHANGE], r["day"]): r["count"] for r in _by_day(feed, table).collect()}
    if not counted:
        return StagedChange(Staged(), 0, 0, (), {})
    staged, _ = replace_files(table, kept.unionByName(new), removed=files, feed=feed)
    added = {day: n for (kind, day), n in counted.items() if kind == "insert"}
    removed = sum(n for (kind, _), n in counted.items() if kind == "delete")
    dates = tuple(sorted({day for _, day in counted if day is not None}))
    by_date = {day: n for day, n in sorted(added.items(), key=str) if day is not None}
    return StagedChange(staged, sum(added.values()), removed, dates, by_date)


def _feed(rows: DataFrame, kind: str) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.withColumn(CHANGE, F.lit(kind))


def _by_day(feed: DataFrame, table: TableAt) -> DataFrame:
    from pyspark.sql import functions as F

    day = F.col("date") if table.is_partitioned_by_date else F.lit(None).cast("date")
    return feed.groupBy(CHANGE, day.alias("day")).count()
