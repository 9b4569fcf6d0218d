"""Totals of a stream over its ledger; only new commits are read."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from kdi_assets.delta.errors import CommitUnreadable
from kdi_assets.delta.log import TableLog
from kdi_assets.delta.versions import LatestVersions, LogCache
from kdi_assets.operate.monitoring.costs import Usage, usage_of_entry
from kdi_assets.operate.monitoring.metrics.names import DRAIN_COUNTERS, LEDGER_COUNTERS
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.entry_json import parse_entry


@dataclass(slots=True)
class Totals:
    """Sums over ledger entries; entries that a RESTORE undid count, because counters must not go back.

    Attributes:
        counts: By the name of the metric.
        usage: What costs.
    """

    counts: Counter[str] = field(default_factory=Counter)
    stage_seconds: Counter[str] = field(default_factory=Counter)
    usage: Usage = Usage()

    def add(self, entry: LedgerEntry) -> None:
        """Add a ledger commit."""
        self.usage += usage_of_entry(entry)
        counters = dict(LEDGER_COUNTERS)
        if entry.kind == "drain":
            counters |= DRAIN_COUNTERS
            self.stage_seconds.update(entry.seconds)
        self.counts.update({metric.name: count(entry) for metric, count in counters.items()})


@dataclass(slots=True)
class _Progress:
    totals: Totals = field(default_factory=Totals)
    table_id: str = ""
    through: int = -1
    whole: bool = False


class LedgerTotals:
    """The totals of many tables, from the oldest commit that a log has when it is first read."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, versions: LatestVersions | None = None) -> None:
        self._clock = clock
        self._cache: LogCache[_Progress] = LogCache(versions)

    def __call__(self, uri: str, app_id: str, *, until: float) -> Totals | None:
        """The totals of one table.

        Args:
            until: When to stop, by the clock; the next call continues.

        Returns:
            ``None`` without a table, and until the log was read to its end once: a counter may begin at any value, but
            Prometheus takes an increase for work that was done just now.

        Raises:
            KdiError, CommitUnreadable: The log cannot be read; the counts so far stay.
        """
        read = self._cache.current(uri)
        if read is None:
            read = self._cache.last(uri) or _Progress()
            try:
                self._continue(uri, app_id, read, until)
            finally:
                self._cache.keep(uri, read, version=read.through)
        return read.totals if read.whole else None

    def _continue(self, uri: str, app_id: str, read: _Progress, until: float) -> None:
        log = TableLog.open(uri)
        if log is None:
            return
        if log.table_id != read.table_id or log.version < read.through:
            read.table_id, read.through = log.table_id, min(log.commit_files(), default=0) - 1
        while read.through < log.version and self._clock() < until:
            self._add(log, app_id, read, read.through + 1)
        read.whole = read.whole or read.through == log.version

    @staticmethod
    def _add(log: TableLog, app_id: str, read: _Progress, version: int) -> None:
        try:
            entry = parse_entry(log.commit(version).user_metadata, version, app_id)
        except CommitUnreadable as unreadable:
            if not unreadable.gone:
                raise
            entry = None  # the log was cleaned up meanwhile
        if entry is not None:
            read.totals.add(entry)
        read.through = version
