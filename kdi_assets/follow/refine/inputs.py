"""Inputs: the rows of a plan, through the document's SQL, as each mode needs them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kdi_assets.delta.files import FILE, TableAt, rows_at
from kdi_assets.delta.internals import bytes_of
from kdi_assets.documents.model.refined_modes import Aggregate, ReplaceDates
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.follow.refine.plan import RefinePlan
from kdi_assets.follow.refine.read import DAY, FEED_COLUMNS, appended_rows, change_rows, in_one_task, with_keys
from kdi_assets.follow.refine.transform import in_utf8, is_made_by_date, transform
from kdi_assets.follow.upstream import UpstreamChanges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL_BYTES = 8 << 20
"""Files that are together at most this large are all written again: finding those with the keys would cost more."""
FILE_COST = 128 << 10
"""And a file counts as so many bytes more: one task opens one after the other, and object storage answers slowly."""


@dataclass(frozen=True)
class Inputs:
    """The rows that one plan computes with; every frame went through the document's SQL or function."""

    spark: SparkSession
    table: RefinedTableSpec
    plan: RefinePlan
    uri: str

    def all_rows(self) -> DataFrame:
        """The result over all upstream rows, at the versions of the plan."""
        return self._of({u.view: rows_at(self.spark, u.uri, u.version) for u in self.plan.upstreams})

    def rows_of(self, dates: Collection[date]) -> DataFrame:
        """The rows of some dates, of ``all_rows``."""
        if isinstance(self.table.mode, ReplaceDates):  # a row may come from rows of other dates
            frames = {u.view: self._upstream_rows(u) for u in self.plan.upstreams}
        else:
            frames = {u.view: self._upstream_rows_of(u, dates) for u in self.plan.upstreams}
        return self._of(frames).where(in_dates(dates))

    def rows_made_by_date(self) -> tuple[DataFrame, bool] | None:
        """The rows of the plan's dates, if a row of a date is made of the upstream rows of that date alone.

        Returns:
            The rows, and whether one task computes them; ``None`` if they may be made of rows of other dates.
        """
        if len(self.plan.upstreams) > 1 or self.table.python:  # a function may have read other rows already
            return None
        (upstream,), dates = self.plan.upstreams, self.plan.dates
        table = TableAt.open(self.spark, upstream.uri, upstream.version)
        if not table.is_partitioned_by_date:
            return None
        files = table.files_of_dates(dates)
        few = is_small(map(bytes_of, files))
        frame = in_one_task(table.rows_of(files)) if few else table.rows_of(files)
        rows = self._of({upstream.view: frame})
        return (rows.where(in_dates(dates)), few) if is_made_by_date(rows, frame) else None

    def new_rows(self) -> DataFrame:
        """The result over the rows that were added, if upstream rows were only added; few of them in one partition."""
        (changes,) = self.plan.upstreams
        rows = self._of({changes.view: appended_rows(self.spark, changes)})
        return in_one_task(rows) if self.small_enough else rows

    def touched_rows(self) -> DataFrame:
        """The result over all rows that were added, changed or removed, in their old and their new form."""
        (changes,) = self.plan.upstreams
        if changes.kind == "appended":
            return self.new_rows()
        rows = change_rows(self.spark, changes).drop(*FEED_COLUMNS)
        return transform(self.spark, self.table, {changes.view: rows})

    def _of(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        """The result over rows of upstream tables, to be written."""
        return in_utf8(transform(self.spark, self.table, frames))

    @property
    def only_added(self) -> bool:
        """Whether upstream rows were only added."""
        return all(u.kind in ("appended", "nothing") for u in self.plan.upstreams)

    @property
    def small_enough(self) -> bool:
        """Whether so few rows were added that one task computes the whole change, without other upstream rows."""
        if isinstance(self.table.mode, Aggregate) and not self.table.mode.is_mergeable:
            return False
        return self.few_bytes_added and is_small(self._added_sizes)

    @property
    def few_bytes_added(self) -> bool:
        """Whether what is new is few rows that were added, in whatever number of files."""
        return self.plan.kind == "changes" and self.only_added and sum(self._added_sizes) <= SMALL_BYTES

    @property
    def _added_sizes(self) -> list[int]:
        return [add["size"] for upstream in self.plan.upstreams for add in upstream.files]

    @property
    def dates(self) -> frozenset[date] | None:
        """The dates of what is new upstream; ``None`` if unknown."""
        found: set[date] = set()
        for upstream in self.plan.upstreams:
            if upstream.dates is None:
                return None
            found |= upstream.dates
        return frozenset(found)

    def files_with(self, keys: DataFrame, dates: Collection[date] | None = None) -> tuple[Any, ...]:
        """Delta's actions of all files of the refined table that hold rows with one of the keys, and perhaps others.

        Args:
            keys: Named as in the table.
            dates: The rows are on these dates only; ``None``: on any.
        """
        table = self.refined_table
        files = table.files() if dates is None else table.files_of_dates(dates)
        if is_small(map(bytes_of, files)):
            return files
        by = tuple(keys.columns)
        placed = table.rows_of(files).select(*by, "_metadata.file_name")
        found = with_keys(placed, keys, by).select("file_name").distinct().collect()
        return table.files_named([row["file_name"] for row in found])

    def rows_in(self, files: Collection[Any]) -> DataFrame:
        """The rows of some files of the refined table."""
        return self.refined_table.rows_of(files)

    def rows_on(self, dates: Collection[date]) -> DataFrame:
        """The rows of the refined table on some dates, with the names of their files as ``_kdi_file``."""
        from pyspark.sql import functions as F

        table = self.refined_table
        return table.rows_of(table.files_of_dates(dates)).select("*", F.col("_metadata.file_name").alias(FILE))

    def files_named(self, names: Collection[str]) -> tuple[Any, ...]:
        """Delta's actions of files of the refined table."""
        return self.refined_table.files_named(names)

    def _upstream_rows(self, upstream: UpstreamChanges) -> DataFrame:
        """All rows; of few files, without the Spark jobs by which Delta finds those of the dates that are read."""
        table = TableAt.open(self.spark, upstream.uri, upstream.version)
        files = table.few_files() if table.is_partitioned_by_date else None
        return rows_at(self.spark, upstream.uri, upstream.version) if files is None else table.rows_of(files)

    def _upstream_rows_of(self, upstream: UpstreamChanges, dates: Collection[date]) -> DataFrame:
        table = TableAt.open(self.spark, upstream.uri, upstream.version)
        if table.is_partitioned_by_date:
            return table.rows_of(table.files_of_dates(dates))
        rows = rows_at(self.spark, upstream.uri, upstream.version)
        by_text = "date" in table.partition_columns and dict(rows.dtypes)["date"] == "string"
        return rows.where(in_dates(dates, DAY)) if by_text else rows

    @cached_property
    def refined_table(self) -> TableAt:
        """The refined table at the version of the plan, opened once."""
        return TableAt.open(self.spark, self.uri, self.plan.version)


def is_small(sizes: Iterable[int]) -> bool:
    """Whether files of these sizes are together so small that any more tasks or jobs cost more than their rows."""
    total = 0
    for size in sizes:  # the size of each is a call of the JVM
        total += size + FILE_COST
        if total > SMALL_BYTES:
            return False
    return True


def tasks_of(sizes: Iterable[int]) -> int:
    """How many tasks should compute the rows of files of these sizes, each as many as one task may."""
    return max(1, -(-sum(size + FILE_COST for size in sizes) // SMALL_BYTES))


def in_dates(dates: Collection[date], column: str = "date") -> str:
    """A condition on a column of dates."""
    listed = ", ".join(f"DATE'{day}'" for day in sorted(dates))
    return f"{column} IN ({listed})" if dates else "false"


def days_between(first: date, last: date) -> list[date]:
    """The dates from the first to the last, both inclusive."""
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


def with_days_before(dates: Collection[date], days: int) -> frozenset[date]:
    """The dates and the days before each of them."""
    return frozenset(day - timedelta(days=back) for day in dates for back in range(days + 1))


def with_days_after(dates: Collection[date], days: int) -> frozenset[date]:
    """The dates and the days after each of them."""
    return frozenset(day + timedelta(days=ahead) for day in dates for ahead in range(days + 1))
