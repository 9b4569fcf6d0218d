"""Samples of tables that follow others; they are read in a thread, because a database may not answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from time import monotonic

from kdi_assets.operate.monitoring.follower_rows import FollowedTable, FollowerRow, kind_of, read_follower_rows
from kdi_assets.operate.monitoring.metrics.names import DOWNSTREAM_GAUGES, DOWNSTREAM_UP, Metric
from kdi_assets.runtime.threads import start_in_thread

HANGS_SECONDS = 300.0
"""A reading that takes longer may never end, and the last one is too old to show."""


class DownstreamReader:
    """Reads the tables on request, one reading at a time; a late one is for the next scrape."""

    def __init__(self, tables: Sequence[FollowedTable], lake: str, home: Path) -> None:
        self.tables, self._lake, self._home = tables, lake, home
        self._lock, self._running = Lock(), Future[list[FollowerRow]]()
        self._running.set_result([])
        self._last: list[FollowerRow] = []
        self._began = 0.0

    def request(self) -> Future[list[FollowerRow]]:
        """The reading that goes on, or a new one."""
        with self._lock:
            if self._running.done():
                self._began = monotonic()
                self._running = start_in_thread(self._read, name="downstream")
            return self._running

    @property
    def last(self) -> list[FollowerRow]:
        """The last reading that ended; empty if it failed, or if the one that goes on hangs."""
        hangs = not self._running.done() and monotonic() - self._began > HANGS_SECONDS
        return [] if hangs else self._last

    def _read(self) -> list[FollowerRow]:
        now = datetime.now(UTC)
        try:
            self._last = read_follower_rows(self.tables, lake=self._lake, home=self._home, now=now)
        except BaseException:
            self._last = []  # nothing is known: old values would look like new ones
            raise
        return self._last


def downstream_samples(
    tables: Sequence[FollowedTable], rows: Sequence[FollowerRow]
) -> Iterator[tuple[Metric, list[tuple[Sequence[str], float]]]]:
    """By metric, labels and values; a table without a row is not up, one that has not begun is."""
    known = [row for row in rows if row.refusal is None or row.has_not_begun]
    up = {(row.name, str(row.kind)) for row in known}
    each = [(table.name, str(kind_of(table))) for table in tables]
    yield DOWNSTREAM_UP, [(labels, float(labels in up)) for labels in each]
    for metric, value in DOWNSTREAM_GAUGES.items():
        yield metric, [((row.name, row.kind), found) for row in known if (found := value(row)) is not None]
