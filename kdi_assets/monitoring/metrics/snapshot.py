"""A snapshot: everything that one scrape says of every stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import TypeVar

from kdi_assets.errors import KdiError
from kdi_assets.ledger.errors import CommitUnreadable
from kdi_assets.monitoring.backlog import Backlog, State, state_of
from kdi_assets.monitoring.backlog_reader import BacklogReader, ReadBacklogs
from kdi_assets.monitoring.metrics.totals import LedgerTotals, Totals
from kdi_assets.monitoring.table_facts import TableFacts, TableWatch
from kdi_assets.runtime.threads import begin
from kdi_assets.stream.stream import Stream

LEDGER_SECONDS = 4.0
"""How long a scrape reads in ledgers that it never read to their ends; the next one goes on."""

LATE_SECONDS = 60.0
"""How old a picture may be that came too late for who asked, and that nobody else was given."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StreamSnapshot:
    """One stream.

    Attributes:
        table: ``None`` if its log cannot be read; empty if there is no table yet.
        totals: ``None`` if there are none yet.
    """

    stream: Stream
    backlog: Backlog
    table: TableFacts | None
    totals: Totals | None

    @property
    def state(self) -> State:
        return state_of(self.stream, self.backlog)

    @property
    def up(self) -> bool:
        """Whether the topic's ends, the positions and the table's log could be read."""
        return self.table is not None and (self.backlog.known or self.stream.status == "retired")


def unseen(stream: Stream) -> StreamSnapshot:
    """A stream that could not be looked at in time."""
    nothing = Backlog(stream.name, {}, 0, None, refusal=None, open_transaction_offsets=0)
    return StreamSnapshot(stream, nothing, None, None)


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """The streams of a cluster, how long it took to look, and when it ended, by the monotonic clock."""

    streams: tuple[StreamSnapshot, ...]
    seconds: float
    ended: float


class SnapshotReader:
    """Takes pictures of the same streams for whoever asks, one at a time; remembers what cannot have changed.

    None is taken unless somebody asks. One that takes longer than anybody waits would never be given: it is the next
    one's who asks, and meanwhile another is taken. As soon as one comes in time, pictures are new again.
    """

    def __init__(
        self, streams: Sequence[Stream], lake: str, *, look: ReadBacklogs | None = None, patience_seconds: float
    ) -> None:
        import deltalake  # noqa: F401 - now: the first scrape has no time for it
        import pyarrow.compute  # noqa: F401

        self._streams, self._lake, self._patience = streams, lake, patience_seconds
        self._look: ReadBacklogs = look or BacklogReader(leader_seconds=0.0)  # the next scrape comes soon enough
        self._tables, self._totals = TableWatch(), LedgerTotals()
        self._lock = Lock()
        self._last: Future[MetricsSnapshot] | None = None

    def ask(self) -> Future[MetricsSnapshot]:
        """The picture, or the promise of one."""
        with self._lock:
            last = self._last
            if last is not None and not last.done():
                return last
            self._last = begin(self._take, name="look")
            return last if last is not None and self._came_late(last) else self._last

    def _came_late(self, answer: Future[MetricsSnapshot]) -> bool:
        if answer.exception():
            return False
        picture = answer.result()
        return picture.seconds > self._patience and time.monotonic() - picture.ended < LATE_SECONDS

    def _take(self) -> MetricsSnapshot:
        """A new picture; what cannot be read is missing of its stream alone."""
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
