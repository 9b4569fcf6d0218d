"""Reads new ledger entries of a table in pieces, so that a long log does not make a tick long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TypeVar

from kdi_assets.delta.errors import CommitUnreadable
from kdi_assets.delta.log import TableLog
from kdi_assets.delta.versions import LatestVersions, LogCache
from kdi_assets.errors import KdiError
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.entry_json import parse_entry

COMMITS_PER_TICK = 200
RECONCILE_SECONDS = 10.0
"""How long a tick compares tables with Dagster's events; the next one goes on."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NewEntries:
    """Ledger entries of a table, oldest first.

    Attributes:
        through: The log was read up to this version, inclusive.
        newest: The table's version.
    """

    table_id: str
    entries: tuple[LedgerEntry, ...]
    through: int
    newest: int


class Turns:
    """Which tables a tick compares with Dagster's events: as many as the time allows.

    After the loss of its cursor, a sensor of many tables would read whole logs until Dagster ends the tick, which keeps
    no cursor then.
    """

    def __init__(self) -> None:
        self._first = 0

    def take(self, tables: Sequence[T]) -> Iterator[T]:
        """The tables until the time is used up; the next call begins with those that were left out."""
        deadline, first = monotonic() + RECONCILE_SECONDS, self._first % max(1, len(tables))
        for number, table in enumerate([*tables[first:], *tables[:first]]):
            if number and monotonic() > deadline:
                return
            self._first = first + number + 1
            yield table


class TableLogs:
    """Reads many logs in pieces; opens a table only if its log has a new version."""

    def __init__(self, versions: LatestVersions) -> None:
        self._cache: LogCache[NewEntries] = LogCache(versions)

    def read_new_entries(self, uri: str, app_id: str, *, table_id: str, since: int) -> NewEntries | None:
        """As the function ``read_new_entries``; no entries if the log has no new version."""
        known = self._cache.current(uri)
        if known and known.through == since:
            return known
        new = read_new_entries(uri, app_id, table_id=table_id, since=since)
        if new:
            # Without its entries: the caller has them now.
            self._cache.keep(uri, NewEntries(new.table_id, (), new.through, new.newest), version=new.through)
        return new


def read_new_entries(uri: str, app_id: str, *, table_id: str, since: int) -> NewEntries | None:
    """Read the entries after version ``since``; from the first version if the table's id is not ``table_id``.

    Returns:
        ``None`` if there is no table or its log cannot be read; the stream's backlog has the refusal.
    """
    from deltalake.exceptions import DeltaError

    try:
        log = TableLog.open(uri)
        return None if log is None else _new_entries(log, app_id, after=since if log.table_id == table_id else -1)
    except (KdiError, DeltaError, OSError, ValueError):
        return None


def _new_entries(log: TableLog, app_id: str, *, after: int) -> NewEntries:
    entries: list[LedgerEntry] = []
    through = after
    for version in range(after + 1, min(log.version, after + COMMITS_PER_TICK) + 1):
        try:
            entry = parse_entry(log.commit(version).user_metadata, version, app_id)
        except CommitUnreadable:
            # If the commit before it can be read, the storage failed for a moment: the next tick reads it again.
            # Otherwise the log was cleaned up to here, and the entry is gone.
            if _readable(log, version - 1):
                break
            entry = None
        through = version
        if entry is not None:
            entries.append(entry)
    return NewEntries(log.table_id, tuple(entries), through, log.version)


def _readable(log: TableLog, version: int) -> bool:
    try:
        log.commit(version)
    except CommitUnreadable:
        return False
    return True
