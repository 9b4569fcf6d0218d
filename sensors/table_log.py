"""A piece of a table's log at a time: bounded work for a tick, also when the cursor is lost and the log is long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic

from kdi_assets.errors import KdiError
from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.ledger.entry import LedgerEntry, entry_of
from kdi_assets.ledger.errors import CommitUnreadable
from kdi_assets.ledger.latest_version import LogCache
from kdi_assets.stream.stream import Stream

COMMITS_PER_TICK = 200


@dataclass(frozen=True, slots=True)
class NewEntries:
    """Ledger entries of a table, oldest first, and the version up to which the log was read for them, inclusive."""

    table_id: str
    entries: tuple[LedgerEntry, ...]
    through: int


class TableLogs:
    """Reads on in many logs; opens a table only if its log has moved on."""

    def __init__(self) -> None:
        self._cache: LogCache[NewEntries] = LogCache()
        self._first = 0

    def in_turn(self, streams: Sequence[Stream], *, seconds: float) -> Iterator[Stream]:
        """The streams, until the time is used up; the next time begins with those that had no turn."""
        until, first = monotonic() + seconds, self._first % max(1, len(streams))
        for number, stream in enumerate([*streams[first:], *streams[:first]]):
            if number and monotonic() > until:
                return
            self._first = first + number + 1
            yield stream

    def read_piece(self, uri: str, app_id: str, *, table_id: str, since: int) -> NewEntries | None:
        """As ``read_piece`` below; of a log that has not moved, an empty piece."""
        known = self._cache.current(uri)
        if known and known.through == since:
            return known
        piece = read_piece(uri, app_id, table_id=table_id, since=since)
        if piece:
            # Without its entries: who asks again has had them.
            self._cache.keep(uri, NewEntries(piece.table_id, (), piece.through), version=piece.through)
        return piece


def read_piece(uri: str, app_id: str, *, table_id: str, since: int) -> NewEntries | None:
    """Read on behind ``since``; from the beginning if the table is another one than ``table_id``.

    Returns:
        ``None`` if there is no table or its log cannot be read; what is wrong, the look at the stream says.
    """
    from deltalake.exceptions import DeltaError

    try:
        log = TableLog.open(uri)
        return None if log is None else _piece(log, app_id, after=since if log.table_id == table_id else -1)
    except (KdiError, DeltaError, OSError, ValueError):
        return None


def _piece(log: TableLog, app_id: str, *, after: int) -> NewEntries:
    entries: list[LedgerEntry] = []
    through = after
    for version in range(after + 1, min(log.version, after + COMMITS_PER_TICK) + 1):
        try:
            entry = entry_of(log.commit(version).user_metadata, version, app_id)
        except CommitUnreadable:
            # Behind a commit that is there it is a hiccup of the storage, and read again at the next tick; otherwise
            # the log was cleaned up to here, and the entry went with it.
            if _readable(log, version - 1):
                break
            entry = None
        through = version
        if entry is not None:
            entries.append(entry)
    return NewEntries(log.table_id, tuple(entries), through)


def _readable(log: TableLog, version: int) -> bool:
    try:
        log.commit(version)
    except CommitUnreadable:
        return False
    return True
