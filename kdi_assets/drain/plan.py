"""Plan: the exact ranges of one drain, or a typed refusal. No JVM, no side effects: ``kdi plan`` prints it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kdi_assets.drain.errors import (
    BrokerEndBelowPosition,
    PositionBelowStart,
    RetentionPassedPosition,
    StartOutOfRange,
    TableReplaced,
    TopicPartitionVanished,
    TopicRecreated,
)
from kdi_assets.drain.route_change import routes_to_drain_by
from kdi_assets.ledger.entry import LastRead, still_last
from kdi_assets.ledger.positions import LedgerState
from kdi_assets.ledger.routes import Routes
from kdi_assets.sources.kafka.topic import BrokerOffsets, TopicState
from kdi_assets.stream.stream import OffsetRange, Stream, TopicPartition


@dataclass(frozen=True, slots=True)
class Plan:
    """The ranges of one drain, ordered, none empty; no ranges means nothing is left to drain.

    Attributes:
        attempt_id: New for every try: what the ledger does not name did not happen.
        ledger: As it was when it was made; the commit must land directly behind its version.
        now: The moment of planning, UTC; the date window is judged by it.
        positions: Next offset of every topic partition of the broker.
        ends: Where the topic partitions ended when it was made, exclusive.
        expected_bytes: Of keys and values in the ranges, uncompressed, by estimate; ``None`` if nobody estimated.
        routes: The conditions of the stream's route group that its messages are judged by.
        last_read: The last message of each topic partition, once the plan is carried out.
    """

    stream: str
    attempt_id: str
    ledger: LedgerState
    topic_id: str
    now: datetime
    positions: Mapping[TopicPartition, int]
    ranges: tuple[OffsetRange, ...]
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    expected_bytes: int | None = None
    routes: Routes | None = None
    last_read: Mapping[TopicPartition, LastRead] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """The table version that the commit must land directly behind."""
        return self.ledger.version

    @property
    def offset_count(self) -> int:
        return sum(r.offset_count for r in self.ranges)

    @property
    def positions_after(self) -> dict[TopicPartition, int]:
        """Next offset of every topic partition once this plan is carried out."""
        return {**self.positions, **{r.topic_partition: r.end for r in self.ranges}}


def plan_drain(
    stream: Stream,
    *,
    ledger: LedgerState,
    topic: TopicState,
    now: datetime,
    until: Mapping[TopicPartition, int] | None = None,
    offset_bytes: float | None = None,
) -> Plan:
    """Pin the ranges of the next drain, or refuse.

    Args:
        ledger: With positions; ``commit_positions`` has seen to that.
        topic: ``earliest`` inclusive, ``end`` exclusive (the last stable offset).
        until: Read no further than here, per topic partition; absent ones are read to their end.
        offset_bytes: What an offset is expected to weigh; without it the stream's ``max_bytes`` bounds nothing.

    Raises:
        TableReplaced, TopicRecreated: The ids are not those of the newest ledger commit.
        TopicPartitionVanished: The broker no longer has a topic partition that has a position.
        RetentionPassedPosition: Offsets ``[position, earliest)`` were deleted before they were drained.
        BrokerEndBelowPosition: The broker ends before the position: truncated, or restored from a copy.
        PositionBelowStart, StartOutOfRange: As ``refuse_other_start``.
        RoutesChanged: The table is drained by other route conditions than the document's.

    Source: Kafka protocol, "ListOffsets" with isolation level ``read_committed``.
    """
    refuse_strangers(stream, ledger, topic)
    positions = positions_of(ledger, topic)
    waiting = []
    for tp, offsets in sorted(topic.partitions.items()):
        _refuse_moved(stream, tp, positions[tp], offsets)
        end = offsets.end if until is None else min(offsets.end, until.get(tp, offsets.end))
        if positions[tp] < end:
            waiting.append(OffsetRange(tp, positions[tp], end))
    refuse_other_start(stream, positions, topic)
    ranges = _at_most(_most_offsets(stream, offset_bytes), tuple(waiting))
    return Plan(
        stream=stream.name,
        attempt_id=str(uuid.uuid4()),
        ledger=ledger,
        topic_id=topic.topic_id,
        now=now,
        positions=positions,
        ranges=ranges,
        ends={tp: offsets.end for tp, offsets in sorted(topic.partitions.items())},
        expected_bytes=None if offset_bytes is None else round(offset_bytes * sum(r.offset_count for r in ranges)),
        routes=routes_to_drain_by(stream, ledger, positions),
        last_read=still_last(ledger.entry, positions | {r.topic_partition: r.end for r in ranges}),
    )


def refuse_strangers(stream: Stream, ledger: LedgerState, topic: TopicState) -> None:
    """Refuse a table or a topic that is not the one that the positions were made for.

    Raises:
        TableReplaced, TopicRecreated, TopicPartitionVanished: As they say.
    """
    if ledger.ledger_version is None:
        return  # nobody recorded which table and topic they were; the next ledger commit does
    if not ledger.knows_table:
        recorded = ledger.entry.table_id if ledger.entry else ""
        raise TableReplaced(stream=stream.name, uri=ledger.uri, recorded_id=recorded, found_id=ledger.table_id)
    if not ledger.knows_topic:
        recorded = ledger.entry.topic_id if ledger.entry else ""
        raise TopicRecreated(stream=stream.name, topic=topic.topic, recorded_id=recorded, found_id=topic.topic_id)
    if vanished := sorted(ledger.positions.keys() - topic.partitions.keys()):
        raise TopicPartitionVanished(
            stream=stream.name, topic_partition=vanished[0], position=ledger.positions[vanished[0]]
        )


def refuse_other_start(stream: Stream, positions: Mapping[TopicPartition, int], topic: TopicState) -> None:
    """Refuse explicit start offsets that a position has not reached.

    A start is applied where there is no position. One at or below the position was applied, or is passed by now; one
    above it would skip messages, which is a decision that the ledger must know of.

    Raises:
        PositionBelowStart, StartOutOfRange: As they say.
    """
    for tp, offset in stream.start_offsets.items():
        if tp not in topic.partitions:
            said = f"names {tp}, and the topic's last topic partition is {max(topic.partitions)}"
            raise StartOutOfRange(stream=stream.name, topic_partition=tp, said=said)
        if tp in positions and positions[tp] < offset:
            raise PositionBelowStart(stream=stream.name, topic_partition=tp, position=positions[tp], start=offset)


def positions_of(ledger: LedgerState, topic: TopicState) -> dict[TopicPartition, int]:
    """Next offset of every topic partition of the broker.

    One that appeared after the stream began starts at 0, not at "earliest": if its first offsets are gone already,
    that is a loss which someone must declare.
    """
    return {tp: ledger.positions.get(tp, 0) for tp in sorted(topic.partitions)}


def _refuse_moved(stream: Stream, tp: TopicPartition, position: int, offsets: BrokerOffsets) -> None:
    if position < offsets.earliest:
        raise RetentionPassedPosition(
            stream=stream.name, topic_partition=tp, position=position, earliest=offsets.earliest
        )
    if offsets.high_watermark < position:
        raise BrokerEndBelowPosition(
            stream=stream.name, topic_partition=tp, position=position, end=offsets.high_watermark
        )


def _most_offsets(stream: Stream, offset_bytes: float | None) -> int:
    """How many offsets a plan of the stream may hold; one at least, or nothing would ever move."""
    if stream.max_bytes is None or not offset_bytes:
        return stream.max_records
    return max(1, min(stream.max_records, int(stream.max_bytes / offset_bytes)))


def _at_most(limit: int, waiting: tuple[OffsetRange, ...]) -> tuple[OffsetRange, ...]:
    """Cut the ranges so that they hold at most ``limit`` offsets: the short ones whole, the long ones evenly."""
    room, cut = limit, {}
    for left, r in enumerate(sorted(waiting, key=lambda r: r.offset_count)):
        taken = min(r.offset_count, room // (len(waiting) - left))
        room -= taken
        cut[r.topic_partition] = OffsetRange(r.topic_partition, r.start, r.start + taken)
    return tuple(cut[r.topic_partition] for r in waiting if cut[r.topic_partition].offset_count)
