"""Messages read by a client of our own: those at positions, and those of ranges. No JVM, no consumer group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING

from kdi_assets.ledger.entry import LastRead
from kdi_assets.sources.kafka.client import (
    REQUEST_SECONDS,
    nobody_answers,
    open_consumer,
    polled,
    rd_partition,
    topic_partition_of,
    what_came,
)
from kdi_assets.stream.stream import Cluster, OffsetRange, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Message

SAMPLE_SECONDS = 3.0
"""How long a sample may take; it only makes an estimate better."""
MANY_BATCHES = 256_000
"""Bytes to fetch at a time from a topic partition whose messages are read one after the other."""
FAR = 2_000
"""Offsets that are read through sooner than the client seeks behind them."""
ENDLESS = 2**63 - 1
YEAR_10000 = 253_402_300_800_000
"""In milliseconds; no later moment is a ``datetime``."""
LAST_OFFSETS = (1, 64)
"""How far before the end of a range its last message is looked for; behind it, transactions leave markers."""


@dataclass(frozen=True, slots=True)
class AtPosition:
    """What stands around a position.

    Attributes:
        before: The message at the offset before it that was asked for; ``None`` if there is none any more.
        next_at: Timestamp of the first message at or after the position; ``None`` if there is none, or none came. A
            producer may write anything there: what is no time, or lies ahead, counts as now, since the message waits.
    """

    before: LastRead | None = None
    next_at: datetime | None = None


def around_positions(
    cluster: Cluster,
    positions: Mapping[TopicPartition, int],
    *,
    before: Mapping[TopicPartition, int] | None = None,
    seconds: float = REQUEST_SECONDS,
    committed: bool = True,
) -> dict[TopicPartition, AtPosition]:
    """Read the next message of each topic partition, and on the way there the one at an offset before it.

    Args:
        before: That offset, lower than the position and not below the earliest; absent where none is asked for.
        committed: Only messages that may be read; else those of open and aborted transactions too.

    Returns:
        Absent is a topic partition of which neither a message nor the end came within ``seconds``.
    """
    before = before or {}
    waiting, seen = set(positions), dict[TopicPartition, LastRead]()
    found: dict[TopicPartition, AtPosition] = {}
    starts = {**positions, **before}
    for tp, message in polled(cluster, starts, waiting, seconds=seconds, most=1, committed=committed):
        ends, offset = message.error() is not None, message.offset() or 0
        if ends or offset >= positions[tp]:
            found[tp] = AtPosition(seen.get(tp), None if ends else _written_at(message))
            waiting.remove(tp)
        elif offset == before.get(tp):
            seen[tp] = last_read_of(message)
    return {**{tp: AtPosition(message) for tp, message in seen.items()}, **found}


def oldest_timestamps(
    cluster: Cluster,
    positions: Mapping[TopicPartition, int],
    *,
    seconds: float = REQUEST_SECONDS,
    committed: bool = True,
) -> dict[TopicPartition, datetime]:
    """The timestamp of the first message at or after each position; absent where none came within ``seconds``."""
    found = around_positions(cluster, positions, seconds=seconds, committed=committed)
    return {tp: at.next_at for tp, at in found.items() if at.next_at is not None}


def last_messages(cluster: Cluster, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, LastRead]:
    """The last message of each range; absent where the last ``LAST_OFFSETS`` of it show none.

    Raises:
        BrokerUnreachable: There is no answer.
    """
    found: dict[TopicPartition, LastRead] = {}
    for back in LAST_OFFSETS:
        left = [r for r in ranges if r.topic_partition not in found]
        tails = {r.topic_partition: [replace(r, start=max(r.start, r.end - back))] for r in left}
        for message in visible_messages(cluster, tails):
            tp, read = topic_partition_of(message), last_read_of(message)
            found[tp] = max(found.get(tp, read), read, key=lambda m: m.offset)
    return found


def last_read_of(message: Message) -> LastRead:
    """What tells a message from another one at its offset."""
    digest = blake2b(digest_size=8)
    for part in (message.key(), message.value()):
        data = b"" if part is None else bytes(part)
        digest.update(b"%d:" % (-1 if part is None else len(data)) + data)
    return LastRead(message.offset() or 0, message.timestamp()[1], digest.hexdigest())


def sampled_bytes(
    cluster: Cluster, positions: Mapping[TopicPartition, int], *, each: int = 20, seconds: float = SAMPLE_SECONDS
) -> float | None:
    """Bytes of key and value, uncompressed, that a message has on average; ``None`` if none came within ``seconds``.

    Args:
        positions: Where the sample begins in each topic partition.
        each: How many messages are taken there at most.
    """
    left, taken, size = dict.fromkeys(positions, each), 0, 0
    for tp, message in polled(cluster, positions, left, seconds=seconds):
        left[tp] -= 1
        if message.error() is None:
            taken, size = taken + 1, size + len(message.key() or b"") + len(message.value() or b"")
        if not left[tp] or message.error() is not None:  # its end, or nothing to be had there
            del left[tp]
    return size / taken if taken else None


def visible_messages(
    cluster: Cluster,
    ranges: Mapping[TopicPartition, Iterable[OffsetRange]],
    *,
    seconds: float = REQUEST_SECONDS,
) -> Iterator[Message]:
    """Every message that a ``read_committed`` client sees in the ranges, some of them twice; read by one consumer.

    Args:
        ranges: Of each topic partition one at least, in their order; there may be millions, taken one by one.
        seconds: How long the brokers may show nothing, neither a message nor an end.

    Raises:
        BrokerUnreachable: They showed nothing for so long.
    """
    from confluent_kafka import KafkaError

    rest = {tp: iter(of) for tp, of in ranges.items()}
    ahead = {tp: next(of) for tp, of in rest.items()}
    if not ahead:
        return
    sought = {tp: r.start for tp, r in ahead.items()}
    with open_consumer(cluster, sought, fetch_bytes=MANY_BATCHES) as (consumer, heard):
        heard_at = monotonic()
        while ahead:
            heard.refuse()
            batch = what_came(consumer, most=1000)
            if batch:
                heard_at = monotonic()
            elif monotonic() - heard_at > seconds:
                raise nobody_answers(cluster, f"neither a message of {next(iter(ahead.values()))} nor an end")
            for message in batch:
                tp, error = topic_partition_of(message), message.error()
                if tp not in ahead or (error is not None and error.code() != KafkaError._PARTITION_EOF):
                    continue
                at = ENDLESS if error else message.offset() or 0
                looked_for = _ahead_of(at, ahead[tp], rest[tp])
                if looked_for and looked_for.start <= at:
                    yield message
                    # The end of a range is known here; the broker says only half a second later that nothing follows.
                    looked_for = _ahead_of(at + 1, looked_for, rest[tp])
                if looked_for is None:
                    del ahead[tp]
                    consumer.pause([rd_partition(tp)])
                    continue
                ahead[tp] = looked_for
                if looked_for.start - at > FAR and sought[tp] < looked_for.start:
                    # Once: what was fetched before may still come, and would seek again.
                    sought[tp] = looked_for.start
                    consumer.seek(rd_partition(tp, looked_for.start))


def _ahead_of(offset: int, first: OffsetRange, rest: Iterator[OffsetRange]) -> OffsetRange | None:
    """The first range that ends behind an offset."""
    return next((r for r in chain([first], rest) if offset < r.end), None)


def first_timestamps_above(
    cluster: Cluster, ranges: Sequence[OffsetRange], milliseconds: int
) -> dict[TopicPartition, int]:
    """The offset of the first message in each topic partition's range with a later timestamp, where there is one.

    Raises:
        BrokerUnreachable: There is no answer.
    """
    found: dict[TopicPartition, int] = {}
    for message in visible_messages(cluster, {r.topic_partition: [r] for r in ranges}):
        if message.timestamp()[1] > milliseconds:
            found.setdefault(topic_partition_of(message), message.offset() or 0)
    return found


def _written_at(message: Message) -> datetime:
    milliseconds, now = message.timestamp()[1], datetime.now(UTC)
    if not 0 <= milliseconds < YEAR_10000:  # nanoseconds, or -1 for none
        return now
    return min(now, datetime.fromtimestamp(milliseconds / 1000, UTC))
