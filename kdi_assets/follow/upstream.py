"""What is new in an upstream table since a version, from its log and without a JVM.

Whoever follows a table reads its own state first, and opens the upstream table's log after it, by ``open_upstream``:
the log then has every version that the state counts. In the other order, a follower that another run overtook in
between would take the newer state for lost history, and put older rows over newer ones.

Between two versions only files were added (then their rows are the new rows), or rows changed (then the change feed has
them, if it is there), or the log or the files are gone (then whole dates must be computed again).

Of dates that a table keeps no longer nothing is new, whatever happens to their rows: they leave (``expire``), come
late, or come back by a RESTORE. So followers made of its rows have these dates as they were (``changes_since``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, Literal

from kdi_assets.delta.errors import CommitUnreadable, unreadable_commit
from kdi_assets.delta.log import CommitInfo, TableLog, physical_name_in, row_actions
from kdi_assets.delta.markers import kept_from, topics_of

CHANGE_FEED = "delta.enableChangeDataFeed"
ChangeKind = Literal["nothing", "appended", "changed", "lost"]


@dataclass(frozen=True, slots=True)
class UpstreamChanges:
    """What is new in a table.

    Attributes:
        view: The table's name in SQL.
        table: Its path below the lake's root.
        since: The version consumed before, exclusive; ``None``: nothing of this table was consumed.
        version: The newest version, inclusive.
        kind: ``nothing``; ``appended``: only rows were added; ``changed``: rows were changed or removed; ``lost``: it
            cannot be told what is new.
        dates: The dates of these rows; ``None``: unknown, or the table has no date partitions.
        why: For ``lost``: why.
        files: For ``appended``: the ``add`` actions with the new rows.
        has_feed: For ``changed``: whether the change feed has all changed rows.
        kept_from: Of earlier dates nothing is new; ``None``: all dates count.
        rows_passed_over: How many rows were appended on dates that the follower computes no longer.
        begins: The first version with something new, if its commit was read.
        topics: Transaction ids of the new commits that name topics; ``None``: not all of the commits were read.
    """

    view: str
    table: str
    uri: str
    table_id: str
    since: int | None
    version: int
    kind: ChangeKind
    dates: frozenset[date] | None = frozenset()
    why: str = ""
    files: tuple[Mapping[str, Any], ...] = ()
    has_feed: bool = False
    kept_from: date | None = None
    rows_passed_over: int = 0
    begins: int | None = None
    topics: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class OpenedUpstream:
    """An upstream table's log, and up to which version a follower has consumed it.

    Attributes:
        since: The version consumed, inclusive; ``None``: nothing of this table was consumed.
    """

    log: TableLog
    since: int | None


def open_upstream(uri: str, consumed: Callable[[str], int | None]) -> OpenedUpstream | None:
    """Open an upstream table at its newest version; ``None`` if there is no table.

    Args:
        consumed: By the table's id, the version that the follower's own state says is consumed. The state was read
            before this call.

    Raises:
        TableUnreadable: The log is damaged.
        KdiError: The log cannot be read.
    """
    log = TableLog.open(uri)
    if log is None:
        return None
    since = consumed(log.table_id)
    if since is not None and since > log.version:
        # An older listing than the state: the version was there when it was consumed. If the second one lacks it as
        # well, the table went back.
        log = TableLog.existing(uri)
        since = consumed(log.table_id)
    if since != log.version:
        log.refuse_empty_commits()
    return OpenedUpstream(log, since)


def changes_since(
    log: TableLog,
    since: int | None,
    *,
    view: str = "",
    table: str = "",
    kept: date | None = None,
    computed: date | None = None,
    all_dates: bool = False,
) -> UpstreamChanges:
    """What is new in a table after version ``since``.

    Args:
        log: The table at its newest version.
        since: The version consumed before, exclusive; ``None`` for the first time.
        view, table: For the result.
        kept: Of earlier dates nothing is new for this follower, also if the table keeps them.
        computed: The first date that the follower still computes, if it is a later one.
        all_dates: Whether dates that the table keeps no longer count too: for an exact copy of it.

    Raises:
        TableUnreadable: A commit after ``since`` is there, and cannot be read.
        StorageFailed: The storage does not answer.
    """
    first = None if all_dates else later(kept_from(log), kept)
    base = UpstreamChanges(view, table, log.uri, log.table_id, since, log.version, "nothing", kept_from=first)
    if since is None:
        return replace(base, kind="lost", dates=None, why="nothing of it was consumed before")
    if since > log.version:
        return replace(
            base, kind="lost", dates=None, why=f"it ends before version {since}, up to which it was consumed"
        )
    try:
        column = physical_name_in("date", log.schema) if "date" in log.partition_columns else ""
        return _ChangeReader(log, since, column, first, later(first, computed)).changes(base)
    except CommitUnreadable as unread:
        if not unread.gone:  # its rows are not lost: someone can put the file back
            raise unreadable_commit(log.uri, unread) from unread
        why = f"commit {unread.version}, which was not consumed, is no longer in its log"
        return replace(base, kind="lost", dates=_dates_from(first, _dates_by_files(log, since)), why=why)


def _dates_from(first: date | None, dates: frozenset[date] | None) -> frozenset[date] | None:
    """The dates from the first on; ``None`` stands for all dates, or for no first one."""
    return dates if dates is None or first is None else frozenset(day for day in dates if day >= first)


def day_in(partition: object) -> date | None:
    """The day that the value of a partition column says, of type date or of text; ``None`` if it is not a day."""
    with suppress(ValueError):
        return datetime.strptime(str(partition), "%Y-%m-%d").date()
    return None


def later(one: date | None, other: date | None) -> date | None:
    """The later one of two dates; ``None`` stands for no date."""
    return max(filter(None, (one, other)), default=None)


@dataclass(frozen=True, slots=True)
class _ChangeReader:
    log: TableLog
    since: int
    date_column: str
    kept_from: date | None
    computed_from: date | None

    def changes(self, base: UpstreamChanges) -> UpstreamChanges:
        commits = {v: self.log.actions(v) for v in range(self.since + 1, self.log.version + 1)}
        named = (a["txn"]["appId"] for actions in commits.values() for a in actions if "txn" in a)
        base = replace(base, topics=frozenset(name for name in named if topics_of([name])))
        # Before anything is called nothing: with column mapping, a commit without rows can change what columns hold.
        if why := self._column_change(commits):
            return replace(base, kind="lost", dates=None, why=why)
        with_rows = {v: found for v, actions in commits.items() if (found := row_actions(actions))}
        changing = {v: kept for v, found in with_rows.items() if (kept := self._from(self.kept_from, found))}
        base = replace(
            base,
            begins=min(changing, default=None),
            rows_passed_over=sum(self._appended_rows_passed_over(commits[v]) for v in with_rows),
        )
        if not changing:
            return base
        actions = [action for found in changing.values() for action in found]
        dates = self._dates(actions)
        if any("remove" in action for action in actions):
            return replace(base, kind="changed", dates=dates, has_feed=self._has_feed(commits, with_rows))
        files = tuple(action["add"] for action in actions)
        if self._are_there(files, commits):
            return replace(base, kind="appended", dates=dates, files=files)
        return replace(base, kind="changed", dates=dates)  # compacted, and then removed by VACUUM

    def _from(self, first: date | None, actions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """The actions of rows from a date on, and of rows without a date."""
        return [a for a in actions if first is None or (day := self._date(a)) is None or day >= first]

    def _appended_rows_passed_over(self, actions: Sequence[Mapping[str, Any]]) -> int:
        """The rows of dates that are not computed, if the commit only added such rows, and not by a RESTORE."""
        first = self.computed_from
        others = [a for a in row_actions(actions) if first and (day := self._date(a)) and day < first]
        if any("remove" in action for action in others) or CommitInfo.from_actions(0, actions).is_restore:
            return 0
        return sum(json.loads(a["add"].get("stats") or "{}").get("numRecords", 0) for a in others)

    def _dates(self, actions: Sequence[Mapping[str, Any]]) -> frozenset[date] | None:
        found = [day for action in actions if (day := self._date(action))]
        return frozenset(found) if len(found) == len(actions) else None

    def _date(self, action: Mapping[str, Any]) -> date | None:
        """The date of the rows that an action adds or removes; ``None``: they have none, or it is unknown."""
        return day_in(((action.get("add") or action["remove"]).get("partitionValues") or {}).get(self.date_column))

    def _column_change(self, commits: Mapping[int, Sequence[Mapping[str, Any]]]) -> str:
        """Why the rows that were consumed have other columns now; empty if they do not."""
        if not any("metaData" in action for actions in commits.values() for action in actions):
            return ""
        before = self._consumed_table
        if before is None:
            return f"its columns changed, and those of version {self.since} are no longer in its log"
        other = changed_column(before.schema, self.log.schema)
        return f"its column {other} was dropped, renamed or changed its type" if other else ""

    @property
    def _consumed_table(self) -> TableLog | None:
        """The table at the version consumed; ``None`` if its log no longer has it."""
        try:
            return TableLog.existing(self.log.uri, self.since)
        except CommitUnreadable:
            return None

    def _has_feed(self, commits: Mapping[int, Sequence[Mapping[str, Any]]], changing: Mapping[int, object]) -> bool:
        # On since the version consumed before: Delta writes no change files for older commits.
        before = self._consumed_table
        if before is None or before.configuration.get(CHANGE_FEED) != "true":
            return False
        if before.partition_columns != self.log.partition_columns:
            return False
        # Delta reads no feed over a version without it, or with columns that the newest version does not have.
        between = [action["metaData"] for actions in commits.values() for action in actions if "metaData" in action]
        return all(map(self._fits, between)) and all(self.log.has_change_files(version) for version in changing)

    def _fits(self, metadata: Mapping[str, Any]) -> bool:
        """Whether a version with this metadata can be in a feed up to the newest version."""
        return (
            metadata.get("configuration", {}).get(CHANGE_FEED) == "true"
            and metadata.get("partitionColumns", []) == self.log.partition_columns
            and not changed_column(json.loads(metadata["schemaString"]), self.log.schema)
        )

    def _are_there(
        self, files: Sequence[Mapping[str, Any]], commits: Mapping[int, Sequence[Mapping[str, Any]]]
    ) -> bool:
        removed = {a["remove"]["path"] for actions in commits.values() for a in actions if "remove" in a}
        return not self.log.missing_files([f["path"] for f in files if f["path"] in removed])


def changed_column(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first column whose values of before cannot be found under its name now; empty if there is none.

    Columns and fields that were added are no change. A column is the same if its physical name is: under column mapping
    a name can be given to another column.

    Args:
        before, now: Types as Delta's schema JSON has them: of the whole table, or of a nested field.
    """
    fields = {field["name"]: field for field in now["fields"]}
    for field in before["fields"]:
        name = field["name"]
        other = fields.get(name)
        if other is None or physical_name_in(name, before) != physical_name_in(name, now):
            return str(name)
        if inner := _changed_type(field["type"], other["type"]):
            return f"{name}{inner}" if inner.startswith(".") else str(name)
    return ""


def _changed_type(before: Any, now: Any) -> str:
    """The path of what changed inside a type, such as ``.street``, or ``*`` for the type itself; empty if nothing."""
    if isinstance(before, str) or isinstance(now, str) or before["type"] != now["type"]:
        return "" if before == now else "*"
    if before["type"] == "struct":
        inner = changed_column(before, now)
        return f".{inner}" if inner else ""
    parts = {"array": ("elementType",), "map": ("keyType", "valueType")}.get(before["type"])
    if parts is None:
        return "" if before == now else "*"
    return next((found for part in parts if (found := _changed_type(before[part], now[part]))), "")


def _dates_by_files(log: TableLog, since: int) -> frozenset[date] | None:
    """The dates whose files differ between two versions; ``None`` if the older one cannot be opened."""
    # delta-rs does not show which rows of a file a deletion vector removed.
    if "date" not in log.partition_columns or "deletionVectors" in log.features:
        return None
    try:
        before = TableLog.existing(log.uri, since)
    except CommitUnreadable:
        return None
    old, new = _files_by_date(before), _files_by_date(log)
    days = {day for _, day in old ^ new}
    return None if None in days else frozenset(day for day in days if day is not None)


def _files_by_date(log: TableLog) -> set[tuple[str, date | None]]:
    files = log.data_files
    days = map(day_in, files.column("partition.date").to_pylist())
    return set(zip(files.column("path").to_pylist(), days, strict=True))
