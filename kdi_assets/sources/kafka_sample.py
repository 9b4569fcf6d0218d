"""A sample of a topic: the oldest and the newest messages of each topic partition. No JVM, no consumer group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kdi_assets.errors import KdiError
from kdi_assets.sources.kafka import TopicState, topic_error
from kdi_assets.sources.kafka_client import (
    REQUEST_SECONDS,
    AccessRefused,
    BrokerUnreachable,
    open_admin,
    open_consumer,
    polled,
    rd_partition,
    reachable,
)
from kdi_assets.sources.kafka_config import right_refused
from kdi_assets.sources.kafka_messages import YEAR_10000
from kdi_assets.stream import KafkaCluster, OffsetRange, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

MOST_BYTES = 32 * 1024 * 1024
"""Of keys and values of a sample; one message more than fits may come."""
FETCH_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Sampled:
    """One message; ``timestamp`` is ``None`` where the producer wrote none that is a time."""

    topic_partition: TopicPartition
    offset: int
    timestamp: datetime | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Sample:
    """What was read of a topic.

    Attributes:
        messages: By topic partition and offset.
        passed_over: Topic partitions that hold something, and of which nothing was asked for: there are too many.
        cut_short: What ended the reading before all was there that had been asked for; empty: nothing did.
    """

    topic: TopicState
    messages: Sequence[Sampled]
    passed_over: int = 0
    cut_short: str = ""


def sample(
    cluster: KafkaCluster, topic: TopicState, *, count: int, max_bytes: int = MOST_BYTES, seconds: float = 10.0
) -> Sample:
    """Read the oldest and the newest messages of each topic partition, only those that may be read.

    Args:
        count: At most so many messages, the same number of each topic partition.
        max_bytes: Half of it for the oldest, half for the newest.
        seconds: For the oldest, and again for the newest.

    Raises:
        BrokerUnreachable: Not one message came, nor an end.
        AccessRefused: The brokers refuse our credentials, or us to read.
    """
    held = [OffsetRange(tp, o.earliest, o.end) for tp, o in sorted(topic.partitions.items()) if o.earliest < o.end]
    chosen = _spread(held, max(1, count // 2))
    each = max(1, count // (2 * len(chosen))) if chosen else 0
    newest = [OffsetRange(r.topic_partition, max(r.start, r.end - each), r.end) for r in chosen]
    older = [OffsetRange(r.topic_partition, r.start, n.start) for r, n in zip(chosen, newest, strict=True)]
    passes = [_Pass(cluster, [r for r in ranges if r.start < r.end], each) for ranges in (older, newest)]
    for one in passes:
        one.read(max_bytes=max_bytes // 2, seconds=seconds)
    messages = sorted((m for one in passes for m in one.messages), key=lambda m: (m.topic_partition, m.offset))
    cut_short = next((one.cut_short for one in passes if one.cut_short), "")
    if not messages and cut_short:
        servers, detail = cluster.bootstrap_servers, f"no message of {topic.topic} in {seconds:.0f} s"
        raise BrokerUnreachable(cluster=cluster.name, bootstrap_servers=servers, detail=detail)
    return Sample(topic, messages, passed_over=len(held) - len(chosen), cut_short=cut_short)


def topics_of(cluster: KafkaCluster) -> tuple[str, ...]:
    """The names of all topics that we may see, without Kafka's own.

    Raises:
        BrokerUnreachable: No broker answered.
        AccessRefused: The brokers refuse our credentials.
    """
    admin, heard = open_admin(cluster)
    with reachable(cluster, admin, heard):
        found = admin.list_topics(timeout=REQUEST_SECONDS).topics
    return tuple(sorted(name for name in found if not name.startswith("__")))


@dataclass
class _Pass:
    """One reading, of one place in each topic partition: a client reads each from one place at a time."""

    cluster: KafkaCluster
    ranges: Sequence[OffsetRange]
    each: int
    messages: list[Sampled] = field(default_factory=list)
    cut_short: str = ""

    def read(self, *, max_bytes: int, seconds: float) -> None:
        """Read at most ``each`` messages of every range."""
        if not self.ranges:
            return
        waiting = {r.topic_partition: r for r in self.ranges}
        taken, size = dict.fromkeys(waiting, 0), 0
        starts = {r.topic_partition: r.start for r in self.ranges}
        with open_consumer(self.cluster, starts, fetch_bytes=FETCH_BYTES) as (consumer, heard):
            for batch in polled(consumer, heard, seconds=seconds, most=500):
                for tp, message in self._of_ours(batch, consumer, waiting):
                    self.messages.append(_sampled(tp, message))
                    taken[tp] += 1
                    size += len(message.value() or b"") + len(message.key() or b"")
                    if taken[tp] == self.each or self.messages[-1].offset == waiting[tp].end - 1:
                        _done(tp, consumer, waiting)
                if not waiting or size >= max_bytes:
                    break
        if waiting:
            self.cut_short = f"{size:,} bytes had come" if size >= max_bytes else f"{seconds:.0f} s had passed"

    def _of_ours(
        self, batch: Sequence[Message], consumer: Consumer, waiting: dict[TopicPartition, OffsetRange]
    ) -> Iterator[tuple[TopicPartition, Message]]:
        """The messages within their ranges; a topic partition that shows its end, or more, waits no longer."""
        for message in batch:
            topic = message.topic()
            if topic is None:
                continue  # about the group, which the client looks up although nobody asks it to
            tp = TopicPartition(topic, message.partition() or 0)
            if tp not in waiting:
                continue
            if message.error() is not None:
                _refuse(self.cluster, message)
                _done(tp, consumer, waiting)
            elif (message.offset() or 0) >= waiting[tp].end:
                _done(tp, consumer, waiting)
            else:
                yield tp, message


def _spread(ranges: list[OffsetRange], most: int) -> list[OffsetRange]:
    """So many of them, from all over the list."""
    if len(ranges) <= most:
        return ranges
    return [ranges[n * len(ranges) // most] for n in range(most)]


def _done(tp: TopicPartition, consumer: Consumer, waiting: dict[TopicPartition, OffsetRange]) -> None:
    del waiting[tp]
    consumer.pause([rd_partition(tp)])


def _refuse(cluster: KafkaCluster, message: Message) -> None:
    """Refuse what is neither an end nor a beginning that retention moved.

    Raises:
        KdiError: The broker's refusal, in our words.
    """
    from confluent_kafka import KafkaError, KafkaException

    error = message.error()
    ends = (KafkaError._PARTITION_EOF, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)
    if error is not None and error.code() not in ends:
        topic, refused = str(message.topic()), KafkaException(error)
        refusal: KdiError = topic_error(cluster, topic, refused)
        raise right_refused(cluster, "Read", topic, refused) if isinstance(refusal, AccessRefused) else refusal


def _sampled(tp: TopicPartition, message: Message) -> Sampled:
    milliseconds, value = message.timestamp()[1], message.value()
    written = datetime.fromtimestamp(milliseconds / 1000, UTC) if 0 < milliseconds < YEAR_10000 else None
    as_bytes = value.encode() if isinstance(value, str) else value
    return Sampled(tp, message.offset() or 0, written, as_bytes)
