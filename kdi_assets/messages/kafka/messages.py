"""Reads messages with librdkafka: at positions, or in ranges. No JVM, no consumer group."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING

from kdi_assets.documents.model.stream import Cluster, OffsetRange, TopicPartition
from kdi_assets.messages.kafka.client import (
    ClientErrors,
    next_messages,
    open_consumer,
    poll_messages,
    rd_partition,
    topic_partition_of,
    topic_unanswered,
)
from kdi_assets.messages.kafka.errors import AccessRefused
from kdi_assets.messages.kafka.topic import reading_refused
from kdi_assets.messages.source import LAST_MESSAGE_WITHIN, REQUEST_SECONDS
from kdi_assets.messages.topic_state import AtPosition, LastRead

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from confluent_kafka import Message as ClientMessage

SAMPLE_MESSAGES, SAMPLE_SECONDS = 20, 3.0
"""At most so many messages of each topic partition, and so long, for a sample that only improves an estimate."""
MANY_BATCHES = 256_000
"""Bytes to fetch at a time from a topic partition that is read in sequence."""
FAR = 2_000
"""Reading this many offsets takes less time than a seek past them."""
ENDLESS = 2**63 - 1
YEAR_10000 = 253_402_300_800_000
"""In milliseconds; no later moment is a ``datetime``."""
_LAST_OFFSETS = (1, LAST_MESSAGE_WITHIN)

LONGEST_MILLISECONDS = (2**63 - 1) // 1000
"""Spark's Kafka reader multiplies each timestamp by 1,000 and fails if the product needs more than 64 bits."""


@dataclass(frozen=True, slots=True)
class VisibleMessage:
    """A message as a ``read_committed`` client sees it.

    Attributes:
        timestamp: In milliseconds, as the broker has it; -1 without one.
    """

    topic_partition: TopicPartition
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @classmethod
    def of(cls, message: ClientMessage) -> VisibleMessage:
        """The client's message."""
        key, value = (None if part is None else bytes(part) for part in (message.key(), message.value()))
        return cls(topic_partition_of(message), message.offset() or 0, message.timestamp()[1], key, value)

    @property
    def last_read(self) -> LastRead:
        """The fingerprint of the message: it differs from that of any other message at its offset."""
        digest = blake2b(digest_size=8)
        for data in (self.key, self.value):
            digest.update(b"%d:" % (-1 if data is None else len(data)) + (data or b""))
        return LastRead(self.offset, self.timestamp, digest.hexdigest())


def around_positions(
    cluster: Cluster,
    positions: Mapping[TopicPartition, int],
    *,
    before: Mapping[TopicPartition, int] | None = None,
    seconds: float = REQUEST_SECONDS,
    committed: bool = True,
) -> dict[TopicPartition, AtPosition]:
    """Read the next message of each topic partition, and a message before it.

    Args:
        before: The offset of that message, below the position and not below the earliest; may be absent.
        committed: As in ``open_consumer``.

    Returns:
        Absent if neither a message nor the end came within ``seconds``.
    """
    before = before or {}
    waiting, seen = set(positions), dict[TopicPartition, LastRead]()
    found: dict[TopicPartition, AtPosition] = {}
    starts = {**positions, **before}
    for tp, message in poll_messages(cluster, starts, waiting, seconds=seconds, most=1, committed=committed):
        ends, offset = message.error() is not None, message.offset() or 0
        if ends or offset >= positions[tp]:
            found[tp] = AtPosition(seen.get(tp), None if ends else _written_at(message))
            waiting.remove(tp)
        elif offset == before.get(tp):
            seen[tp] = VisibleMessage.of(message).last_read
    return {**{tp: AtPosition(message) for tp, message in seen.items()}, **found}


def last_messages(cluster: Cluster, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, LastRead]:
    """The last message of each range; absent if its last ``LAST_MESSAGE_WITHIN`` offsets have none.

    Raises:
        BrokerUnreachable: There is no answer.
    """
    found: dict[TopicPartition, LastRead] = {}
    for back in _LAST_OFFSETS:
        left = [r for r in ranges if r.topic_partition not in found]
        tails = {r.topic_partition: [replace(r, start=max(r.start, r.end - back))] for r in left}
        for message in visible_messages(cluster, tails):
            tp, read = message.topic_partition, message.last_read
            found[tp] = max(found.get(tp, read), read, key=lambda m: m.offset)
    return found


def sampled_bytes(cluster: Cluster, positions: Mapping[TopicPartition, int]) -> float | None:
    """The average uncompressed bytes of key and value of a message; ``None`` if none came in time.

    Args:
        positions: Where the sample starts in each topic partition.
    """
    left, taken, size = dict.fromkeys(positions, SAMPLE_MESSAGES), 0, 0
    for tp, message in poll_messages(cluster, positions, left, seconds=SAMPLE_SECONDS):
        left[tp] -= 1
        if message.error() is None:
            taken, size = taken + 1, size + len(message.key() or b"") + len(message.value() or b"")
        if not left[tp] or message.error() is not None:  # complete, at its end, or unreadable
            del left[tp]
    return size / taken if taken else None


def visible_messages(
    cluster: Cluster, ranges: Mapping[TopicPartition, Iterable[OffsetRange]], *, seconds: float = REQUEST_SECONDS
) -> Generator[VisibleMessage]:
    """Every message that a ``read_committed`` client sees in the ranges, some of them twice; read by one consumer.

    Args:
        ranges: At least one for each topic partition, ordered; consumed lazily, there may be millions.
        seconds: How long neither a message nor an end may come.

    Raises:
        AccessRefused: The right to read a topic is missing.
        BrokerUnreachable: Neither came for that long.
    """
    from confluent_kafka import KafkaError

    rest = {tp: iter(of) for tp, of in ranges.items()}
    ahead = {tp: next(of) for tp, of in rest.items()}
    if not ahead:
        return
    sought = {tp: r.start for tp, r in ahead.items()}
    with open_consumer(cluster, sought, fetch_bytes=MANY_BATCHES) as (consumer, errors):
        for message in _answers(cluster, consumer, errors, ahead, seconds):
            tp, error = topic_partition_of(message), message.error()
            if error is not None and isinstance(refusal := reading_refused(cluster, message), AccessRefused):
                raise refusal
            if tp not in ahead or (error is not None and error.code() != KafkaError._PARTITION_EOF):
                continue
            at = ENDLESS if error else message.offset() or 0
            following = _range_after(at, ahead[tp], rest[tp])
            if following and following.start <= at:
                yield VisibleMessage.of(message)
                # The range may end here. The broker reports the end of the topic partition half a second later.
                following = _range_after(at + 1, following, rest[tp])
            if following is None:
                del ahead[tp]
                consumer.pause([rd_partition(tp)])
                continue
            ahead[tp] = following
            if following.start - at > FAR:
                _seek_once(consumer, sought, tp, following.start)


def _seek_once(consumer: Consumer, sought: dict[TopicPartition, int], tp: TopicPartition, start: int) -> None:
    """Seek, unless it was sought already: messages that were fetched before may still come."""
    if sought[tp] < start:
        sought[tp] = start
        consumer.seek(rd_partition(tp, start))


def _answers(
    cluster: Cluster,
    consumer: Consumer,
    errors: ClientErrors,
    ahead: Mapping[TopicPartition, OffsetRange],
    seconds: float,
) -> Iterator[ClientMessage]:
    """Messages and ends until ``ahead`` is empty; raises ``BrokerUnreachable`` after ``seconds`` without any."""
    answered_at = monotonic()
    while ahead:
        errors.refuse()
        batch = next_messages(consumer, most=1000)
        if batch:
            answered_at = monotonic()
        elif monotonic() - answered_at > seconds:
            raise topic_unanswered(cluster, f"neither a message of {next(iter(ahead.values()))} nor an end")
        yield from batch


def _range_after(offset: int, first: OffsetRange, rest: Iterator[OffsetRange]) -> OffsetRange | None:
    """The first range that ends after an offset."""
    return next((r for r in chain([first], rest) if offset < r.end), None)


def message_in(
    cluster: Cluster, ranges: Mapping[TopicPartition, Iterable[OffsetRange]], *, seconds: float = REQUEST_SECONDS
) -> tuple[TopicPartition, int] | None:
    """A visible message in the ranges; ``None`` if there is none.

    Raises:
        BrokerUnreachable: There is no answer.
    """
    with closing(visible_messages(cluster, ranges, seconds=seconds)) as messages:
        return next(((message.topic_partition, message.offset) for message in messages), None)


def first_unreadable(cluster: Cluster, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, int]:
    """The first offset of each range whose timestamp Spark's reader cannot read; absent without one.

    Raises:
        BrokerUnreachable: There is no answer.
    """
    found: dict[TopicPartition, int] = {}
    for message in visible_messages(cluster, {r.topic_partition: [r] for r in ranges}):
        if message.timestamp > LONGEST_MILLISECONDS:
            found.setdefault(message.topic_partition, message.offset)
    return found


def _written_at(message: ClientMessage) -> datetime:
    milliseconds, now = message.timestamp()[1], datetime.now(UTC)
    if not 0 <= milliseconds < YEAR_10000:  # nanoseconds, or -1: none
        return now
    return min(now, datetime.fromtimestamp(milliseconds / 1000, UTC))
