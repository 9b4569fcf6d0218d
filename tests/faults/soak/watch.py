"""Who watches the tables from outside: when each version could be read, and what every stream still waits for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kdi_assets.ledger.entry import entry_of
from kdi_assets.ledger.log import CommitUnreadable, TableLog
from kdi_assets.ledger.marks import LogMarks
from kdi_assets.stream import OffsetRange, Stream
from tests.kafka_log import Produced

LOOKS_A_SECOND = 10


@dataclass(frozen=True, slots=True)
class Landed:
    """A drain's commit, and when it was first seen; a tenth of a second late at most."""

    seen_at: datetime
    ranges: tuple[OffsetRange, ...]


class Watch:
    """Looks at the ends of the tables' logs from a thread of its own."""

    def __init__(self, streams: Sequence[Stream], lake: str) -> None:
        self.landed: list[Landed] = []
        self._streams, self._lake = streams, lake
        self._marks = LogMarks()
        self._settled: set[str] = set()
        self._versions = dict.fromkeys((s.name for s in streams), -1)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)

    def latencies(self, produced: Sequence[Produced], *, since: datetime) -> list[float]:
        """Seconds from a message's timestamp until a reader could see it, in order; of messages from ``since`` on."""
        visible = {
            (r.topic_partition, offset): landed.seen_at
            for landed in self.landed
            for r in landed.ranges
            for offset in range(r.start, r.end)
        }
        fresh = [m for m in produced if m.timestamp >= since and (m.topic_partition, m.offset) in visible]
        return sorted((visible[m.topic_partition, m.offset] - m.timestamp).total_seconds() for m in fresh)

    def drained(self) -> dict[str, int]:
        """Offsets drained so far, by topic."""
        found: dict[str, int] = {}
        for landed in list(self.landed):
            for r in landed.ranges:
                found[r.topic_partition.topic] = found.get(r.topic_partition.topic, 0) + r.offset_count
        return found

    def settled(self) -> int:
        """How many of the streams have a table whose positions are committed."""
        return len(self._settled)

    def _run(self) -> None:
        while not self._stopping.wait(1 / LOOKS_A_SECOND):
            for stream in self._streams:
                self._look(stream)

    def _look(self, stream: Stream) -> None:
        uri, known = stream.table_uri(self._lake), self._versions[stream.name]
        mark = self._marks.of(uri, since=max(known, 0))
        if mark is None or mark.version == known:
            return
        now, log = datetime.now(UTC), TableLog.open(uri)
        for version in range(known + 1, mark.version + 1) if log else ():
            try:
                entry = entry_of(log.commit(version).user_metadata, version, stream.app_id) if log else None
            except CommitUnreadable:
                return  # it is being written: at the next look
            self._versions[stream.name] = version
            if entry is not None:
                self._settled.add(stream.name)
            if entry is not None and entry.ranges:
                self.landed.append(Landed(now, tuple(r.range for r in entry.ranges)))


def quantile(ordered: Sequence[float], share: float) -> float:
    """Of sorted values."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def wait_for(condition: Callable[[], bool], *, seconds: float, what: str) -> float:
    """Wait for what other processes do; how long it took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise AssertionError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.1)
    return time.monotonic() - began
