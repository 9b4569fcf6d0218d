"""A sample of a topic: the oldest and the newest messages of each topic partition. No JVM, no consumer group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kdi_assets.documents.model.stream import Cluster, OffsetRange, TopicPartition
from kdi_assets.messages.kafka.client import broker_unreachable, poll_messages
from kdi_assets.messages.kafka.messages import YEAR_10000
from kdi_assets.messages.kafka.topic import reading_refused
from kdi_assets.messages.topic_state import TopicState

if TYPE_CHECKING:
    from confluent_kafka import Message

MOST_BYTES = 32 * 1024 * 1024
"""Limit of the keys and values of a sample; the last message may exceed it."""
SECONDS = 10.0
"""Time for the oldest messages, and again for the newest."""
FETCH_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class SampledMessage:
    """One message; ``timestamp`` is ``None`` if the producer wrote no valid one."""

    topic_partition: TopicPartition
    offset: int
    timestamp: datetime | None
    value: bytes | None
    key: bytes | None = None


@dataclass(frozen=True, slots=True)
class TopicSample:
    """A sample of a topic.

    Attributes:
        messages: Ordered by topic partition and offset.
        cut_short: Why the sample is smaller than requested; empty if it is complete.
    """

    topic: TopicState
    messages: Sequence[SampledMessage]
    cut_short: str = ""


def sample(cluster: Cluster, topic: TopicState, *, count: int, max_bytes: int = MOST_BYTES) -> TopicSample:
    """Read the oldest and the newest committed messages of each topic partition.

    Args:
        count: Messages in all, equally many of each topic partition, and at least two.
        max_bytes: Half of it for the oldest, half for the newest.

    Raises:
        BrokerUnreachable: No message and no end came.
        AccessRefused: The brokers refuse our credentials, or the right to read.
    """
    held = [OffsetRange(tp, o.earliest, o.end) for tp, o in sorted(topic.partitions.items()) if o.earliest < o.end]
    each = max(1, count // (2 * len(held))) if held else 0
    newest = [OffsetRange(r.topic_partition, max(r.start, r.end - each), r.end) for r in held]
    older = [OffsetRange(r.topic_partition, r.start, n.start) for r, n in zip(held, newest, strict=True)]
    messages: list[SampledMessage] = []
    cut_short = ""
    for ranges in (older, newest):  # a client reads each topic partition from one offset at a time
        asked = {r.topic_partition: r for r in ranges if r.start < r.end}
        found, ended = _read(cluster, asked, each, max_bytes=max_bytes // 2)
        messages += found
        cut_short = cut_short or ended
    if not messages and cut_short:
        raise broker_unreachable(cluster, f"no message of {topic.topic} in {SECONDS:.0f} s")
    return TopicSample(topic, sorted(messages, key=lambda m: (m.topic_partition, m.offset)), cut_short)


def _read(
    cluster: Cluster, ranges: Mapping[TopicPartition, OffsetRange], each: int, *, max_bytes: int
) -> tuple[list[SampledMessage], str]:
    """At most ``each`` messages of every range, and why there are fewer.

    Raises:
        KdiError: The topic cannot be read.
    """
    starts, left = {tp: r.start for tp, r in ranges.items()}, dict.fromkeys(ranges, each)
    messages: list[SampledMessage] = []
    size = 0
    for tp, message in poll_messages(cluster, starts, left, seconds=SECONDS, most=500, fetch_bytes=FETCH_BYTES):
        if refusal := reading_refused(cluster, message):
            raise refusal
        offset, end = message.offset() or 0, ranges[tp].end
        if message.error() is None and offset < end:
            messages.append(_sampled(tp, message))
            size += len(message.value() or b"") + len(message.key() or b"")
            left[tp] -= 1
        if message.error() is not None or offset >= end - 1 or not left[tp]:
            del left[tp]
        if left and size >= max_bytes:
            return messages, f"{size:,} bytes had come"
    return messages, f"{SECONDS:.0f} s had passed" if left else ""


def _sampled(tp: TopicPartition, message: Message) -> SampledMessage:
    milliseconds = message.timestamp()[1]
    written = datetime.fromtimestamp(milliseconds / 1000, UTC) if 0 < milliseconds < YEAR_10000 else None
    key, value = (part.encode() if isinstance(part, str) else part for part in (message.key(), message.value()))
    return SampledMessage(tp, message.offset() or 0, written, value, key)
