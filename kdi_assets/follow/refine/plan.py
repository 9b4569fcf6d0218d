"""Plan: what is new upstream since the bookmarks, and how it is to be computed. No JVM, no side effects."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from kdi_assets.delta.errors import CommitUnreadable
from kdi_assets.delta.log import TableLog, refuse_unmoved
from kdi_assets.delta.markers import version_id
from kdi_assets.documents.model.refined_modes import Aggregate, Append, Deduplicate, ReplaceDates, Upsert
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.follow.refine.columns import HasOtherColumns
from kdi_assets.follow.refine.deletes import deletes_are_lost
from kdi_assets.follow.refine.entry import RefineKind, VersionRange
from kdi_assets.follow.refine.errors import BookmarksUnreadable, DatesNotKept, TableNotRefined
from kdi_assets.follow.refine.kept_dates import KeptDates, read_kept_dates
from kdi_assets.follow.refine.topics import TopicsOfRows, known_topics
from kdi_assets.follow.refine.transform import function_source
from kdi_assets.follow.refine.upstream_bookmarks import Bookmarks, open_consumed, read_bookmarks
from kdi_assets.follow.upstream import (
    OpenedUpstream,
    UpstreamChanges,
    changed_column,
    changes_since,
)


@dataclass(frozen=True, slots=True)
class RefinePlan:
    """One refinement.

    Attributes:
        attempt_id: New for every plan: what no commit names did not happen.
        version: The table version that the commit must directly follow; -1: there is no table.
        table_id: Delta's id of the table; empty if there is none.
        upstreams: What is new in each upstream table, in the document's order.
        kind: What is computed.
        why: For ``dates`` and ``rebuild``: why.
        dates: For ``dates``: which.
        deletes: The version of the table of deletes that belongs to the rows; ``None``: there is none.
        committed: The version of the newest refinement that the rows come from; ``None``: none, or it is unknown.
        definitions: Digests of the document and of its function. If the rows have none of them, all are computed again.
        kept: The dates that may be computed.
        topics: Of the rows after the commit; ``None``: the upstream tables must be asked for them.
        casts_frozen: For ``rebuild``: whether the rows that cannot be computed again stay, in the types of the others.
    """

    attempt_id: str
    version: int
    table_id: str
    upstreams: tuple[UpstreamChanges, ...]
    kind: RefineKind
    why: str = ""
    dates: frozenset[date] = frozenset()
    deletes: int | None = None
    committed: int | None = None
    definitions: tuple[str, ...] = ()
    kept: KeptDates = KeptDates()
    topics: TopicsOfRows | None = None
    casts_frozen: bool = False

    @property
    def consumed(self) -> Mapping[str, int]:
        """By the id of each upstream table, the version up to which it is consumed after the commit."""
        return {upstream.table_id: upstream.version for upstream in self.upstreams}

    @property
    def only_records(self) -> bool:
        """Whether no row is computed: the commit says what is consumed, and from which date on rows are computed."""
        return self.kind == "dates" and not self.dates

    @property
    def version_ranges(self) -> tuple[VersionRange, ...]:
        """The same for the report."""
        everything = self.kind == "rebuild"
        return tuple(
            VersionRange(u.table, u.table_id, None if everything else u.since, u.version) for u in self.upstreams
        )

    def with_dates(self, dates: Collection[date], *, table: str, uri: str) -> RefinePlan:
        """The plan with some dates computed again, besides all that is new.

        Raises:
            DatesNotKept: Some of them are kept no longer.
        """
        if (first := self.kept.first) and (gone := sorted(day for day in dates if day < first)):
            raise DatesNotKept(table=table, uri=uri, first=first, why=f"{gone[0]} was requested")
        if self.kind == "rebuild":
            return self
        if any(upstream.dates is None for upstream in self.upstreams):
            why = "dates were requested, and it is unknown which other dates changed"
            return replace(self, kind="rebuild", why=why, topics=None).without_frozen(table, uri, same_rows=True)
        new = {day for upstream in self.upstreams for day in upstream.dates or ()}
        return replace(self, kind="dates", why="requested", dates=frozenset({*dates, *new}))

    def with_all_rows(self, other: HasOtherColumns, *, table: str, uri: str) -> RefinePlan:
        """The plan with all rows computed again, because they have columns that the table has not.

        Frozen rows stay if their values have the wider types as well.

        Raises:
            DatesNotKept: The table has rows that cannot be computed again.
        """
        if self.kind == "rebuild":
            return self
        why = f"the rows have other columns: {other}"
        plan = replace(self, kind="rebuild", why=why, dates=frozenset(), deletes=None, topics=None)
        if other.only_wider and self.kept.has_frozen:
            why = f"{why}; dates before {self.kept.first} are kept no longer upstream, and get these types"
            return replace(plan, why=why, casts_frozen=True)
        return plan.without_frozen(table, uri, same_rows=False)

    def without_frozen(self, table: str, uri: str, *, same_rows: bool) -> RefinePlan:
        """The plan without the rows that cannot be computed again; as it is if there are none, or it does not need all.

        Args:
            same_rows: Whether the rows of these dates would be the same, if they could be computed.

        Raises:
            DatesNotKept: They would not.
        """
        if self.kind != "rebuild" or not self.kept.has_frozen or self.kept.first is None:
            return self
        if not same_rows:
            raise DatesNotKept(table=table, uri=uri, first=self.kept.first, why=self.why)
        why = f"{self.why}; dates before {self.kept.first} are kept no longer upstream, and stay as they are"
        return replace(self, kind="dates", why=why, dates=self.kept.known)


def plan_refinement(table: RefinedTableSpec, lake: str, *, rebuild: bool = False) -> RefinePlan:
    """Plan the next refinement, or refuse.

    Args:
        rebuild: Compute all rows again, whatever is new, and whatever others did to the table.

    Raises:
        UpstreamMissing: An upstream table does not exist yet.
        UpstreamGone: An upstream table does not exist, and there are rows that were refined before.
        TableNotMoved: The document has another root than before, and the table was not moved.
        TableNotRefined: The table's path holds rows of another writer.
        BookmarksUnreadable, ChangedByOthers: The table is not as our last commit left it.
        NotByDate, DatesNotKept: Rows would have to be computed of dates that are kept no longer.
        QueryMistake: Nobody knows the source of the document's function.
        KdiError: A log cannot be read.
    """
    source = function_source(table)
    log = TableLog.open(table.table_uri(lake))
    if log is None and not rebuild:
        _refuse_unmoved(table, lake)
    bookmarks = _bookmarks(table, log, rebuild=rebuild) if log else None
    opened = _opened_upstreams(table, lake, bookmarks)
    definitions = definitions_of(table, source, opened)
    kept = read_kept_dates(table, log, opened)
    changes = _changes(table, opened, kept)
    kind, why, dates = _how(table, bookmarks, changes, definitions=definitions, rebuild=rebuild)
    altered = _alteration(table, log, bookmarks)
    if kind != "rebuild" and altered:
        kind, why, dates = "rebuild", altered, frozenset()
    if kind == "nothing" and kept.to_record:
        kind, why = "dates", f"rows of dates before {kept.frozen_before} are frozen from now on"
    deletes = bookmarks.deletes if bookmarks and kind in ("changes", "dates") else None
    if deletes is not None and deletes_are_lost(table.deletes_uri(lake), deletes):
        kind, why, deletes = "rebuild", f"version {deletes} of {table.name}_deletes is gone", None
    version, table_id = (log.version, log.table_id) if log else (-1, "")
    committed = bookmarks.committed if bookmarks else None
    attempt_id = str(uuid.uuid4())
    of_table = (attempt_id, version, table_id)
    topics = known_topics(log, table.name, changes) if log and kind in ("changes", "dates") else None
    plan = RefinePlan(*of_table, changes, kind, why, dates, deletes, committed, definitions, kept, topics)
    same_rows = bookmarks is not None and bookmarks.has_definition(definitions) and not altered
    return plan.without_frozen(table.name, table.table_uri(lake), same_rows=same_rows)


def definitions_of(
    table: RefinedTableSpec, function_source: str, opened: Mapping[str, OpenedUpstream]
) -> tuple[str, str]:
    """The digests of what decides which rows a table has: by the paths of its upstream tables, and by their ids.

    Rows of either are as the document makes them. A table that is renamed keeps its id, and one that is replaced its
    path, which an older release compares alone.
    """
    ids = {path: found.log.table_id for path, found in opened.items()}
    return table.definition(function_source), table.definition(function_source, ids)


def _refuse_unmoved(table: RefinedTableSpec, lake: str) -> None:
    """Refuse to begin a table that lies below a former root.

    Raises:
        TableNotMoved: It lies there.
    """
    mark = version_id(table.name)
    refuse_unmoved(
        table.name,
        table.table_uri(lake),
        table.former_uris(lake),
        beside=["_deletes"],
        is_ours=lambda log: log.transaction_version(mark) is not None,
    )


def _changes(
    table: RefinedTableSpec, opened: Mapping[str, OpenedUpstream], kept: KeptDates
) -> tuple[UpstreamChanges, ...]:
    """What is new in each upstream table, of the dates that are kept."""
    pairs = [(upstream, opened[upstream.table]) for upstream in table.upstreams]
    return tuple(
        changes_since(found.log, found.since, view=u.view, table=u.table, kept=kept.first_read, computed=kept.first)
        for u, found in pairs
    )


def _opened_upstreams(table: RefinedTableSpec, lake: str, bookmarks: Bookmarks | None) -> dict[str, OpenedUpstream]:
    """The upstream tables by their paths; one that is named twice is opened once.

    Raises:
        UpstreamMissing, UpstreamGone: One does not exist.
    """
    uris = {upstream.table: upstream.table_uri(lake) for upstream in table.upstreams}
    return {path: open_consumed(uri, bookmarks, consumer=table.name, upstream=path) for path, uri in uris.items()}


def _alteration(table: RefinedTableSpec, log: TableLog | None, bookmarks: Bookmarks | None) -> str:
    """Why the table's rows have other columns or partitions than its document makes; empty if they have not."""
    if log is None:
        return ""
    if bookmarks and (altered := _other_columns(log, bookmarks)):
        return altered
    if ("date" in log.partition_columns) != table.by_date:
        return "the table has other partitions than the document"
    return ""


def _bookmarks(table: RefinedTableSpec, log: TableLog, *, rebuild: bool) -> Bookmarks | None:
    """The bookmarks; ``None`` if they cannot be read and do not matter, because all rows are computed again."""
    try:
        found = read_bookmarks(log, table.name, alone=not rebuild)
    except BookmarksUnreadable:
        if rebuild:
            return None
        raise
    if found.committed is None and log.data_files.num_rows:
        raise TableNotRefined(table=table.name, uri=log.uri)
    return found


def _other_columns(log: TableLog, bookmarks: Bookmarks) -> str:
    """Why the table's columns do not have the values of our newest commit; empty if they have.

    Under column mapping, a column that was dropped can be added again with its name and type, and without its values.

    Args:
        log: The table at its newest version: after a RESTORE, the one of the bookmarks is an older one.
    """
    if not bookmarks.altered or bookmarks.committed is None:
        return ""
    try:
        before = TableLog.existing(log.uri, bookmarks.committed)
    except CommitUnreadable:
        return f"its own columns changed, and those of version {bookmarks.committed} are no longer in its log"
    column = changed_column(before.schema, log.schema)
    return f"its own column {column} was dropped, renamed or changed its type" if column else ""


def _how(
    table: RefinedTableSpec,
    bookmarks: Bookmarks | None,
    changes: Sequence[UpstreamChanges],
    *,
    definitions: Collection[str],
    rebuild: bool,
) -> tuple[RefineKind, str, frozenset[date]]:
    if rebuild:
        return "rebuild", "requested", frozenset()
    if bookmarks is None or bookmarks.committed is None:
        return "rebuild", "the table is new", frozenset()
    if not bookmarks.has_definition(definitions):
        return "rebuild", "the document computes other rows than before", frozenset()
    fresh = [c for c in changes if c.kind != "nothing"]
    if not fresh:
        return "nothing", "", frozenset()
    if lost := next((c for c in fresh if c.kind == "lost" and c.dates is None), None):
        return "rebuild", f"{lost.table}: {lost.why}", frozenset()
    return _by_mode(table, fresh)


def _by_mode(table: RefinedTableSpec, fresh: Sequence[UpstreamChanges]) -> tuple[RefineKind, str, frozenset[date]]:
    """Whether changes alone, whole dates, or the whole table must be computed."""
    lost = next((c for c in fresh if c.kind == "lost"), None)
    appended = all(c.kind == "appended" for c in fresh)
    feed = lost is None and all(c.kind == "appended" or c.has_feed for c in fresh)
    match table.mode:
        case Append():
            changes = appended
        case Upsert() | Aggregate():
            changes = feed
        case Deduplicate(window=1):  # in a wider window new rows can make kept rows of later dates duplicates
            changes = appended and table.is_computed_by_date and all(c.dates for c in fresh)
        case ReplaceDates() | Deduplicate():
            changes = False
    if changes:
        return "changes", "", frozenset()
    why = f"{lost.table}: {lost.why}" if lost else _why_dates(fresh)
    if not table.is_computed_by_date or any(c.dates is None for c in fresh):
        return "rebuild", f"{why}, and it is not computed date by date", frozenset()
    return "dates", why, frozenset(day for c in fresh for day in c.dates or ())


def _why_dates(fresh: Sequence[UpstreamChanges]) -> str:
    changed = next((c for c in fresh if c.kind == "changed"), None)
    if changed is None:
        return "its mode computes whole dates"
    return f"{changed.table}: rows were changed or removed" + ("" if changed.has_feed else ", without a change feed")
