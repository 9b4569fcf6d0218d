"""The first message at or after a position, read by a client of our own. No JVM, no consumer group."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kdi_assets.sources.kafka_client import REQUEST_SECONDS, BrokerUnreachable, open_consumer, polled, rd_partition
from kdi_assets.stream import KafkaCluster, OffsetRange, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Message

SAMPLE_SECONDS = 3.0
"""How long a sample may take; it only makes an estimate better."""
YEAR_10000 = 253_402_300_800_000
"""In milliseconds; no later moment is a ``datetime``."""


def oldest_timestamps(
    cluster: KafkaCluster,
    positions: Mapping[TopicPartition, int],
    *,
    seconds: float = REQUEST_SECONDS,
    committed: bool = True,
) -> dict[TopicPartition, datetime]:
    """The timestamp of the first message at or after each position; absent where none came within ``seconds``.

    A producer may write anything there: what is no time, or lies ahead, counts as now, since the message does wait.

    Args:
        committed: Only messages that may be read; else those of open and aborted transactions too.
    """
    waiting = set(positions)
    found: dict[TopicPartition, datetime] = {}
    if not positions:
        return {}
    with open_consumer(cluster, positions, committed=committed) as (consumer, heard):
        for batch in polled(consumer, heard, seconds=seconds):
            for message in batch:
                tp = _topic_partition(message)
                if tp in waiting and message.error() is None:
                    found[tp] = _written_at(message)
                waiting.discard(tp)
                consumer.pause([rd_partition(tp)])
            if not waiting:
                break
    return found


def sampled_bytes(
    cluster: KafkaCluster, positions: Mapping[TopicPartition, int], *, each: int = 20, seconds: float = SAMPLE_SECONDS
) -> float | None:
    """Bytes of key and value, uncompressed, that a message has on average; ``None`` if none came within ``seconds``.

    Args:
        positions: Where the sample begins in each topic partition.
        each: How many messages are taken there at most.
    """
    left, taken, size = dict.fromkeys(positions, each), 0, 0
    if not positions:
        return None
    with open_consumer(cluster, positions) as (consumer, heard):
        for batch in polled(consumer, heard, seconds=seconds):
            for message in batch:
                tp = _topic_partition(message)
                if message.error() is not None:
                    left.pop(tp, None)  # its end, or nothing to be had there
                elif tp in left:
                    taken, size = taken + 1, size + len(message.key() or b"") + len(message.value() or b"")
                    left[tp] -= 1
                if not left.get(tp):
                    left.pop(tp, None)
                    consumer.pause([rd_partition(tp)])
            if not left:
                break
    return size / taken if taken else None


def next_visible_offset(cluster: KafkaCluster, gap: OffsetRange) -> int:
    """The offset of the first message that a ``read_committed`` client sees at or after ``gap.start``.

    Returns:
        That offset, or ``gap.end`` when the topic partition ends without showing one.

    Raises:
        BrokerUnreachable: Neither a message nor the end came within the time limit.
    """
    from confluent_kafka import KafkaError

    with open_consumer(cluster, {gap.topic_partition: gap.start}) as (consumer, heard):
        for batch in polled(consumer, heard, seconds=REQUEST_SECONDS, most=1):
            for message in batch:
                error = message.error()
                if error is None:
                    return message.offset() or 0
                if error.code() == KafkaError._PARTITION_EOF:
                    return gap.end
    raise BrokerUnreachable(
        cluster=cluster.name, bootstrap_servers=cluster.bootstrap_servers, detail=f"no answer about {gap}"
    )


def _written_at(message: Message) -> datetime:
    milliseconds, now = message.timestamp()[1], datetime.now(UTC)
    if not 0 <= milliseconds < YEAR_10000:  # nanoseconds, or -1 for none
        return now
    return min(now, datetime.fromtimestamp(milliseconds / 1000, UTC))


def _topic_partition(message: Message) -> TopicPartition:
    return TopicPartition(str(message.topic()), message.partition() or 0)
