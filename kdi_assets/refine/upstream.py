"""What is new in an upstream table since a version, from its log and without a JVM.

Between two versions only files were added (then their rows are the new rows), or rows changed (then the change feed has
them, if it is there), or the log or the files are gone (then whole dates must be computed again).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Literal

from kdi_assets.ledger.delta_log import TableLog, physical_name_in, row_actions
from kdi_assets.ledger.errors import CommitUnreadable

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


def changes_since(log: TableLog, since: int | None, *, view: str = "", table: str = "") -> UpstreamChanges:
    """What is new in a table after version ``since``.

    Args:
        log: The table at its newest version.
        since: The version consumed before, exclusive; ``None`` for the first time.
        view, table: For the result.

    Raises:
        StorageFailed: The storage does not answer.
    """
    base = UpstreamChanges(view, table, log.uri, log.table_id, since, log.version, "nothing")
    if since is None:
        return replace(base, kind="lost", dates=None, why="nothing of it was consumed before")
    if since > log.version:
        return replace(
            base, kind="lost", dates=None, why=f"it ends before version {since}, up to which it was consumed"
        )
    try:
        return _Reader(log, since).changes(base)
    except CommitUnreadable as gone:
        why = f"commit {gone.version}, which was not consumed, is no longer in its log"
        return replace(base, kind="lost", dates=_dates_by_files(log, since), why=why)


@dataclass(frozen=True, slots=True)
class _Reader:
    log: TableLog
    since: int

    def changes(self, base: UpstreamChanges) -> UpstreamChanges:
        commits = {v: self.log.actions(v) for v in range(self.since + 1, self.log.version + 1)}
        changing = {v: found for v, actions in commits.items() if (found := row_actions(actions))}
        if not changing:
            return base
        actions = [action for found in changing.values() for action in found]
        dates = self._dates(actions)
        if why := self._schema_change(commits):
            return replace(base, kind="lost", dates=None, why=why)
        if any("remove" in action for action in actions):
            return replace(base, kind="changed", dates=dates, has_feed=self._has_feed(commits, changing))
        files = tuple(action["add"] for action in actions)
        if self._are_there(files, commits):
            return replace(base, kind="appended", dates=dates, files=files)
        return replace(base, kind="changed", dates=dates)  # compacted, and then removed by VACUUM

    def _dates(self, actions: Sequence[Mapping[str, Any]]) -> frozenset[date] | None:
        if "date" not in self.log.partition_columns:
            return None
        column = physical_name_in("date", self.log.schema)
        found = [(a.get("add") or a["remove"]).get("partitionValues", {}).get(column) for a in actions]
        return frozenset(map(date.fromisoformat, found)) if all(found) else None

    def _schema_change(self, commits: Mapping[int, Sequence[Mapping[str, Any]]]) -> str:
        if not any("metaData" in action for actions in commits.values() for action in actions):
            return ""
        before = {f["name"]: f["type"] for f in TableLog.existing(self.log.uri, self.since).schema["fields"]}
        now = {f["name"]: f["type"] for f in self.log.schema["fields"]}
        other = sorted(name for name, kind in before.items() if now.get(name) != kind)
        return f"its column {other[0]} was dropped, renamed or changed its type" if other else ""

    def _has_feed(self, commits: Mapping[int, Sequence[Mapping[str, Any]]], changing: Mapping[int, object]) -> bool:
        # On since the version consumed before: Delta writes no change files for older commits.
        before = TableLog.existing(self.log.uri, self.since)
        if before.configuration.get(CHANGE_FEED) != "true" or before.partition_columns != self.log.partition_columns:
            return False
        # Delta reads no feed over a version without it, or with columns that the newest version does not have.
        between = [action["metaData"] for actions in commits.values() for action in actions if "metaData" in action]
        return all(map(self._fits, between)) and all(self.log.has_change_files(version) for version in changing)

    def _fits(self, metadata: Mapping[str, Any]) -> bool:
        """Whether a version with this metadata can be in a feed up to the newest version."""
        now = {f["name"]: f["type"] for f in self.log.schema["fields"]}
        columns = json.loads(metadata["schemaString"])["fields"]
        return (
            metadata.get("configuration", {}).get(CHANGE_FEED) == "true"
            and metadata.get("partitionColumns", []) == self.log.partition_columns
            and all(now.get(f["name"]) == f["type"] for f in columns)
        )

    def _are_there(
        self, files: Sequence[Mapping[str, Any]], commits: Mapping[int, Sequence[Mapping[str, Any]]]
    ) -> bool:
        removed = {a["remove"]["path"] for actions in commits.values() for a in actions if "remove" in a}
        return not self.log.missing_files([f["path"] for f in files if f["path"] in removed])


def _dates_by_files(log: TableLog, since: int) -> frozenset[date] | None:
    """The dates whose files differ between two versions; ``None`` if the older one cannot be opened."""
    if "date" not in log.partition_columns:
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
    return set(zip(files.column("path").to_pylist(), files.column("partition.date").to_pylist(), strict=True))
