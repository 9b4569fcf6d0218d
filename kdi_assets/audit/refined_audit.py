"""Compare a refined table with a recomputation from its upstream tables, at the versions that it consumed."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from kdi_assets.audit.errors import NotRecomputable
from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.ledger.errors import CommitUnreadable
from kdi_assets.refine.aggregate import groups
from kdi_assets.refine.bookmarks import Bookmarks, read_bookmarks
from kdi_assets.refine.deduplicate import first_rows
from kdi_assets.refine.inputs import Inputs, in_dates
from kdi_assets.refine.plan import RefinePlan
from kdi_assets.refine.read import rows_at
from kdi_assets.refine.report import Consumed
from kdi_assets.refine.transform import function_source
from kdi_assets.refine.upsert import newest_states
from kdi_assets.refine.upstream import UpstreamChanges
from kdi_assets.stream.refined_table import Aggregate, Append, Deduplicate, RefinedTableSpec, ReplaceDates, Upsert

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SAMPLED_DATES = 3
SKETCH = "_sketch"


@dataclass(frozen=True, slots=True)
class RefinedAudit:
    """The result.

    Attributes:
        version: The table version that was compared.
        upstreams: The versions of the upstream tables that it consumed.
        dates: The dates that were compared; ``None``: all rows.
        rows: Rows of the table in these dates.
        missing: Rows of the recomputation that the table does not have.
        surplus: Rows of the table that the recomputation does not have.
        different_dates: Dates with such rows.
    """

    table: str
    version: int
    upstreams: tuple[Consumed, ...]
    dates: tuple[date, ...] | None
    rows: int
    missing: int
    surplus: int
    different_dates: tuple[date, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether the table has exactly the rows of the recomputation."""
        return not self.missing and not self.surplus


def audit_refined(
    table: RefinedTableSpec,
    *,
    lake: str,
    session: Callable[[], SparkSession],
    everything: bool = False,
    dates: Collection[date] | None = None,
    seed: int | None = None,
) -> RefinedAudit:
    """Compute rows again, and compare them with those of the table; changes nothing.

    Args:
        everything: All rows; otherwise ``dates``, or some dates by chance, or all rows of a table without dates.
        seed: Of the choice of dates.

    Raises:
        NotRecomputable: The table was never refined, or what it consumed cannot be read any more.
        BookmarksUnreadable: Commits since our last one cannot be read.
        QueryMistake: The document's SQL does not work.
    """
    bookmarks = _bookmarks(table, lake)
    changes = tuple(_consumed(table, u.table, u.view, u.uri(lake), bookmarks) for u in table.upstreams)
    plan = RefinePlan("", bookmarks.version, bookmarks.log.table_id, changes, "rebuild")
    chosen = None if everything or not table.by_date else tuple(sorted(dates or _sample(bookmarks.log, seed)))
    spark = session()
    try:
        theirs = rows_by_mode(table, Inputs(spark, table, plan, table.table_uri(lake)).all_rows())
        ours = rows_at(spark, table.table_uri(lake), bookmarks.version)
        return _compared(table, plan, ours, theirs, chosen)
    except Exception as failed:
        if missing := _missing_files(failed):
            why = f"a file of an upstream table is gone, probably by a VACUUM: {missing}"
            raise NotRecomputable(table=table.name, why=why) from failed
        raise


def rows_by_mode(table: RefinedTableSpec, rows: DataFrame) -> DataFrame:
    """The rows of the table that a rebuild makes of all rows of the query; lazy, and without any side effect."""
    match table.mode:
        case Append() | ReplaceDates():
            return rows
        case Deduplicate() as mode:
            return first_rows(rows, mode)
        case Aggregate() as mode:
            return groups(rows, mode)
        case Upsert() as mode:
            return newest_states(rows, mode)


def _bookmarks(table: RefinedTableSpec, lake: str) -> Bookmarks:
    log = TableLog.open(table.table_uri(lake))
    # Changes of other writers are what the comparison shall show.
    bookmarks = read_bookmarks(log, table.name, alone=False) if log else None
    if bookmarks is None or bookmarks.committed is None:
        raise NotRecomputable(table=table.name, why="it was never refined")
    if not bookmarks.has_definition(table.definition(function_source(table))):
        raise NotRecomputable(table=table.name, why="the document computes other rows than it did for the last commit")
    return bookmarks


def _consumed(table: RefinedTableSpec, path: str, view: str, uri: str, bookmarks: Bookmarks) -> UpstreamChanges:
    """The upstream table at the version up to which it is consumed."""
    log = TableLog.open(uri)
    version = bookmarks.consumed(log.table_id) if log else None
    if log is None or version is None:
        raise NotRecomputable(table=table.name, why=f"{path} is gone, or another table than the one it consumed")
    try:
        TableLog.existing(uri, version)
    except CommitUnreadable as gone:
        why = f"version {version} of {path}, which it consumed, cannot be read any more"
        raise NotRecomputable(table=table.name, why=why) from gone
    return UpstreamChanges(view, path, uri, log.table_id, None, version, "nothing")


def _sample(log: TableLog, seed: int | None) -> list[date]:
    """Some dates of the table: the newest one and others by chance."""
    found = {day for day in log.data_files.column("partition.date").to_pylist() if day is not None}
    days = sorted(day if isinstance(day, date) else date.fromisoformat(str(day)) for day in found)
    count = max(0, min(len(days), SAMPLED_DATES) - 1)
    others = random.Random(seed).sample(days[:-1], count)  # noqa: S311 - a sample, no secret
    return [*days[-1:], *others]


def _compared(
    table: RefinedTableSpec, plan: RefinePlan, ours: DataFrame, theirs: DataFrame, dates: tuple[date, ...] | None
) -> RefinedAudit:
    if dates is not None:
        ours, theirs = ours.where(in_dates(dates)), theirs.where(in_dates(dates))
    found = {row["day"]: row for row in _counted(ours, theirs).collect()}
    different = tuple(sorted(day for day, r in found.items() if day and r["missing"] + r["surplus"]))
    rows, missing, surplus = (sum(row[name] for row in found.values()) for name in ("rows", "missing", "surplus"))
    stretches = tuple(replace(s, since=None) for s in plan.stretches)
    return RefinedAudit(table.name, plan.version, stretches, dates, rows, missing, surplus, different)


def _counted(ours: DataFrame, theirs: DataFrame) -> DataFrame:
    """By ``day: date``, how many ``rows`` we have, how many of theirs are ``missing``, how many are ``surplus``.

    In one pass over both, because each may be the result of a long computation.
    """
    from pyspark.sql import functions as F

    # As JSON, because maps cannot be compared. A sketch of the same values may have other bytes; its estimate counts.
    columns = [f"`{f.name}`" for f in ours.schema.fields if not f.name.endswith(SKETCH)]
    content = F.to_json(F.struct(*columns)).alias("content")
    day = (F.col("date").cast("date") if "`date`" in columns else F.lit(None).cast("date")).alias("day")
    both = ours.select(day, content, F.lit(1).alias("n"), F.lit(0).alias("m")).unionAll(
        theirs.select(day, content, F.lit(0).alias("n"), F.lit(1).alias("m"))
    )
    rows = both.groupBy("day", "content").agg(F.sum("n").alias("n"), F.sum("m").alias("m"))
    counts = {"rows": "sum(n)", "missing": "sum(greatest(m - n, 0))", "surplus": "sum(greatest(n - m, 0))"}
    return rows.groupBy("day").agg(*(F.expr(sql).alias(name) for name, sql in counts.items()))


def _missing_files(failed: BaseException) -> str:
    """The first line of what Spark says of a file that does not exist; empty for other failures."""
    text = str(failed)
    known = ("FAILED_READ_FILE.FILE_NOT_EXIST", "DELTA_FILE_NOT_FOUND", "FileNotFoundException")
    return text.split("\n", 1)[0][:300] if any(word in text for word in known) else ""
