"""What a drain does next: commit positions, read exact ranges, or refuse. No JVM, no side effects."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from kdi_assets.documents.model.kinesis_stream import KinesisStream
from kdi_assets.documents.model.stream import OffsetRange, Stream, TopicPartition
from kdi_assets.messages.held import Marks
from kdi_assets.messages.of_stream import source_of
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.messages.topic_state import LastRead, TopicState
from kdi_assets.streams.drain.plan_errors import (
    BrokerEndBelowPosition,
    PositionBelowStart,
    RetentionPassedPosition,
    RowsWithoutPositions,
    StartOutOfRange,
    TableReplaced,
    TopicPartitionVanished,
    TopicRecreated,
)
from kdi_assets.streams.drain.route_change import routes_to_drain_by
from kdi_assets.streams.ledger.entry import Kind, unmoved_last_read
from kdi_assets.streams.ledger.positions import LedgerState
from kdi_assets.streams.ledger.routes import Routes


@dataclass(frozen=True, slots=True)
class PositionCommit:
    """Positions to commit before anything is read, and why.

    Attributes:
        positions: Next offset of every topic partition.
        bookmarks: Where these are, if an offset cannot say it.
    """

    kind: Kind
    positions: Mapping[TopicPartition, int]
    reason: str
    bookmarks: Mapping[TopicPartition, Bookmark] = field(default_factory=dict)


def needed_position_commit(stream: Stream, ledger: LedgerState | None, topic: TopicState) -> PositionCommit | None:
    """The positions to commit before a plan can be made; ``None`` if the ledger has them.

    A start policy becomes numbers here, once: "latest" is the end at this moment, and the messages between this commit
    and the first drain are not lost.

    Raises:
        TableReplaced, TopicRecreated, TopicPartitionVanished: As ``plan_drain``; they come before a RESTORE's answer.
        RowsWithoutPositions: A clone, or a copy: whatever the start policy says, it could double its rows.
        StartOutOfRange: An explicit start offset is not in the topic.
        PositionBelowStart: An explicit start offset is higher than the position of another writer.
    """
    if ledger is None:
        refuse_other_start(stream, {}, topic)
        reason = f"the table does not exist; start: {_start_text(stream)}"
        return PositionCommit("start", start_positions(stream, topic), reason, first_bookmarks(stream, topic))
    refuse_other_ids(stream, ledger, topic)
    if ledger.restored_to is not None:
        positions = {**dict.fromkeys(topic.partitions, 0), **ledger.positions}
        reason = f"the table was restored to version {ledger.restored_to}"
        return PositionCommit("restore", positions, reason)
    if ledger.has_unknown_files:
        raise RowsWithoutPositions(stream=stream.name, uri=ledger.uri, has_numbers=isinstance(stream, KinesisStream))
    if ledger.ledger_version is None:
        refuse_other_start(stream, ledger.positions, topic)
        positions = {**start_positions(stream, topic, known=ledger.positions.keys()), **ledger.positions}
        if ledger.positions:
            reason = "the table has positions of another writer with this app_id"
            return PositionCommit("takeover", positions, reason)
        reason = f"the table has no positions yet; start: {_start_text(stream)}"
        return PositionCommit("start", positions, reason, first_bookmarks(stream, topic))
    return None


def first_bookmarks(stream: Stream, topic: TopicState) -> Mapping[TopicPartition, Bookmark]:
    """As ``Source.first_bookmarks``."""
    return source_of(stream).first_bookmarks(topic, stream.start) if topic.as_of else {}


def start_positions(
    stream: Stream, topic: TopicState, *, known: Collection[TopicPartition] = frozenset()
) -> dict[TopicPartition, int]:
    """The positions at which topic partitions start that are not ``known``.

    Raises:
        StartOutOfRange: An explicit offset is not in the topic.
        KdiError: The source does not answer which offset a moment is.
    """
    begin = {tp: offsets for tp, offsets in topic.partitions.items() if tp not in known}
    if not begin:
        return {}
    if isinstance(stream.start, datetime):
        return source_of(stream).offsets_at(replace(topic, partitions=begin), stream.start)
    if stream.start == "latest":
        return {tp: offsets.end for tp, offsets in begin.items()}
    explicit = stream.start_offsets
    positions = {tp: explicit.get(tp, offsets.earliest) for tp, offsets in begin.items()}
    for tp, offsets in begin.items():
        # Up to the high watermark: an offset of an open transaction exists, although nobody may read it yet.
        if not offsets.earliest <= positions[tp] <= offsets.high_watermark:
            held = f"[{offsets.earliest}, {offsets.high_watermark})"
            said = f"says {positions[tp]} for {tp}, which holds {held}"
            raise StartOutOfRange(stream=stream.name, topic_partition=tp, said=said)
    return positions


def _start_text(stream: Stream) -> str:
    return stream.start.isoformat() if isinstance(stream.start, datetime) else str(stream.start)


@dataclass(frozen=True, slots=True)
class Plan:
    """The ranges of one drain, ordered, none empty; without ranges, nothing is left to drain.

    Attributes:
        attempt_id: New for every attempt: an attempt that the ledger does not name did not happen.
        ledger: The ledger at planning; the commit must land directly behind its version.
        now: The moment of planning, UTC; the clock of the date window.
        positions: Next offset of every topic partition of the topic.
        ends: Exclusive ends of the topic partitions at planning.
        expected_bytes: Estimate of the bytes of keys and values in the ranges, uncompressed; ``None`` without one.
        routes: The conditions of the stream's route group that decide which messages are its own.
        last_read: The last message of each topic partition before the position that the plan leads to.
        marks: Of the ranges.
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
    marks: Marks = Marks()

    @property
    def version(self) -> int:
        """The table version that the commit must land directly behind."""
        return self.ledger.version

    @property
    def offset_count(self) -> int:
        return sum(r.offset_count for r in self.ranges)

    @property
    def positions_after(self) -> dict[TopicPartition, int]:
        """Next offset of every topic partition once this plan is committed."""
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
        ledger: With positions: ``needed_position_commit`` asks for nothing.
        topic: ``earliest`` inclusive, ``end`` exclusive: the last stable offset.
        until: Upper bounds of the ranges, exclusive; a topic partition without one is read to its end.
        offset_bytes: Expected bytes of an offset; without it, the stream's ``max_bytes`` limits nothing.

    Raises:
        TableReplaced, TopicRecreated, TopicPartitionVanished: As ``refuse_other_ids``.
        RetentionPassedPosition, BrokerEndBelowPosition: The source no longer has the offset at a position.
        PositionBelowStart, StartOutOfRange: As ``refuse_other_start``.
        RoutesChanged: The ledger has other route conditions than the document.
    """
    refuse_other_ids(stream, ledger, topic)
    positions = positions_of(ledger, topic)
    refuse_lost_offsets(stream, ledger, positions, topic)
    ranges = _next_ranges(positions, topic, until, most_offsets(stream, offset_bytes))
    refuse_other_start(stream, positions, topic)
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
        routes=routes_to_drain_by(stream, ledger, positions) if stream.route or ledger.routes else None,
        last_read=unmoved_last_read(ledger.entry, positions | {r.topic_partition: r.end for r in ranges}),
    )


def refuse_other_ids(stream: Stream, ledger: LedgerState, topic: TopicState) -> None:
    """Refuse a table or a topic that is not the one of the positions.

    Raises:
        TableReplaced, TopicRecreated, TopicPartitionVanished: As their texts say.
    """
    if ledger.ledger_version is None:
        return  # no ledger commit recorded the ids of table and topic; the next one does
    if not ledger.table_id_matches:
        recorded = ledger.entry.table_id if ledger.entry else ""
        raise TableReplaced(
            stream=stream.name,
            uri=ledger.uri,
            recorded_id=recorded,
            found_id=ledger.table_id,
            has_numbers=isinstance(stream, KinesisStream),
        )
    if not ledger.topic_id_matches:
        recorded = ledger.entry.topic_id if ledger.entry else ""
        raise TopicRecreated(stream=stream.name, topic=topic.topic, recorded_id=recorded, found_id=topic.topic_id)
    if vanished := ledger.vanished(topic.partitions):
        raise TopicPartitionVanished(
            stream=stream.name,
            topic_partition=vanished[0],
            position=ledger.positions[vanished[0]],
            has_expired=topic.as_of is not None,
        )


def refuse_other_start(stream: Stream, positions: Mapping[TopicPartition, int], topic: TopicState) -> None:
    """Refuse explicit start offsets above the position.

    A start applies only where there is no position. A start above the position would skip messages, and only a decision
    in the ledger may do that.

    Raises:
        PositionBelowStart, StartOutOfRange: As their texts say.
    """
    for tp, offset in stream.start_offsets.items():
        if tp not in topic.partitions:
            said = f"names {tp}, and the topic's last topic partition is {max(topic.partitions)}"
            raise StartOutOfRange(stream=stream.name, topic_partition=tp, said=said)
        if tp in positions and positions[tp] < offset:
            raise PositionBelowStart(stream=stream.name, topic_partition=tp, position=positions[tp], start=offset)


def positions_of(ledger: LedgerState, topic: TopicState) -> dict[TopicPartition, int]:
    """Next offset of every topic partition of the topic.

    A topic partition that appears later starts at 0, not at "earliest": if its first offsets are already deleted, that
    is a loss, and someone must declare it.
    """
    return {tp: ledger.positions.get(tp, 0) for tp in sorted(topic.partitions)}


def refuse_lost_offsets(
    stream: Stream, ledger: LedgerState, positions: Mapping[TopicPartition, int], topic: TopicState
) -> None:
    """Refuse positions whose offsets the source no longer has.

    Raises:
        RetentionPassedPosition, BrokerEndBelowPosition: As their texts say.
    """
    for tp, offsets in sorted(topic.partitions.items()):
        at = positions[tp]
        if at < offsets.earliest:
            raise RetentionPassedPosition(
                stream=stream.name,
                topic_partition=tp,
                position=at,
                earliest=offsets.earliest,
                went_back=ledger.uri if _went_back(ledger) else "",
            )
        if offsets.high_watermark < at:
            raise BrokerEndBelowPosition(
                stream=stream.name, topic_partition=tp, position=at, end=offsets.high_watermark
            )


def _went_back(ledger: LedgerState) -> bool:
    """Whether a RESTORE, or a rewind that removed rows, is what set the positions last."""
    newest = ledger.entry
    rewound = newest is not None and newest.kind == "resolve" and bool(newest.removed_by_date)
    return ledger.restored_to is not None or rewound or (newest is not None and newest.kind == "restore")


def _next_ranges(
    positions: Mapping[TopicPartition, int],
    topic: TopicState,
    until: Mapping[TopicPartition, int] | None,
    most_offsets: int,
) -> tuple[OffsetRange, ...]:
    backlog = []
    for tp, offsets in sorted(topic.partitions.items()):
        end = min(offsets.end, (until or {}).get(tp, offsets.end))
        if positions[tp] < end:
            backlog.append(OffsetRange(tp, positions[tp], end))
    return _at_most(most_offsets, tuple(backlog))


def most_offsets(stream: Stream, offset_bytes: float | None) -> int:
    """How many offsets a plan may hold; at least one, or the position would never move."""
    if stream.max_bytes is None or not offset_bytes:
        return stream.offsets_per_plan
    return max(1, min(stream.offsets_per_plan, int(stream.max_bytes / offset_bytes)))


def _at_most(limit: int, backlog: tuple[OffsetRange, ...]) -> tuple[OffsetRange, ...]:
    """Cut the ranges so that they hold at most ``limit`` offsets: the short ones whole, the long ones evenly."""
    room, cut = limit, {}
    for left, r in enumerate(sorted(backlog, key=lambda r: r.offset_count)):
        taken = min(r.offset_count, room // (len(backlog) - left))
        room -= taken
        cut[r.topic_partition] = OffsetRange(r.topic_partition, r.start, r.start + taken)
    return tuple(cut[r.topic_partition] for r in backlog if cut[r.topic_partition].offset_count)
