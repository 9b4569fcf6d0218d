"""An announcement: the JSON message that names the files of one table version. No I/O.

The form is documented in ``docs/files.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Literal

FORMAT = 1
"""A new field needs no new format if older readers can ignore it; any other change does."""
FORMAT_KEY = "kdi_announcement"
MOST_BYTES = 500_000
"""Of one message. Brokers take a megabyte by default; a version with more files is announced in several parts."""

AnnouncementKind = Literal["changes", "listing"]
"""``changes``: what one version added and removed; ``listing``: all files of a version, where changes are not known."""


class NotAnAnnouncement(ValueError):
    """A message is not an announcement that this release can read."""


@dataclass(frozen=True, slots=True)
class CoordinateBounds:
    """The smallest and the largest number of a topic partition and offset in a file, both inclusive."""

    partition: tuple[int, int]
    offset: tuple[int, int]


@dataclass(frozen=True, slots=True)
class AnnouncedFile:
    """One data file.

    Attributes:
        path: Absolute path or URI.
        date: Value of the partition column ``date``; ``None`` if the table has another partitioning.
        rows, offsets: From the file's statistics; ``None`` if it has none.
    """

    path: str
    date: str | None = None
    rows: int | None = None
    bytes: int | None = None
    offsets: CoordinateBounds | None = None


@dataclass(frozen=True, slots=True)
class AnnouncedRange:
    """Offsets ``[start, end)`` of a topic partition that the commit drained."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """What one message says. The names of the fields are the keys of the JSON.

    Attributes:
        table: The table's path below the lake.
        uri: Absolute path or URI of the table.
        previous_version: The version that was announced before; ``None`` in the first announcement of a table.
        sequence: Number of the announced version, from 1; all parts of a version have the same.
        part: Number of this message among the ``parts`` of its version, from 1.
        operation: Delta's name for it, e.g. ``WRITE``, ``OPTIMIZE``, ``RESTORE``.
        data_change: False if the commit only moved rows to other files.
        only_adds: True if the added files have new rows and no others: the commit added rows and removed none, or this
            is the table's first announcement.
        commit: What kind of ledger commit it is: ``drain``, ``replay``, …; empty for commits of other writers.
        attempt_id: Of the ledger commit; empty for commits of other writers.
        ranges: The offsets that the commit drained.
    """

    table: str
    table_id: str
    uri: str
    version: int
    previous_version: int | None
    sequence: int
    kind: AnnouncementKind
    part: int = 1
    parts: int = 1
    operation: str = ""
    data_change: bool = True
    only_adds: bool = True
    committed_at: datetime | None = None
    commit: str = ""
    attempt_id: str = ""
    ranges: tuple[AnnouncedRange, ...] = ()
    added: tuple[AnnouncedFile, ...] = ()
    removed: tuple[AnnouncedFile, ...] = ()

    def to_json(self) -> str:
        """The message's value."""
        fields = asdict(self)
        fields["committed_at"] = self.committed_at.isoformat() if self.committed_at else None
        return json.dumps({FORMAT_KEY: FORMAT, **fields}, separators=(",", ":"))

    def in_parts(self) -> list[Announcement]:
        """The same files in as few messages as the size allows."""
        batches = list(_batches(self.added, self.removed))
        return [
            replace(self, part=number, parts=len(batches), added=added, removed=removed)
            for number, (added, removed) in enumerate(batches, 1)
        ]


_Files = tuple[AnnouncedFile, ...]


def _batches(added: _Files, removed: _Files) -> Iterator[tuple[_Files, _Files]]:
    """Files in their order, those that were added first; each batch has at least one, unless there is none at all."""
    batch: tuple[list[AnnouncedFile], list[AnnouncedFile]] = ([], [])
    size = 0
    for place, files in enumerate((added, removed)):
        for file in files:
            length = len(json.dumps(asdict(file)))
            if size and size + length > MOST_BYTES:
                yield tuple(batch[0]), tuple(batch[1])
                batch, size = ([], []), 0
            batch[place].append(file)
            size += length
    yield tuple(batch[0]), tuple(batch[1])


def parse_announcement(value: bytes | str) -> Announcement:
    """Read a message's value.

    Raises:
        NotAnAnnouncement: It is none, or of a format that this release does not know.
    """
    try:
        written = json.loads(value)
        if not isinstance(written, dict) or FORMAT_KEY not in written:
            raise NotAnAnnouncement(f"there is no field {FORMAT_KEY}")
        if written[FORMAT_KEY] != FORMAT:
            raise NotAnAnnouncement(f"{FORMAT_KEY} is {written[FORMAT_KEY]!r}, and this release reads {FORMAT}")
        return _announcement(written)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as wrong:
        raise NotAnAnnouncement(str(wrong)) from wrong


def _announcement(written: Mapping[str, Any]) -> Announcement:
    at = written.get("committed_at")
    if written["kind"] not in ("changes", "listing"):
        raise NotAnAnnouncement(f"kind is {written['kind']!r}")
    return Announcement(
        **{name: written[name] for name in _PLAIN if name in written},
        committed_at=datetime.fromisoformat(at) if at else None,
        ranges=tuple(AnnouncedRange(**r) for r in written.get("ranges", ())),
        added=_files(written["added"]),
        removed=_files(written["removed"]),
    )


def _files(written: Sequence[Mapping[str, Any]]) -> _Files:
    return tuple(AnnouncedFile(**{**file, "offsets": _bounds(file.get("offsets"))}) for file in map(_known, written))


def _known(file: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(file["path"], str):
        raise NotAnAnnouncement("a file has no path")
    return {name: file[name] for name in ("path", "date", "rows", "bytes", "offsets") if name in file}


def _bounds(written: Mapping[str, Any] | None) -> CoordinateBounds | None:
    if written is None:
        return None
    (p, q), (a, b) = written["partition"], written["offset"]
    return CoordinateBounds((int(p), int(q)), (int(a), int(b)))


_PLAIN = (
    *("table", "table_id", "uri", "version", "previous_version", "sequence", "kind", "part", "parts"),
    *("operation", "data_change", "only_adds", "commit", "attempt_id"),
)
