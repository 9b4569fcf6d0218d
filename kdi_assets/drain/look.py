"""Look: the backlog of many streams at once, without a JVM. A broken stream costs its own line, never the look."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kdi_assets.drain.survey import Survey, survey
from kdi_assets.errors import KdiError
from kdi_assets.sources.kafka import TopicState, oldest_timestamps, read_topics
from kdi_assets.stream import KafkaCluster, Stream, TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionBacklog:
    """One topic partition: ``[position, end)`` waits; ``position`` is ``None`` where it is unknown."""

    position: int | None
    end: int
    earliest: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits for a stream.

    Attributes:
        offsets: Between positions and ends, over all topic partitions; gaps count.
        lag_seconds: Age of the oldest message that waits; ``None`` if none does or its time is unknown.
        refusal: Why the stream cannot be drained as it stands.
        unsettled: Whether the next drain must commit positions first: a start, a RESTORE's answer, a takeover.
        open_transaction_offsets: Behind the last stable offset: held back until a producer commits or aborts.
    """

    stream: str
    topic_partitions: Mapping[TopicPartition, PartitionBacklog]
    offsets: int
    lag_seconds: float | None
    refusal: KdiError | None
    open_transaction_offsets: int
    unsettled: bool = False


def look(stream: Stream, lake: str) -> Backlog:
    """The backlog of one stream; what is wrong with it is its ``refusal``."""
    return look_at([stream], lake=lake)[0]


def look_at(streams: Sequence[Stream], *, lake: str) -> list[Backlog]:
    """The backlogs of many streams, in their order: one batch of requests to each cluster."""
    topics: dict[str, set[str]] = defaultdict(set)
    clusters = {s.cluster.name: s.cluster for s in streams}
    for stream in streams:
        topics[stream.cluster.name].add(stream.topic)
    states = {name: _topics(clusters[name], wanted) for name, wanted in topics.items()}
    seen = [_survey(stream, lake, states[stream.cluster.name][stream.topic]) for stream in streams]
    ages = {name: _oldest(clusters[name], [s for s in seen if s.of == name]) for name in topics}
    return [_backlog(s, ages[s.of]) for s in seen]


@dataclass(frozen=True, slots=True)
class _Seen:
    stream: str
    of: str
    topic: TopicState | None
    positions: Mapping[TopicPartition, int]
    refusal: KdiError | None
    unsettled: bool = False


def _topics(cluster: KafkaCluster, topics: Collection[str]) -> Mapping[str, TopicState | KdiError]:
    try:
        return read_topics(cluster, topics)
    except KdiError as unreachable:
        return dict.fromkeys(topics, unreachable)


def _survey(stream: Stream, lake: str, topic: TopicState | KdiError) -> _Seen:
    if isinstance(topic, KdiError):
        return _Seen(stream.name, stream.cluster.name, None, {}, topic)
    found: Survey | None = None
    try:
        found = survey(stream, lake, topic)
        found.plan(stream)  # refuses what a drain would refuse
    except KdiError as refusal:
        return _Seen(stream.name, stream.cluster.name, topic, found.positions() if found else {}, refusal)
    return _Seen(stream.name, stream.cluster.name, topic, found.positions(), None, found.settlement is not None)


def _oldest(cluster: KafkaCluster, seen: Collection[_Seen]) -> Mapping[TopicPartition, datetime]:
    """The oldest waiting message of each topic partition, for the stream that is furthest behind on it."""
    behind: dict[TopicPartition, int] = {}
    for s in seen:
        for tp, position in s.positions.items():
            if s.topic and max(position, s.topic.partitions[tp].earliest) < s.topic.partitions[tp].end:
                behind[tp] = min(behind.get(tp, position), max(position, s.topic.partitions[tp].earliest))
    try:
        return oldest_timestamps(cluster, behind) if behind else {}
    except KdiError:
        return {}


def _backlog(seen: _Seen, oldest: Mapping[TopicPartition, datetime]) -> Backlog:
    held = seen.topic.partitions if seen.topic else {}
    partitions = {
        tp: PartitionBacklog(seen.positions.get(tp), offsets.end, offsets.earliest) for tp, offsets in held.items()
    }
    waiting = [tp for tp, b in partitions.items() if b.position is not None and b.position < b.end]
    ages = [(datetime.now(UTC) - oldest[tp]).total_seconds() for tp in waiting if tp in oldest]
    return Backlog(
        stream=seen.stream,
        topic_partitions=partitions,
        offsets=sum(b.end - b.position for b in partitions.values() if b.position is not None and b.position < b.end),
        lag_seconds=max(0.0, *ages) if ages else None,
        refusal=seen.refusal,
        unsettled=seen.unsettled,
        open_transaction_offsets=sum(o.high_watermark - o.end for o in held.values()),
    )
