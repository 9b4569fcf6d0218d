"""Totals: what the drains of a stream did, added up from its ledger; only what is new is read."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from kdi_assets.ledger.entry import LedgerEntry, entry_of
from kdi_assets.ledger.log import CommitUnreadable, TableLog
from kdi_assets.ledger.marks import LogCache


@dataclass(slots=True)
class Totals:
    """Sums over ledger entries, undone ones too: a RESTORE takes rows away, and not the work that was done."""

    drains: int = 0
    conflicts: int = 0
    messages: int = 0
    rows: int = 0
    dead_letters: int = 0
    tombstones: int = 0
    filtered: int = 0
    with_unknown_fields: int = 0
    gap_offsets: int = 0
    declared_loss_offsets: int = 0
    message_bytes: int = 0
    file_bytes: int = 0
    stage_seconds: Counter[str] = field(default_factory=Counter)

    def add(self, entry: LedgerEntry) -> None:
        """Count one more ledger commit."""
        self.declared_loss_offsets += sum(r.offset_count for r in entry.declared_losses)
        self.rows += entry.rows  # replays add some too
        self.file_bytes += entry.bytes
        if entry.kind != "drain":
            return
        self.drains += 1
        self.conflicts += entry.conflicts
        self.messages += entry.messages
        self.dead_letters += entry.dead_letters
        self.tombstones += entry.tombstones
        self.filtered += entry.filtered
        self.with_unknown_fields += entry.unknown.messages
        self.gap_offsets += entry.gap_offsets
        self.message_bytes += entry.message_bytes
        self.stage_seconds.update(entry.seconds)


@dataclass(slots=True)
class _Read:
    totals: Totals = field(default_factory=Totals)
    table_id: str = ""
    through: int = -1
    whole: bool = False


class LedgerTotals:
    """The totals of many tables, since the oldest commits that their logs had when they were first read."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._cache: LogCache[_Read] = LogCache()

    def __call__(self, uri: str, app_id: str, *, until: float) -> Totals | None:
        """The totals as far as they are read.

        Args:
            until: When to leave off, by the clock; the next call goes on there.

        Returns:
            ``None`` without a table, and until a log was read to its end once: a counter may begin anywhere, but a
            step in it is work that was done just now.

        Raises:
            KdiError, CommitUnreadable: The log cannot be read; what was counted stays.
        """
        read = self._cache.current(uri)
        if read is None:
            read = self._cache.last(uri) or _Read()
            try:
                self._go_on(uri, app_id, read, until)
            finally:
                self._cache.keep(uri, read, version=read.through)
        return read.totals if read.whole else None

    def _go_on(self, uri: str, app_id: str, read: _Read, until: float) -> None:
        log = TableLog.open(uri)
        if log is None:
            return
        if log.table_id != read.table_id or log.version < read.through:
            read.table_id, read.through = log.table_id, min(log.commit_files(), default=0) - 1
        while read.through < log.version and (self._clock() < until):
            self._add(log, app_id, read, read.through + 1)
        read.whole = read.whole or read.through == log.version

    @staticmethod
    def _add(log: TableLog, app_id: str, read: _Read, version: int) -> None:
        try:
            entry = entry_of(log.commit(version).user_metadata, version, app_id)
        except CommitUnreadable as unreadable:
            if not unreadable.gone:
                raise
            entry = None  # cleaned up meanwhile
        if entry is not None:
            read.totals.add(entry)
        read.through = version
