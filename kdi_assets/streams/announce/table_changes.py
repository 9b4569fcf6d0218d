"""What versions of a table added and removed, as announcements, from its log; no JVM."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from urllib.parse import unquote

from kdi_assets.delta.log import CommitInfo, TableLog
from kdi_assets.delta.storage import storage_uri
from kdi_assets.documents.model.announcement import AnnouncedFile, AnnouncedRange, Announcement, CoordinateBounds
from kdi_assets.documents.model.stream import Stream
from kdi_assets.streams.announce.errors import AnnouncedByAnotherTable, FilesAreNotRows
from kdi_assets.streams.ledger.entry_json import parse_entry

FEATURES = ("deletionVectors", "columnMapping")
"""With one of these, a Parquet file alone is not what the table says it is."""


@dataclass(frozen=True, slots=True)
class LastAnnounced:
    """The last announced version of a table.

    Attributes:
        version: The log was announced up to this version, inclusive.
        announced: The newest version among these that changed files.
        sequence: How many versions were announced so far.
    """

    table_id: str
    uri: str
    version: int
    announced: int
    sequence: int


def announced_version(last: LastAnnounced | None, table_id: str) -> int | None:
    """Up to which version a table is announced, inclusive; ``None``: nothing of this table is."""
    return last.version if last and last.table_id == table_id else None


@dataclass(frozen=True, slots=True)
class TableChanges:
    """The log of a stream's table, read for announcements."""

    stream: Stream
    log: TableLog

    @property
    def uri(self) -> str:
        """The table's address as announcements give it."""
        return storage_uri(self.log.uri)

    def refuse(self, last: LastAnnounced | None, topic: str) -> None:
        """Refuse to announce the table.

        Raises:
            AnnouncedByAnotherTable, FilesAreNotRows: Someone must decide.
        """
        if last and last.table_id != self.log.table_id and last.uri != self.uri:
            raise AnnouncedByAnotherTable(stream=self.stream.name, topic=topic, uri=self.uri, other_uri=last.uri)
        if found := self.log.features.intersection(FEATURES):
            raise FilesAreNotRows(stream=self.stream.name, uri=self.uri, feature=min(found))

    def why_listing(self, last: LastAnnounced | None) -> str:
        """Why changes since the last announced version are not known; empty if they are."""
        if last is None:
            return "nothing was announced before"
        if last.table_id != self.log.table_id:
            return f"the table was replaced by table {self.log.table_id}"
        if last.version > self.log.version:
            return f"version {last.version} was announced, and the table is at version {self.log.version}"
        return ""

    def listing(self, last: LastAnnounced | None) -> Announcement:
        """All files of the table's version."""
        return Announcement(
            table=self.stream.name,
            table_id=self.log.table_id,
            uri=self.uri,
            version=self.log.version,
            previous_version=last.announced if last else None,
            sequence=(last.sequence if last else 0) + 1,
            kind="listing",
            only_adds=last is None,
            added=tuple(self._file_of_row(row) for row in self.log.data_files.to_pylist()),
        )

    def since(self, last: LastAnnounced) -> Iterator[tuple[int, Announcement | None]]:
        """Each version after the last announced one, the oldest first, with its announcement if it changed files.

        Raises:
            CommitUnreadable: The log no longer has a version.
        """
        announced, sequence = last.announced, last.sequence
        for version in range(last.version + 1, self.log.version + 1):
            found = self._changes(version, previous=announced, sequence=sequence + 1)
            yield version, found
            if found:
                announced, sequence = version, sequence + 1

    def _changes(self, version: int, *, previous: int, sequence: int) -> Announcement | None:
        actions = self.log.actions(version)
        added = [a["add"] for a in actions if "add" in a]
        removed = [a["remove"] for a in actions if "remove" in a]
        if not added and not removed:
            return None
        info = CommitInfo.from_actions(version, actions)
        entry = parse_entry(info.user_metadata, version, self.stream.app_id)
        ranges = [r.range for r in entry.ranges] if entry else []
        data_change = any(action.get("dataChange", True) for action in (*added, *removed))
        return Announcement(
            table=self.stream.name,
            table_id=self.log.table_id,
            uri=self.uri,
            version=version,
            previous_version=previous,
            sequence=sequence,
            kind="changes",
            operation=info.operation,
            data_change=data_change,
            only_adds=data_change and not removed and not info.is_restore,
            committed_at=info.committed_at,
            commit=entry.kind if entry else "",
            attempt_id=entry.attempt_id if entry else "",
            ranges=tuple(AnnouncedRange(*r.topic_partition, r.start, r.end) for r in ranges),
            added=tuple(map(self._file, added)),
            removed=tuple(map(self._file, removed)),
        )

    def _file(self, action: Mapping[str, Any]) -> AnnouncedFile:
        """The file of an action ``add`` or ``remove``.

        Source: Delta protocol, "Add File and Remove File": paths are percent-encoded, relative or absolute.
        """
        stats = json.loads(action.get("stats") or "{}")
        low, high = (
            _at(stats.get(bound) or {}, self.stream.coordinates.split(".")) for bound in ("minValues", "maxValues")
        )
        return AnnouncedFile(
            path=self._absolute(unquote(action["path"])),
            date=(action.get("partitionValues") or {}).get("date"),
            rows=stats.get("numRecords"),
            bytes=action.get("size"),
            offsets=_bounds(low, high),
        )

    def _file_of_row(self, row: Mapping[str, Any]) -> AnnouncedFile:
        """The file of a row of ``TableLog.data_files``."""
        low, high = (
            {name: row.get(f"{bound}.{self.stream.coordinates}.{name}") for name in ("partition", "offset")}
            for bound in ("min", "max")
        )
        return AnnouncedFile(
            path=self._absolute(unquote(row["path"])),
            date=_text_of_date(row.get("partition.date")),
            rows=row.get("num_records"),
            bytes=row.get("size_bytes"),
            offsets=_bounds(low, high),
        )

    def _absolute(self, path: str) -> str:
        return storage_uri(path) if "://" in path or path.startswith("/") else f"{self.uri}/{path}"


def _at(values: Mapping[str, Any], steps: list[str]) -> Mapping[str, Any]:
    for step in steps:
        found = values.get(step)
        values = found if isinstance(found, dict) else {}
    return values


def _bounds(low: Mapping[str, Any], high: Mapping[str, Any]) -> CoordinateBounds | None:
    bounds = [of.get(name) for name in ("partition", "offset") for of in (low, high)]
    if None in bounds:
        return None
    first, last, start, end = (int(str(bound)) for bound in bounds)
    return CoordinateBounds((first, last), (start, end))


def _text_of_date(value: date | datetime | str | None) -> str | None:
    return value if value is None or isinstance(value, str) else value.isoformat()
