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
from typing import NamedTuple, Protocol, TypeVar

from kdi_assets.delta.versions import LatestVersions
from kdi_assets.documents.model.stream import Stream, TopicPartition
from kdi_assets.errors import KdiError
from kdi_assets.messages.of_stream import source_of
from kdi_assets.messages.source import LEADER_SECONDS, Source
from kdi_assets.messages.topic_state import AtPosition, LastRead, Retention, TopicState, Waiting
from kdi_assets.operate.monitoring.backlog import Backlog as Backlog
from kdi_assets.operate.monitoring.backlog import PartitionBacklog as PartitionBacklog
from kdi_assets.operate.monitoring.ledger_cache import LedgerCache, RecentCommits
from kdi_assets.operate.monitoring.partition_backlog import partition_backlog
from kdi_assets.operate.monitoring.watches import Watched, Watches
from kdi_assets.runtime.threads import start_in_thread
from kdi_assets.streams.drain.snapshot import Snapshot, take_snapshot, truncation
from kdi_assets.streams.ledger.positions import LedgerState

TIMES_SECONDS = 3.0
"""How long a reader waits for the next messages; topic partitions that answer in time get theirs."""
ASK_AGAIN_SECONDS = 30.0
"""When a topic partition that did not answer is asked again, so that not every read waits for it."""
LOOKS_AT_ONCE = 16
"""Tables on object storage that are looked at side by side."""
RETENTION_SECONDS = 300.0
"""How long a topic's retention is cached."""

T = TypeVar("T")
Seen = TypeVar("Seen")
_States = Mapping[str, Mapping[str, TopicState | KdiError]]
"""Of the topics, by connection and name."""


class ReadBacklogs(Protocol):
    """A ``BacklogReader``; tests about the use of backlogs pass a fake."""

    def __call__(self, streams: Sequence[Stream], *, lake: str) -> Sequence[Backlog]: ...


class StillIdle(Protocol):
    """As ``BacklogReader.still_idle``."""

    def __call__(self, streams: Sequence[Stream], *, lake: str) -> bool: ...


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

    Caches ledgers until their tables have newer versions, the backlog of an idle stream until its topic or its table
    moves, the time of the next message until the position moves, and retention for some minutes. On object storage an
    idle table is looked at once a minute. The cache may be lost at any moment: drains do not use it.
    """

    def __init__(
        self,
        *,
        leader_seconds: float = LEADER_SECONDS,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        versions: LatestVersions | None = None,
    ) -> None:
        self._clock = clock
        self._watches = Watches(leader_seconds)
        self._ledgers = LedgerCache(versions)
        self._refused: dict[str, str] = {}
        self._idle: dict[str, _StreamNow] = {}
        self._next: dict[_Place, _NextMessage] = {}
        self._retention: dict[tuple[str, str], tuple[float, Retention | None]] = {}

    def __call__(self, streams: Sequence[Stream], *, lake: str) -> list[Backlog]:
        """The backlogs of the streams, in their order."""
        sources = {s.cluster.name: source_of(s) for s in streams}
        seen = self._looks(streams, lake, self._states(streams, sources))
        for name, source in sources.items():
            waiting = [s for s in seen if s.stream.cluster.name == name and s.waiting]
            self._read_next_messages(name, source, [s for s in waiting if s.knows_offsets])
            self._read_retention(name, source, {s.stream.topic for s in waiting if not s.tells_retention})
        now = self._clock()
        backlogs = [s.backlog or self._backlog(s, now) for s in seen]
        self._keep_idle(seen, backlogs)
        return backlogs

    def still_idle(self, streams: Sequence[Stream], *, lake: str) -> bool:
        """Whether all streams were idle when they were read, and neither a topic nor a table has moved since."""
        if not all(stream.name in self._idle for stream in streams):
            return False
        states = self._states(streams, {s.cluster.name: source_of(s) for s in streams})
        elsewhere = _elsewhere(streams, lake)
        return all(
            _of_each(lambda s: self._known(s, lake, states[s.cluster.name][s.topic]), streams, at_once=elsewhere)
        )

    def _states(self, streams: Sequence[Stream], sources: Mapping[str, Source]) -> _States:
        topics: dict[str, set[str]] = defaultdict(set)
        for stream in streams:
            if stream.status != "retired":  # its topic may be gone
                topics[stream.cluster.name].add(stream.topic)
        return {name: self._watches.topics(name, sources[name], wanted) for name, wanted in topics.items()}

    def _keep_idle(self, seen: Sequence[_StreamNow], backlogs: Sequence[Backlog]) -> None:
        """Keep what was seen of idle streams: topic and table decide all of it, as long as nothing waits."""
        for one, backlog in zip(seen, backlogs, strict=True):
            if one.backlog:
                continue
            if one.is_idle and one.knows_offsets:
                self._idle[one.stream.name] = replace(one, backlog=backlog)
            else:
                self._idle.pop(one.stream.name, None)

    def _looks(self, streams: Sequence[Stream], lake: str, states: _States) -> list[_StreamNow]:
        """A look at each stream."""
        topics = {s.name: states.get(s.cluster.name, {}).get(s.topic) for s in streams}
        elsewhere = _elsewhere(streams, lake)
        seen = _of_each(lambda s: self._look(s, lake, topics[s.name]), streams, at_once=elsewhere)
        seen = self._with_first_messages(seen)
        return _of_each(lambda s: self._with_recent(s, lake, topics[s.stream.name]), seen, at_once=elsewhere)

    def _look(self, stream: Stream, lake: str, topic: TopicState | KdiError | None) -> _StreamNow:
        if not isinstance(topic, TopicState) or stream.status == "retired":
            return _StreamNow(stream, refusal=topic if isinstance(topic, KdiError) else None)
        if known := self._known(stream, lake, topic):
            return known
        seen, before = self._snapshot(stream, lake, topic), self._refused.pop(stream.name, "")
        if seen.refusal and topic.as_of:
            self._refused[stream.name] = str(seen.refusal)
            if before != str(seen.refusal) and (now := self._watches.anew(stream.cluster.name, stream.topic)):
                return self._snapshot(stream, lake, now)  # a drain may have found newer shards than those watched
        return seen

    def _known(self, stream: Stream, lake: str, topic: TopicState | KdiError) -> _StreamNow | None:
        """What was seen of an idle stream, if its topic and its table are where they were."""
        known = self._idle.get(stream.name)
        if known and known.topic == topic and known.ledger is self._ledgers.current(stream, lake, known.topic):
            return known
        return None

    def _snapshot(self, stream: Stream, lake: str, topic: TopicState) -> _StreamNow:
        snapshot, refusal = None, None
        try:
            snapshot = take_snapshot(stream, lake, topic, ledger=self._ledgers)
            snapshot.plan(stream)  # raises what a drain would raise
        except KdiError as error:
            refusal = error
        return _StreamNow(stream, snapshot.topic if snapshot else topic, snapshot, refusal)

    def _with_first_messages(self, seen: Sequence[_StreamNow]) -> list[_StreamNow]:
        """The same, with what waits on the topics of sources that know no offsets."""
        asked: dict[str, dict[str, tuple[Stream, Snapshot]]] = defaultdict(dict)
        for one in seen:
            if one.snapshot and one.refusal is None and one.snapshot.topic.as_of:
                asked[one.stream.cluster.name][one.stream.name] = one.stream, one.snapshot
        found: dict[str, Watched | KdiError] = {}
        for connection, snapshots in asked.items():
            found |= self._watches.waiting(connection, snapshots)
        return [one.with_first_messages(found[one.stream.name]) if one.stream.name in found else one for one in seen]

    def _with_recent(self, seen: _StreamNow, lake: str, topic: TopicState | KdiError | None) -> _StreamNow:
        if seen.backlog or not isinstance(topic, TopicState) or seen.stream.status == "retired":
            return seen
        self._ledgers.set_idle(seen.stream, lake, topic, idle=seen.is_idle)
        return replace(seen, recent=self._ledgers.recent(seen.stream, lake)) if seen.waiting else seen

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

    def _read_retention(self, cluster: str, source: Source, topics: Collection[str]) -> None:
        now = time.monotonic()
        if not (stale := [t for t in topics if self._retention.get((cluster, t), (-math.inf, None))[0] < now]):
            return
        with suppress(KdiError):
            found = source.retention(stale)
            self._retention |= {(cluster, t): (now + RETENTION_SECONDS, found.get(t)) for t in stale}

    def _backlog(self, seen: _StreamNow, now: datetime) -> Backlog:
        stream, held = seen.stream, seen.topic.partitions if seen.topic else {}
        recent, patience = seen.recent, stream.patience_seconds(now)
        # Of a source that knows no offsets, one stands for all that wait: their number and size are unknown.
        counts = seen.knows_offsets
        size = recent.bytes_per_offset if counts else None
        _, retention = self._retention.get((stream.cluster.name, stream.topic), (0.0, None))
        if seen.tells_retention:  # what retention removes before a table begins is not lost
            retention = seen.topic.retention if seen.topic and seen.has_begun else None
        found = {tp: self._next[place].message for tp, place in seen.places.items() if place in self._next}
        found |= {tp: AtPosition(next_at=at) for tp, at in seen.first.first_at.items()}
        positions = seen.snapshot.positions() if seen.snapshot else {}
        # A refused look does not see what waits: that is unknown, and not nothing.
        unknown = held.keys() if seen.refusal and not counts else seen.first.unknown
        partitions = {}
        for tp, offsets in held.items():
            next_at = found.get(tp, AtPosition()).next_at
            found_here = partition_backlog(tp, offsets, positions.get(tp), next_at, recent, retention, patience, now)
            if tp in unknown:
                found_here = replace(found_here, word=None, unknown=True)
            partitions[tp] = found_here if counts else replace(found_here, arrival_rate=None)
        waiting = sum(b.offsets for b in partitions.values())
        return Backlog(
            stream=stream.name,
            topic_partitions=partitions,
            offsets=waiting,
            lag_seconds=max((b.lag_seconds for b in partitions.values() if b.lag_seconds is not None), default=None),
            refusal=seen.refusal or truncation(stream, seen.last_read, found),
            needs_position_commit=seen.needs_position_commit,
            renews=seen.first.renews,
            open_transaction_offsets=sum(b.open_transaction_offsets for b in partitions.values()),
            bytes=None if size is None else round(waiting * size),
            pace=recent.pace,
        )


def _elsewhere(streams: Sequence[Stream], lake: str) -> bool:
    return any("://" in stream.root(lake) for stream in streams)


def _of_each(look: Callable[[T], Seen], asked: Sequence[T], *, at_once: bool) -> list[Seen]:
    """A look at each, in their order; several at once if tables are not on this machine, where it mostly waits."""
    if not at_once:
        return [look(one) for one in asked]
    lanes = [asked[lane::LOOKS_AT_ONCE] for lane in range(min(LOOKS_AT_ONCE, len(asked)))]
    running = [start_in_thread(partial(_in_turn, look, lane), name="backlogs") for lane in lanes]
    found = [lane.result() for lane in running]
    return [found[number % LOOKS_AT_ONCE][number // LOOKS_AT_ONCE] for number in range(len(asked))]


def _in_turn(look: Callable[[T], Seen], asked: Sequence[T]) -> list[Seen]:
    return [look(one) for one in asked]


class _Place(NamedTuple):
    """Where the next message is read from, and the last message that was drained before it.

    Tables of one topic share places.
    """

    cluster: str
    topic_partition: TopicPartition
    position: int
    before: LastRead | None


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
    first: Waiting = Waiting()
    recent: RecentCommits = RecentCommits()
    backlog: Backlog | None = None  # of an idle stream that was seen so before

    def with_first_messages(self, found: Watched | KdiError) -> _StreamNow:
        """Of a topic whose source knows no offsets."""
        if isinstance(found, KdiError):
            return replace(self, refusal=found)
        return replace(self, topic=found.snapshot.topic, snapshot=found.snapshot, first=found.first)

    @property
    def ledger(self) -> LedgerState | None:
        return self.snapshot.ledger if self.snapshot else None

    @property
    def has_begun(self) -> bool:
        """Whether positions are committed."""
        return self.snapshot is not None and self.snapshot.position_commit is None

    @property
    def knows_offsets(self) -> bool:
        return self.topic is None or self.topic.as_of is None

    @property
    def tells_retention(self) -> bool:
        return self.topic is not None and self.topic.retention is not None

    @property
    def needs_position_commit(self) -> bool:
        return self.first.renews is not None or (
            self.snapshot is not None and self.snapshot.position_commit is not None
        )

    @property
    def is_idle(self) -> bool:
        """Whether a drain has nothing to do, and nothing to refuse."""
        settled = self.snapshot and self.refusal is None and not self.needs_position_commit
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
        return {tp: _Place(cluster, tp, position, before.get(tp)) for tp, position in self.waiting.items()}
