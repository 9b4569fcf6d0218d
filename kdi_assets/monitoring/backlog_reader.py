"""Reads the backlogs of many streams at once, without a JVM. An error of one stream does not affect the others."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import groupby
from typing import NamedTuple, Protocol

from kdi_assets.delta.versions import LatestVersions
from kdi_assets.drain.snapshot import Snapshot, take_snapshot, truncation
from kdi_assets.errors import KdiError
from kdi_assets.ledger.entry import LastRead
from kdi_assets.monitoring.backlog import Backlog as Backlog
from kdi_assets.monitoring.backlog import PartitionBacklog as PartitionBacklog
from kdi_assets.monitoring.backlog import status_word
from kdi_assets.monitoring.ledger_cache import LedgerCache, RecentCommits
from kdi_assets.runtime.threads import start_in_thread
from kdi_assets.sources.of_stream import source_of
from kdi_assets.sources.source import LEADER_SECONDS, AtPosition, BrokerOffsets, Retention, Source, TopicState, Waiting
from kdi_assets.stream.stream import Stream, TopicPartition

TIMES_SECONDS = 3.0
"""How long a reader waits for the next messages; topic partitions that answer in time get theirs."""
ASK_AGAIN_SECONDS = 30.0
"""When a topic partition that did not answer is asked again, so that not every read waits for it."""
BATCH_BYTES = 70
"""What a broker stores beside key and value of a message in a batch of its own. The estimated size of uncompressed
messages with this is, apart from headers, at least the stored size, so a loss never comes earlier than predicted."""
LOOKS_AT_ONCE = 16
"""Tables on object storage that are looked at side by side."""
RETENTION_SECONDS = 300.0
"""How long a topic's retention is cached."""


class ReadBacklogs(Protocol):
    """A ``BacklogReader``; tests about the use of backlogs pass a fake."""

    def __call__(self, streams: Sequence[Stream], *, lake: str) -> Sequence[Backlog]: ...


def by_cluster(streams: Iterable[Stream]) -> dict[str, tuple[Stream, ...]]:
    """The streams of each cluster, by its name: one that does not answer delays only its own streams."""
    ordered = sorted(streams, key=lambda s: (s.cluster.name, s.name))
    return {cluster: tuple(own) for cluster, own in groupby(ordered, key=lambda s: s.cluster.name)}


def read_backlog(stream: Stream, lake: str) -> Backlog:
    """The backlog of one stream; errors are in its ``refusal``."""
    return read_backlogs([stream], lake=lake)[0]


def read_backlogs(streams: Sequence[Stream], *, lake: str) -> list[Backlog]:
    """The backlogs of many streams, in their order, with one batch of requests to each cluster."""
    return BacklogReader()(streams, lake=lake)


class BacklogReader:
    """Reads backlogs repeatedly, and asks only for what can have changed.

    Caches ledgers until their tables have newer versions, the time of the next message until the position moves, and
    retention for some minutes. On object storage an idle table is looked at once a minute. The cache may be lost at any
    moment: drains do not use it.
    """

    def __init__(
        self,
        *,
        leader_seconds: float = LEADER_SECONDS,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        versions: LatestVersions | None = None,
    ) -> None:
        self._clock = clock
        self._leader_seconds = leader_seconds
        self._ledgers = LedgerCache(versions)
        self._next: dict[_Place, _NextMessage] = {}
        self._retention: dict[tuple[str, str], tuple[float, Retention | None]] = {}

    def __call__(self, streams: Sequence[Stream], *, lake: str) -> list[Backlog]:
        """The backlogs of the streams, in their order."""
        topics: dict[str, set[str]] = defaultdict(set)
        sources = {s.cluster.name: source_of(s) for s in streams}
        for stream in streams:
            if stream.status != "retired":  # its topic may be gone
                topics[stream.cluster.name].add(stream.topic)
        states = {name: self._topics(sources[name], wanted) for name, wanted in topics.items()}
        seen = self._looks(streams, lake, states)
        for name, source in sources.items():
            waiting = [s for s in seen if s.stream.cluster.name == name and s.waiting]
            self._read_next_messages(name, source, waiting)
            self._read_retention(name, source, {s.stream.topic for s in waiting})
        now = self._clock()
        return [self._backlog(s, now) for s in seen]

    def _looks(
        self, streams: Sequence[Stream], lake: str, states: Mapping[str, Mapping[str, TopicState | KdiError]]
    ) -> list[_StreamNow]:
        """A look at each stream; several at once if the tables are not on this machine, where a look mostly waits."""

        def look(some: Sequence[Stream]) -> list[_StreamNow]:
            return [self._look(s, lake, states.get(s.cluster.name, {}).get(s.topic)) for s in some]

        if "://" not in lake:
            return look(streams)
        lanes = [partial(look, streams[lane::LOOKS_AT_ONCE]) for lane in range(min(LOOKS_AT_ONCE, len(streams)))]
        running = [start_in_thread(lane, name="backlogs") for lane in lanes]
        found = {seen.stream.name: seen for lane in running for seen in lane.result()}
        return [found[stream.name] for stream in streams]

    def _look(self, stream: Stream, lake: str, topic: TopicState | KdiError | None) -> _StreamNow:
        if not isinstance(topic, TopicState) or stream.status == "retired":
            return _StreamNow(stream, refusal=topic if isinstance(topic, KdiError) else None)
        snapshot, refusal, needs_renewal = None, None, False
        try:
            snapshot = take_snapshot(stream, lake, topic, ledger=self._ledgers)
            snapshot.plan(stream)  # raises what a drain would raise
            if topic.as_of:
                snapshot, needs_renewal = self._with_first_messages(stream, snapshot)
        except KdiError as error:
            refusal = error
        seen = _StreamNow(stream, snapshot.topic if snapshot else topic, snapshot, refusal, needs_renewal)
        self._ledgers.set_idle(stream, lake, topic, idle=seen.is_idle)
        return replace(seen, recent=self._ledgers.recent(stream, lake)) if seen.waiting else seen

    def _with_first_messages(self, stream: Stream, snapshot: Snapshot) -> tuple[Snapshot, bool]:
        """The snapshot of a source that knows no offsets, with one after each position that a message follows.

        Returns:
            It, and whether a drain has bookmarks to renew.
        """
        if snapshot.ledger is None or snapshot.position_commit:
            return snapshot, False
        positions, cluster = snapshot.positions(), stream.cluster.name
        places = {tp: _Place(cluster, tp, at, None, stream.name) for tp, at in positions.items()}
        waiting = {tp for tp, place in places.items() if place in self._next}
        found = Waiting()
        if not waiting:  # while one waits, the source is not asked again: all calls of a shard share one limit
            found = source_of(stream).waiting(snapshot.topic, snapshot.ledger)
            first_at = found.first_at.items()
            self._next |= {places[tp]: _NextMessage(AtPosition(next_at=at), math.inf) for tp, at in first_at}
            waiting = set(found.first_at)
        ends = {tp: at + (tp in waiting) for tp, at in positions.items()}
        known = {tp: BrokerOffsets(at, ends[tp], ends[tp]) for tp, at in positions.items()}
        return replace(snapshot, topic=replace(snapshot.topic, partitions=known)), found.needs_renewal

    def _read_next_messages(self, cluster: str, source: Source, waiting: Collection[_StreamNow]) -> None:
        """Read the next message of each topic partition with a backlog; once for each position."""
        now = time.monotonic()
        places = {place for s in waiting for place in s.places.values()}
        self._next = {place: n for place, n in self._next.items() if place.cluster != cluster or place in places}
        unknown = {place for place in places if place not in self._next or self._next[place].ask_again < now}
        while unknown:
            # Streams of one topic have different positions, and a client reads a topic partition from one offset.
            turn = {place.topic_partition: place for place in unknown}
            found: Mapping[TopicPartition, AtPosition] = {}
            with suppress(KdiError):
                positions = {tp: place.position for tp, place in turn.items()}
                before = {tp: place.before for tp, place in turn.items() if place.before is not None}
                found = source.around(positions, before=before, seconds=TIMES_SECONDS)
            for tp, place in turn.items():
                message = found.get(tp, AtPosition())
                self._next[place] = _NextMessage(message, math.inf if message.next_at else now + ASK_AGAIN_SECONDS)
            unknown -= set(turn.values())

    def _topics(self, source: Source, topics: Collection[str]) -> Mapping[str, TopicState | KdiError]:
        try:
            return source.topics(topics, leader_seconds=self._leader_seconds)
        except KdiError as unreachable:
            return dict.fromkeys(topics, unreachable)

    def _read_retention(self, cluster: str, source: Source, topics: Collection[str]) -> None:
        now = time.monotonic()
        stale = [t for t in topics if self._retention.get((cluster, t), (-math.inf, None))[0] < now]
        with suppress(KdiError):
            found = source.retention(stale)
            self._retention |= {(cluster, t): (now + RETENTION_SECONDS, found.get(t)) for t in stale}

    def _backlog(self, seen: _StreamNow, now: datetime) -> Backlog:
        stream, held = seen.stream, seen.topic.partitions if seen.topic else {}
        recent, patience = seen.recent, stream.patience_seconds(now)
        # Of a source that knows no offsets, one stands for all that wait: their number and size are unknown.
        counts = seen.topic is None or seen.topic.as_of is None
        size = recent.bytes_per_offset if counts else None
        _, retention = self._retention.get((stream.cluster.name, stream.topic), (0.0, None))
        found = {tp: self._next[place].message for tp, place in seen.places.items() if place in self._next}
        positions = seen.snapshot.positions() if seen.snapshot else {}
        partitions = {}
        for tp, offsets in held.items():
            next_at = found.get(tp, AtPosition()).next_at
            found_here = _partition(tp, offsets, positions.get(tp), next_at, recent, retention, patience, now)
            partitions[tp] = found_here if counts else replace(found_here, arrival_rate=None)
        waiting = sum(b.offsets for b in partitions.values())
        return Backlog(
            stream=stream.name,
            topic_partitions=partitions,
            offsets=waiting,
            lag_seconds=max((b.lag_seconds for b in partitions.values() if b.lag_seconds is not None), default=None),
            refusal=seen.refusal or truncation(stream, seen.last_read, found),
            needs_position_commit=seen.needs_position_commit,
            open_transaction_offsets=sum(b.open_transaction_offsets for b in partitions.values()),
            bytes=None if size is None else round(waiting * size),
            pace=recent.pace,
        )


class _Place(NamedTuple):
    """Where the next message is read from, and the last message that was drained before it.

    Attributes:
        stream: Its name, if the source knows no offsets: then the position is a number of this table's own reading, and
            another table of the topic has another message there. Else empty: tables of one topic share places.
    """

    cluster: str
    topic_partition: TopicPartition
    position: int
    before: LastRead | None
    stream: str = ""


@dataclass(frozen=True, slots=True)
class _NextMessage:
    """The messages around a position; and when to read them again, by the monotonic clock."""

    message: AtPosition
    ask_again: float


@dataclass(frozen=True)
class _StreamNow:
    stream: Stream
    topic: TopicState | None = None
    snapshot: Snapshot | None = None
    refusal: KdiError | None = None
    needs_renewal: bool = False
    recent: RecentCommits = RecentCommits()

    @property
    def needs_position_commit(self) -> bool:
        return self.needs_renewal or (self.snapshot is not None and self.snapshot.position_commit is not None)

    @property
    def is_idle(self) -> bool:
        """Whether a drain has nothing to do, and nothing to refuse."""
        settled = self.snapshot and self.refusal is None and self.snapshot.position_commit is None
        return bool(settled) and not self.waiting

    @cached_property
    def waiting(self) -> dict[TopicPartition, int]:
        return self.snapshot.next_offsets() if self.snapshot else {}

    @cached_property
    def last_read(self) -> dict[TopicPartition, LastRead]:
        return self.snapshot.last_read() if self.snapshot and self.refusal is None else {}

    @cached_property
    def places(self) -> dict[TopicPartition, _Place]:
        cluster, before = self.stream.cluster.name, self.last_read
        own = self.stream.name if self.topic and self.topic.as_of else ""
        return {tp: _Place(cluster, tp, position, before.get(tp), own) for tp, position in self.waiting.items()}


def _partition(
    tp: TopicPartition,
    offsets: BrokerOffsets,
    position: int | None,
    next_at: datetime | None,
    recent: RecentCommits,
    retention: Retention | None,
    patience_seconds: float | None,
    now: datetime,
) -> PartitionBacklog:
    size = recent.bytes_per_offset
    stored_bytes = None if size is None else size + BATCH_BYTES
    backlog = 0 if position is None else max(0, offsets.end - position)
    lag = None if next_at is None or not backlog else max(0.0, (now - next_at).total_seconds())
    rate = backlog / max(lag, 1.0) if lag is not None else None
    waited = lag if lag is None or recent.last_at is None else min(lag, (now - recent.last_at).total_seconds())
    window, word = recent.window.get(tp, ()), None
    if position is not None:
        word = status_word(
            window, position=position, end=offsets.end, waiting_seconds=waited, patience_seconds=patience_seconds
        )
    return PartitionBacklog(
        position=position,
        end=offsets.end,
        earliest=offsets.earliest,
        open_transaction_offsets=max(0, offsets.high_watermark - offsets.end),
        next_at=next_at if backlog else None,
        lag_seconds=lag,
        arrival_rate=rate,
        time_to_loss_seconds=time_to_loss(backlog, lag, rate, retention, stored_bytes=stored_bytes),
        word=word,
    )


def time_to_loss(
    backlog: int,
    lag: float | None,
    rate: float | None,
    retention: Retention | None,
    *,
    stored_bytes: float | None,
) -> float | None:
    """Seconds until the brokers may delete the next message, by age or by size; ``None`` without one, or if unknown.

    Args:
        backlog: Offsets from that message on.
        lag: Its age in seconds.
        rate: Offsets that arrive in a second.
        stored_bytes: The size of an offset at the broker.
    """
    if retention is None or not backlog:
        return None
    by_age: float | None = math.inf
    if retention.seconds is not None:
        by_age = None if lag is None else max(0.0, retention.seconds - lag)
    by_size: float | None = math.inf
    if retention.bytes is not None:
        by_size = max(0.0, retention.bytes / stored_bytes - backlog) / rate if stored_bytes and rate else None
    known = [left for left in (by_age, by_size) if left is not None]
    sooner = min(known, default=None)
    return None if sooner == math.inf and len(known) < 2 else sooner  # one limit may be unknown
