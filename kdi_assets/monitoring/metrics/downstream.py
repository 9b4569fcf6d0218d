"""Samples of refined and served tables; they are read in a thread, because a database may not answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from kdi_assets.monitoring.downstream_status import DownstreamStatus, DownstreamTable, read_downstream_status
from kdi_assets.monitoring.metrics.names import DOWNSTREAM_GAUGES, DOWNSTREAM_UP, Metric
from kdi_assets.runtime.threads import start_in_thread


class DownstreamReader:
    """Reads the tables on request, one reading at a time; a late one is for the next scrape."""

    def __init__(self, tables: Sequence[DownstreamTable], lake: str, home: Path) -> None:
        self._tables, self._lake, self._home = tables, lake, home
        self._lock, self._running = Lock(), Future[list[DownstreamStatus]]()
        self._running.set_result([])
        self._last: list[DownstreamStatus] = []

    def request(self) -> Future[list[DownstreamStatus]]:
        """The reading that goes on, or a new one."""
        with self._lock:
            if self._running.done():
                self._running = start_in_thread(self._read, name="downstream")
            return self._running

    @property
    def last(self) -> list[DownstreamStatus]:
        """The last reading that ended."""
        return self._last

    def _read(self) -> list[DownstreamStatus]:
        now = datetime.now(UTC)
        self._last = [read_downstream_status(t, lake=self._lake, home=self._home, now=now) for t in self._tables]
        return self._last


def downstream_samples(
    statuses: Sequence[DownstreamStatus],
) -> Iterator[tuple[Metric, list[tuple[Sequence[str], float]]]]:
    """By metric, labels and values."""
    yield DOWNSTREAM_UP, [((s.table, s.kind), float(s.refusal is None)) for s in statuses]
    known = [s for s in statuses if s.refusal is None]
    for metric, value in DOWNSTREAM_GAUGES.items():
        yield metric, [((s.table, s.kind), found) for s in known if (found := value(s)) is not None]
