"""Compare a refined table with a recomputation from its upstream tables, at the versions that it consumed.

Sums and averages of floating-point numbers may differ by what the order of additions changes, and by no more.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from kdi_assets.delta.errors import CommitUnreadable
from kdi_assets.delta.files import rows_at
from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.refined_modes import Aggregate, Append, Deduplicate, ReplaceDates, Upsert
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.follow.refine.audit.float_sums import float_sums
from kdi_assets.follow.refine.columns import row_as_json
from kdi_assets.follow.refine.entry import VersionRange
from kdi_assets.follow.refine.errors import NotRecomputable
from kdi_assets.follow.refine.inputs import Inputs, in_dates
from kdi_assets.follow.refine.kept_dates import KeptDates, dates_of, read_kept_dates
from kdi_assets.follow.refine.modes.aggregate import groups
from kdi_assets.follow.refine.modes.deduplicate import first_rows
from kdi_assets.follow.refine.modes.upsert import newest_states
from kdi_assets.follow.refine.plan import RefinePlan, definitions_of
from kdi_assets.follow.refine.read import of_kept_dates
from kdi_assets.follow.refine.transform import function_source
from kdi_assets.follow.refine.upstream_bookmarks import Bookmarks, read_bookmarks
from kdi_assets.follow.upstream import OpenedUpstream, UpstreamChanges
from kdi_assets.runtime.progress import WorkStep, announced

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SAMPLED_DATES = 3
SKETCH = "_sketch"
MAY_DIFFER = "_kdi_may_differ"
_TOO_FAR = f"""int(coalesce(exists(arrays_zip(a, b, {MAY_DIFFER}), x -> NOT (x.a <=> x.b OR coalesce(
    abs(x.a - x.b) <= x.{MAY_DIFFER} AND x.{MAY_DIFFER} < double('infinity'), false))), false))"""
"""1 if there is a row on both sides and a rounded sum differs by more than it may; an infinite sum must be the same."""


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
        first: Dates before it are left out, because the tables that it is made of, or it itself, keep them no longer;
            ``None``: none is.
    """

    table: str
    version: int
    upstreams: tuple[VersionRange, ...]
    dates: tuple[date, ...] | None
    rows: int
    missing: int
    surplus: int
    different_dates: tuple[date, ...] = ()
    first: date | None = None

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
) -> RefinedAudit:
    """Compute rows again, and compare them with those of the table; changes nothing.

    Args:
        everything: All rows; otherwise ``dates``, or some dates by chance, or all rows of a table without dates.

    Raises:
        NotByDate: A table upstream does not keep all dates, and the table is not computed date by date.
        NotRecomputable: The table was never refined, or what it consumed cannot be read any more.
        BookmarksUnreadable: Commits since our last one cannot be read.
        QueryMistake: The document's SQL does not work.
    """
    bookmarks = _bookmarks(table, lake)
    opened = {u.table: _consumed(table, u.table, u.table_uri(lake), bookmarks) for u in table.upstreams}
    if not bookmarks.has_definition(definitions_of(table, function_source(table), opened)):
        raise NotRecomputable(table=table.name, why="the document computes other rows than it did for the last commit")
    kept = read_kept_dates(table, TableLog.existing(table.table_uri(lake), bookmarks.version), opened)
    changes = tuple(_at_bookmark(u.view, u.table, opened[u.table]) for u in table.upstreams)
    plan = RefinePlan("", bookmarks.version, bookmarks.log.table_id, changes, "rebuild", kept=kept)
    some = None if everything or not table.by_date else dates or _sample(table, lake, bookmarks, kept)
    chosen = None if some is None else tuple(sorted(kept.of(some)))
    spark = session()
    try:
        rows = Inputs(spark, table, plan, table.table_uri(lake)).all_rows()
        ours = rows_at(spark, table.table_uri(lake), bookmarks.version)
        rounded: Mapping[str, str] = {}
        if isinstance(table.mode, Aggregate) and (rounded := float_sums(table.mode, ours.schema)):
            theirs = _with_roundings(rows, table.mode, rounded)
        else:
            theirs = rows_by_mode(table, rows)
        with announced(WorkStep(name=table.name, doing="comparing rows with a recomputation")):
            ours, theirs = (of_kept_dates(side, kept.first) for side in (ours, theirs))
            return _compared(table, plan, ours, theirs, chosen, rounded=tuple(rounded))
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
    return bookmarks


def _consumed(table: RefinedTableSpec, path: str, uri: str, bookmarks: Bookmarks) -> OpenedUpstream:
    """The upstream table's log, with the version up to which it is consumed, which can be read.

    Raises:
        NotRecomputable: It cannot.
    """
    log = TableLog.open(uri)
    version = bookmarks.consumed(log.table_id) if log else None
    if log is None or version is None:
        raise NotRecomputable(table=table.name, why=f"{path} is gone, or another table than the one it consumed")
    try:
        TableLog.existing(uri, version)
    except CommitUnreadable as gone:
        why = f"version {version} of {path}, which it consumed, cannot be read any more"
        raise NotRecomputable(table=table.name, why=why) from gone
    return OpenedUpstream(log, version)


def _at_bookmark(view: str, path: str, found: OpenedUpstream) -> UpstreamChanges:
    """The upstream table at the version up to which it is consumed."""
    version = -1 if found.since is None else found.since
    return UpstreamChanges(view, path, found.log.uri, found.log.table_id, None, version, "nothing")


def _sample(table: RefinedTableSpec, lake: str, bookmarks: Bookmarks, kept: KeptDates) -> list[date]:
    """Some dates of the table that are kept: the newest one and others by chance."""
    # Not the log of the bookmarks: after a RESTORE that is an older one, and others may have added dates since.
    days = sorted(kept.of(dates_of(TableLog.existing(table.table_uri(lake), bookmarks.version))))
    count = max(0, min(len(days), SAMPLED_DATES) - 1)
    others = random.sample(days[:-1], count)
    return [*days[-1:], *others]


def _compared(
    table: RefinedTableSpec,
    plan: RefinePlan,
    ours: DataFrame,
    theirs: DataFrame,
    dates: tuple[date, ...] | None,
    *,
    rounded: Sequence[str],
) -> RefinedAudit:
    if dates is not None:
        ours, theirs = ours.where(in_dates(dates)), theirs.where(in_dates(dates))
    found = {row["day"]: row for row in _counted(ours, theirs, rounded).collect()}
    different = tuple(sorted(day for day, r in found.items() if day and r["missing"] + r["surplus"]))
    rows, missing, surplus = (sum(row[name] for row in found.values()) for name in ("rows", "missing", "surplus"))
    everything = tuple(replace(r, since=None) for r in plan.version_ranges)
    return RefinedAudit(
        table.name, plan.version, everything, dates, rows, missing, surplus, different, first=plan.kept.first
    )


def _with_roundings(rows: DataFrame, mode: Aggregate, rounded: Mapping[str, str]) -> DataFrame:
    """The groups, and in one column how far each rounded sum may be from that of another computation."""
    return groups(rows, mode, {MAY_DIFFER: f"array({', '.join(rounded.values())})"})


def _counted(ours: DataFrame, theirs: DataFrame, rounded: Sequence[str]) -> DataFrame:
    """By ``day: date``, how many ``rows`` we have, how many of theirs are ``missing``, how many are ``surplus``.

    In one pass over both, because each may be the result of a long computation.

    Args:
        rounded: Columns that may differ by what ``theirs`` has in ``MAY_DIFFER``.
    """
    from pyspark.sql import functions as F

    # A sketch of the same values may have other bytes; its estimate counts.
    names = [f.name for f in ours.schema.fields if not f.name.endswith(SKETCH) and f.name not in rounded]
    both = _side(ours, names, rounded, ours=True).unionAll(_side(theirs, names, rounded, ours=False))
    values = [F.first(name, ignorenulls=True).alias(name) for name in ("a", "b", MAY_DIFFER) if rounded]
    rows = both.groupBy("day", "content").agg(F.sum("n").alias("n"), F.sum("m").alias("m"), *values)
    least = _TOO_FAR if rounded else "0"
    counts = {
        "rows": "sum(n)",
        "missing": f"sum(greatest(m - n, {least}))",
        "surplus": f"sum(greatest(n - m, {least}))",
    }
    return rows.groupBy("day").agg(*(F.expr(sql).alias(name) for name, sql in counts.items()))


def _side(rows: DataFrame, names: Sequence[str], rounded: Sequence[str], *, ours: bool) -> DataFrame:
    """One of the two: ``day``, ``content``, whose row it is, and of rounded columns the values and what is allowed."""
    from pyspark.sql import functions as F

    content = row_as_json(rows, names).alias("content")
    day = (F.col("date").cast("date") if "date" in names else F.lit(None).cast("date")).alias("day")
    columns = [day, content, F.lit(int(ours)).alias("n"), F.lit(int(not ours)).alias("m")]
    if rounded:
        sums, nothing = F.array(*(f"`{name}`" for name in rounded)), F.lit(None).cast("array<double>")
        values = (sums, nothing, nothing) if ours else (nothing, sums, F.col(MAY_DIFFER))
        columns += [value.alias(name) for value, name in zip(values, ("a", "b", MAY_DIFFER), strict=True)]
    return rows.select(*columns)


def _missing_files(failed: BaseException) -> str:
    """The first line of what Spark says of a file that does not exist; empty for other failures."""
    text = str(failed)
    known = ("FAILED_READ_FILE.FILE_NOT_EXIST", "DELTA_FILE_NOT_FOUND", "FileNotFoundException")
    return text.split("\n", 1)[0][:300] if any(word in text for word in known) else ""
