"""Stage: write a change into files that no version of the table names yet, and name the files that it replaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from kdi_assets.delta.errors import OvertakenCommit
from kdi_assets.delta.files import CHANGE, TableAt, replace_files
from kdi_assets.delta.internals import bytes_of
from kdi_assets.delta.single_commit import CommitRequest, VersionTaken, commit_once
from kdi_assets.delta.transaction import CHECKPOINT_INTERVAL, Staged, metadata_with_schema, start_table
from kdi_assets.follow.refine.inputs import is_small
from kdi_assets.follow.refine.read import with_keys
from kdi_assets.follow.refine.row_counts import RowCounts
from kdi_assets.follow.refine.row_errors import RowsMiscounted
from kdi_assets.follow.refine.spark_errors import OUT_OF_YEARS
from kdi_assets.follow.refine.table_change import (
    NEW,
    OLD,
    NoRows,
    RowsOfDates,
    RowsOfFiles,
    RowsOfKeys,
    TableChange,
    WholeTable,
    differs,
    paired,
)
from kdi_assets.messages.formats.rules import literal, name
from kdi_assets.messages.formats.unreadable import is_out_of_years

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

TABLE_PROPERTIES = {"delta.enableChangeDataFeed": "true", **CHECKPOINT_INTERVAL}
"""Of tables that we create: what reads them takes changed rows from their change feed."""

_EPOCH = date(1970, 1, 1)
_NO_DAY = 1 << 29
"""In place of the days since 1970, of rows without a date."""


@dataclass(frozen=True, slots=True)
class StagedChange:
    """A change that is written and not committed.

    Attributes:
        rows_added: Rows of the new files that are not copies of rows that stay.
        rows_removed: Rows of the table that the commit removes; copies of rows that stay do not count.
        dates: Dates whose rows change, ascending; empty for a table without date partitions.
        rows_by_date, removed_by_date: Rows added and removed, by date.
    """

    staged: Staged
    rows_added: int
    rows_removed: int
    dates: tuple[date, ...]
    rows_by_date: Mapping[date, int]
    removed_by_date: Mapping[date, int]


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
        OvertakenCommit: Another process created it first.
    """
    created_first = OvertakenCommit(uri=request.uri, version=0, operation="CREATE TABLE")
    partitions = ("date",) if by_date else ()
    started = start_table(spark, request.uri, schema, {**TABLE_PROPERTIES, **properties}, partition_by=partitions)
    if started is None:
        raise created_first
    transaction, table_id = started
    try:
        commit_once(spark, transaction, Staged(), request, 0)
    except VersionTaken as taken:
        raise created_first from taken
    return table_id


def stage_change(change: TableChange, table: TableAt, *, name: str, by_date: bool | None = None) -> StagedChange:
    """Write a change's rows.

    Args:
        change: Its rows have the table's columns, unless it replaces everything.
        table: At the version of the plan.
        name: Of the table or the consumer, for errors.
        by_date: Whether the table is partitioned by date once everything is replaced; ``None``: as before.

    Raises:
        RowsMiscounted: Files that were written again have lost rows, or got some twice.
    """
    match change.replaces:
        case NoRows():
            staged, counted = replace_files(table, within_years(change.rows), one_task=change.small_enough)
            return StagedChange(staged, counted.rows or 0, 0, tuple(counted.by_date), counted.by_date, {})
        case RowsOfDates(dates):
            return _whole_files(change, table, table.files_of_dates(dates))
        case WholeTable():
            return _whole_files(change, table, table.files(), metadata=_other_metadata(change.rows, table, by_date))
        case RowsOfKeys(files=files):
            rows = _rows_of_keys(change.rows, change.replaces, table)
            return _counted_files(rows, files, table, name, one_task=change.small_enough)
        case RowsOfFiles(forms, files):
            return _counted_files(_with_feed(forms), files, table, name, one_task=change.small_enough)


def _other_metadata(rows: DataFrame, table: TableAt, by_date: bool | None) -> Any:
    """The table's new metadata; ``None`` if columns and partitions stay."""
    old = table.partition_columns
    partitions = [column for column in old if column in rows.columns]
    if by_date is not None and by_date != table.is_partitioned_by_date:
        partitions = ["date"] if by_date else []
    if partitions == old and same_columns(rows, table):
        return None
    return metadata_with_schema(table.spark, table.snapshot, rows.schema, partition_by=partitions)


def _whole_files(
    change: TableChange, table: TableAt, removed: tuple[Any, ...], *, metadata: Any = None
) -> StagedChange:
    rows, one_task = within_years(change.rows), change.small_enough
    staged, counted = replace_files(table, rows, removed=removed, metadata=metadata, one_task=one_task)
    old = table.counted(removed)
    dates = tuple(sorted({*old.by_date, *counted.by_date}))
    return StagedChange(staged, counted.rows or 0, old.rows or 0, dates, counted.by_date, old.by_date)


def _rows_of_keys(rows: DataFrame, replaces: RowsOfKeys, table: TableAt) -> DataFrame:
    """All rows of the files with new rows in place of those with the keys, and rows for the change feed."""
    from pyspark.sql import functions as F

    by, held = tuple(replaces.keys.columns), table.rows_of(replaces.files)
    old, kept = with_keys(held, replaces.keys, by), with_keys(held, replaces.keys, by, others=True)
    forms = paired(old, rows.select(*(f"`{column}`" for column in table.schema.names)), replaces.unique)
    return kept.withColumn(CHANGE, F.lit(None).cast("string")).unionByName(_with_feed(forms))


def _with_feed(forms: DataFrame) -> DataFrame:
    """The new forms; and, with ``_change_type: string``, the old and the new form of those that differ.

    Rows that come out as they were stay out of the change feed: what reads it shall not compute their dates again.
    """
    changed = differs(forms)
    kinds = {
        "CAST(NULL AS STRING)": NEW,
        "'delete'": f"IF({changed}, {OLD}, NULL)",
        "'insert'": f"IF({changed}, {NEW}, NULL)",
    }
    listed = ", ".join(f"struct({form} AS row, {kind} AS kind)" for kind, form in kinds.items())
    rows = forms.selectExpr(f"inline(array({listed}))").where("row IS NOT NULL")
    return rows.selectExpr("row.*", f"kind AS {CHANGE}")


def _counted_files(
    rows: DataFrame, files: tuple[Any, ...], table: TableAt, name: str, *, one_task: bool
) -> StagedChange:
    """Write files again, and count the rows of the change feed meanwhile: they must be the difference."""
    counts = RowCounts(table.spark)
    one_task = one_task and is_small(map(bytes_of, files))
    rows = counts.counting(within_years(rows), _kind_of_row(table))
    staged, written = replace_files(table, rows, removed=files, one_task=one_task)
    before, (removed, added) = table.counted(files).rows, _by_day(counts.by_kind())
    if before is not None and written.rows is not None:
        expected = before + sum(added.values()) - sum(removed.values())
        if written.rows != expected:
            raise RowsMiscounted(table=name, uri=table.uri, expected=expected, found=written.rows)
    return _staged_rows(staged, removed, added)


def within_years(rows: DataFrame) -> DataFrame:
    """The rows, whose job ends with ``OUT_OF_YEARS`` at the first time that other readers of a table fail at."""
    for field in rows.schema.fields:
        if outside := is_out_of_years(name(field.name), field.dataType):
            rows = rows.where(f"IF({outside}, raise_error({literal(OUT_OF_YEARS + name(field.name))}), true)")
    return rows


def _kind_of_row(table: TableAt) -> str:
    """Of rows of the change feed: twice the days since 1970, one more for inserts; null for all others."""
    day = f"coalesce(unix_date(date), {_NO_DAY})" if table.is_partitioned_by_date else str(_NO_DAY)
    return f"CAST(CASE {CHANGE} WHEN 'insert' THEN 2 * {day} + 1 WHEN 'delete' THEN 2 * {day} END AS BIGINT)"


def _by_day(counted: Mapping[int, int]) -> tuple[dict[int, int], dict[int, int]]:
    """The rows removed and the rows added, by days since 1970."""
    removed, added = ({k // 2: rows for k, rows in sorted(counted.items()) if k % 2 == last} for last in (0, 1))
    return removed, added


def _staged_rows(staged: Staged, removed: Mapping[int, int], added: Mapping[int, int]) -> StagedChange:
    """Without a changed row, what was written stays in no version."""
    if not removed and not added:
        return StagedChange(Staged(), 0, 0, (), {}, {})
    old, new = (
        {_EPOCH + timedelta(days=day): rows for day, rows in of.items() if day != _NO_DAY} for of in (removed, added)
    )
    dates = tuple(sorted({*old, *new}))
    return StagedChange(staged, sum(added.values()), sum(removed.values()), dates, new, old)
