"""A snapshot: all facts about the streams of one cluster for one scrape."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import TypeVar

from kdi_assets.delta.errors import CommitUnreadable
from kdi_assets.delta.versions import LatestVersions
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.operate.monitoring.backlog import Backlog
from kdi_assets.operate.monitoring.backlog_reader import BacklogReader, ReadBacklogs
from kdi_assets.operate.monitoring.metrics.totals import LedgerTotals, Totals
from kdi_assets.operate.monitoring.stream_row import StreamRow
from kdi_assets.operate.monitoring.table_facts import TableWatch
from kdi_assets.runtime.threads import start_in_thread

PATIENCE_SECONDS = 8.0
"""How long a scrape waits for a snapshot; Prometheus waits ten seconds for a scrape by default."""

LEDGER_SECONDS = 4.0
"""How long a scrape reads ledgers that were never read to their ends; the next scrape continues."""

LATE_SECONDS = 60.0
"""How old a late snapshot may be that no scrape has received yet."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StreamSnapshot(StreamRow):
    """The facts about one stream.

    Attributes:
        totals: ``None`` if they are not known yet.
    """

    totals: Totals | None

    @property
    def up(self) -> bool:
        """Whether the topic's ends, the positions and the table's log could be read."""
        return self.table is not None and (self.backlog.known or self.stream.status == "retired")


def unknown_snapshot(stream: Stream) -> StreamSnapshot:
    """The snapshot of a stream whose cluster did not answer in time."""
    nothing = Backlog(stream.name, {}, 0, None, refusal=None, open_transaction_offsets=0)
    return StreamSnapshot(stream, nothing, None, None)


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """The streams of a cluster; how long the snapshot took, and when it ended by the monotonic clock."""

    streams: tuple[StreamSnapshot, ...]
    seconds: float
    ended: float


class SnapshotReader:
    """Takes snapshots of the same streams, one at a time, and only on request; caches what cannot have changed.

    A snapshot that takes longer than a scrape waits goes to the next scrape, while another one is taken. As soon as
    one is in time again, scrapes get new snapshots.
    """

    def __init__(self, streams: Sequence[Stream], lake: str, *, look: ReadBacklogs | None = None) -> None:
        import deltalake  # noqa: F401 - now: the first scrape has no time for it
        import pyarrow.compute  # noqa: F401

        self._streams, self._lake = streams, lake
        versions = LatestVersions()
        # No wait for a leader election: the next scrape comes soon enough.
        self._look: ReadBacklogs = look or BacklogReader(leader_seconds=0.0, versions=versions)
        self._tables, self._totals = TableWatch(versions=versions), LedgerTotals(versions=versions)
        self._lock = Lock()
        self._last: Future[MetricsSnapshot] | None = None

    def request(self) -> Future[MetricsSnapshot]:
        """The snapshot that is being taken, a late one that nobody received, or a new one."""
        with self._lock:
            last = self._last
            if last is not None and not last.done():
                return last
            self._last = start_in_thread(self._take, name="look")
            return last if last is not None and self._came_late(last) else self._last

    def _came_late(self, done: Future[MetricsSnapshot]) -> bool:
        if done.exception():
            return False
        snapshot = done.result()
        return snapshot.seconds > PATIENCE_SECONDS and time.monotonic() - snapshot.ended < LATE_SECONDS

    def _take(self) -> MetricsSnapshot:
        """A new snapshot; an unreadable fact is missing for its stream alone."""
        began, now = time.monotonic(), datetime.now(UTC)
        backlogs = self._look(self._streams, lake=self._lake)
        tables = [_or_none(partial(self._tables, s, self._lake, now=now)) for s in self._streams]
        until = time.monotonic() + LEDGER_SECONDS
        totals = [_or_none(partial(self._totals_of, s, until)) for s in self._streams]
        streams, ended = tuple(map(StreamSnapshot, self._streams, backlogs, tables, totals)), time.monotonic()
        return MetricsSnapshot(streams, ended - began, ended)

    def _totals_of(self, stream: Stream, until: float) -> Totals | None:
        return self._totals(stream.table_uri(self._lake), stream.app_id, until=until)


def _or_none(read: Callable[[], T]) -> T | None:
    from deltalake.exceptions import DeltaError

    try:
        return read()
    except (KdiError, CommitUnreadable, DeltaError, OSError):
        return None
