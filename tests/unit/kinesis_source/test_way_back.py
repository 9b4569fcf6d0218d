"""To which edges of spans positions can be set back, and with which bookmarks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from kdi_assets.documents.model.connections.kinesis import KinesisRegion
from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.held import SetBack
from kdi_assets.messages.kinesis.client import LATE_MS, SeenRecord, digest_of, milliseconds
from kdi_assets.messages.kinesis.errors import SpanForgotten
from kdi_assets.messages.kinesis.shards import id_of, list_shards, number_of
from kdi_assets.messages.kinesis.source import KinesisSource
from kdi_assets.messages.shard_bookmarks import Bookmark, Span
from kdi_assets.messages.source import WayBack
from kdi_assets.streams.ledger.entry import LedgerEntry, RangeCounts
from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.kinesis.endpoint import kinesis_client

HOUR = 3600
A, B, C, D, E = (TopicPartition("orders", number) for number in range(5))


@dataclass
class Reading:
    """A stream, and the ledger of a table that reads it: the records of a shard have the numbers 0, 1, 2 and so on.

    Attributes:
        put: Of each shard, all records that were put into it.
        edges: Of each shard, the positions that it had and was not set back over.
    """

    server: KinesisServer
    shards: int = 1
    put: dict[TopicPartition, list[SeenRecord]] = field(default_factory=dict)
    edges: dict[TopicPartition, list[int]] = field(default_factory=dict)
    entries: list[LedgerEntry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.client = kinesis_client(self.server.endpoint)
        self.client.create_stream(StreamName="orders", ShardCount=self.shards)
        self.server.advance(60)
        self.source = KinesisSource(KinesisRegion("eu", "us-east-1", self.server.endpoint))
        self._commit({})

    def fill(self, count: int, *, minutes: float = 1) -> datetime:
        """Put records, and let time go by; a moment after they arrived, and before anything else does."""
        arrived = milliseconds(self.source.topic("orders").as_of or datetime.now(UTC))
        for number in range(count):
            key, data = f"key {number}", b"%d" % number
            answer = self.client.put_record(StreamName="orders", Data=data, PartitionKey=key)
            seen = SeenRecord(answer["SequenceNumber"], arrived, digest_of(key.encode(), data))
            self.put.setdefault(TopicPartition("orders", number_of(answer["ShardId"])), []).append(seen)
        self.server.advance(60 * minutes)
        return datetime.fromtimestamp(arrived / 1000, UTC) + timedelta(seconds=30)

    def split(self, shard: int, share: float = 0.5) -> None:
        """Split a shard at a share of its hash keys."""
        first, last = next(s.hash_keys for s in list_shards(self.client, "orders") if s.number == shard)
        at = str(first + round((last - first) * share))
        self.client.split_shard(StreamName="orders", ShardToSplit=id_of(shard), NewStartingHashKey=at)
        self.server.advance(60)

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        return self.entries[-1].positions

    def drain(self, most: Callable[[int], int] = lambda count: count) -> None:
        """Read the shards whose parents are read to their ends, a part of them by ``most``, as one commit."""
        shards, reads, ended = list_shards(self.client, "orders"), {}, set[int]()
        parents = {parent for shard in shards for parent in shard.parents}
        for shard in shards:
            tp = TopicPartition("orders", shard.number)
            held, at = len(self.put.get(tp, ())), self.positions.get(tp, 0)
            if set(shard.parents) <= ended:
                end = at + most(held - at)
                ended |= {shard.number} if end == held and shard.number in parents else set()
                reads[tp] = (at, end)
        self._commit(reads, {TopicPartition("orders", number) for number in ended})

    def _commit(self, reads: Mapping[TopicPartition, tuple[int, int]], ended: Collection[TopicPartition] = ()) -> None:
        last = self.entries[-1] if self.entries else None
        positions, bookmarks = dict(last.positions if last else {}), dict(last.bookmarks if last else {})
        ranges, spans = [], {}
        for tp, (start, end) in reads.items():
            positions[tp] = end
            if start < end:
                records = self.put[tp][start:end]
                ranges.append(RangeCounts(OffsetRange(tp, start, end)))
                spans[tp] = Span(records[0].sequence, records[-1].sequence, end - start, 0)
                mark = Bookmark(records[-1].sequence, None, records[-1].arrived, records[-1].digest)
                bookmarks[tp] = mark
            bookmarks[tp] = replace(bookmarks.get(tp, Bookmark()), ended=tp in ended)
            self.edges.setdefault(tp, [0]).append(end)
        self._append(positions, bookmarks, ranges=tuple(ranges), spans=spans)

    def _append(self, positions: Mapping[TopicPartition, int], bookmarks: Any, **fields: Any) -> None:
        given = {"app_id": "a", "attempt_id": "", "topic": "orders", "topic_id": "t", "table_id": "", **fields}
        entry = LedgerEntry(len(self.entries), "drain", positions=positions, bookmarks=bookmarks, **given)
        self.entries.append(entry)

    @property
    def way(self) -> WayBack:
        return self.source.way_back(self.source.topic("orders"), self.entries[::-1])

    def set_back(self, back: SetBack) -> None:
        """Commit it."""
        assert not back.gone
        self._append({**self.positions, **back.positions}, {**self.entries[-1].bookmarks, **back.bookmarks})
        for tp, at in back.positions.items():
            self.edges[tp] = [edge for edge in self.edges[tp] if edge <= at]

    def before(self, tp: TopicPartition, position: int) -> str:
        """The sequence number of the record before a position."""
        return self.put[tp][position - 1].sequence if position else ""


def descendants(reading: Reading, tp: TopicPartition) -> set[TopicPartition]:
    """Shards that continue a shard, or one of these."""
    shards = list_shards(reading.client, "orders")
    children = {TopicPartition("orders", s.number) for s in shards if tp.partition in s.parents}
    return children.union(*(descendants(reading, child) for child in children))


@pytest.mark.parametrize("seed", range(3))
def test_any_walk_of_drains_splits_and_rewinds_goes_to_the_edges_of_a_naive_reading(
    server: KinesisServer, seed: int
) -> None:
    """Procedure: random steps; each offset that a rewind is asked for is random below its position.
    Pass: the edge is the highest position, at or before the offset, that still counts; what continues the shard begins
    again; each bookmark is that of the record before; and none of these shards is ended.
    """
    random, reading, splits = Random(seed), Reading(server, shards=2), 0
    for _ in range(9):
        reading.fill(random.randint(1, 6), minutes=0.1)
        reading.drain(lambda count: random.choice((count, random.randint(0, count))))
        if random.random() < 0.3 and splits < 2:
            number = random.choice([s.number for s in list_shards(reading.client, "orders")][-2:])
            reading.split(number, random.choice((0.5, 0.999999)))
            splits += 1
        read = [tp for tp, at in reading.positions.items() if at]
        if not read or random.random() < 0.5:
            continue
        tp = random.choice(read)
        offset = random.randrange(reading.positions[tp])
        again = {child: 0 for child in descendants(reading, tp) if reading.positions.get(child)}

        back = reading.way.to({tp: offset})

        assert back.positions == {tp: max(edge for edge in reading.edges[tp] if edge <= offset), **again}
        for one, mark in back.bookmarks.items():
            assert mark.sequence == reading.before(one, back.positions.get(one, 0)), (one, back)
        reading.set_back(back)
        assert not any(reading.entries[-1].bookmarks[one].ended for one in {tp, *again})
        known = descendants(reading, tp) & reading.entries[-1].bookmarks.keys()
        assert not any(reading.entries[-1].bookmarks[one].ended for one in known)


def test_a_shard_that_continues_an_empty_one_waits_for_the_first_of_them(server: KinesisServer) -> None:
    """Procedure: a shard with records is split, and a child without records is split as well, before more are put."""
    reading = Reading(server)
    reading.fill(4)
    reading.split(0)
    reading.split(2, 0.5)
    reading.fill(10)
    reading.drain()
    assert reading.entries[-1].bookmarks[C].ended and reading.positions[C] == 0
    assert reading.positions[D] + reading.positions[E] > 0

    back = reading.way.to({A: 2})

    assert back.positions == {A: 0, **{tp: 0 for tp in (B, D, E) if reading.positions[tp]}}
    assert not back.bookmarks[C].ended, "or its children would be read before the first one"


def test_a_moment_leads_to_the_span_of_the_first_record_since_then(server: KinesisServer) -> None:
    """Procedure: three puts, of which one drain reads the first two, another the third; a fourth that none reads."""
    reading = Reading(server)
    start = reading.fill(3)
    middle = reading.fill(4)
    reading.drain()
    end = reading.fill(5)
    reading.drain()
    undrained = reading.fill(2)

    found = [reading.way.offsets_at(at, [A]) for at in (start - timedelta(days=9), start, middle, end, undrained)]

    assert found == [{A: 0}, {A: 0}, {A: 7}, {}, {}]


@pytest.mark.parametrize("behaviour", ["horizon", "refused", "empty"])
def test_what_retention_took_is_gone_and_what_follows_it_is_not(server: KinesisServer, behaviour: Any) -> None:
    """Procedure: three drains ten hours apart; retention passes the first, then the second too."""
    server.behaviour.trimmed_position = behaviour
    reading = Reading(server)
    moments = []
    for count in (4, 5, 6):
        moments.append(reading.fill(count, minutes=600))
        reading.drain()

    assert reading.way.to({A: 3}) == SetBack({A: 0}, gone={A: 4})
    assert reading.way.offsets_at(moments[0] - timedelta(hours=1), [A]) == {A: 0}, "of then, records may be gone"
    back = reading.way.to({A: 6})

    assert back.positions == {A: 4} and not back.gone
    mark, first = back.bookmarks[A], reading.put[A][4]
    assert mark.sequence == reading.before(A, 4)
    assert abs(mark.seen_at - (first.arrived - LATE_MS)) < 5_000, "a record that goes unread from now on is a loss"
    assert mark.held_seconds == 24 * HOUR

    whole, reading.entries = reading.entries, [replace(reading.entries[1], ranges=(), spans={}), *reading.entries[2:]]
    assert reading.way.to({A: 3}).gone == {A: 4}, "of a commit that is gone too, no later edge is taken instead"
    reading.entries = whole
    server.advance(5 * HOUR)
    assert reading.way.to({A: 6}).gone == {A: 9}
    server.advance(48 * HOUR)
    assert reading.way.to({A: 9}).gone == {A: 15}, "nothing is held"


def test_records_older_than_the_first_drain_are_unread_again_since_they_arrived(server: KinesisServer) -> None:
    """Procedure: records are ten hours old when a table begins; its start says that all before is accounted for."""
    reading = Reading(server)
    reading.fill(4, minutes=600)
    start = Bookmark(seen_at=milliseconds(reading.source.topic("orders").as_of or datetime.now(UTC)) - LATE_MS)
    reading.entries = [replace(reading.entries[0], positions={A: 0}, bookmarks={A: start})]
    reading.drain()

    back = reading.way.to({A: 2})

    assert back.bookmarks[A].seen_at < start.seen_at - 9 * HOUR * 1000


def test_commits_that_are_gone_are_told_from_records_that_are_gone(server: KinesisServer) -> None:
    reading = Reading(server)
    for count in (4, 5, 6):
        reading.fill(count)
        reading.drain()
    del reading.entries[:1]

    with pytest.raises(SpanForgotten, match=r"offsets \[0, 4\)"):
        reading.way.to({A: 2})
    assert reading.way.to({A: 5}).positions == {A: 4}, "the oldest entry that is known has its bookmark"
    del reading.entries[:1]
    with pytest.raises(SpanForgotten, match=r"offsets \[2, 4\)"):
        reading.way.to({A: 2})
    with pytest.raises(SpanForgotten, match=r"offsets \[4, 9\)"):
        reading.way.to({A: 5})


def test_offsets_that_were_given_up_are_not_read_again(server: KinesisServer) -> None:
    """Procedure: a loss is declared between two drains, as one number."""
    reading = Reading(server)
    reading.fill(4)
    reading.drain()
    lost = replace(reading.entries[-1], version=9, positions={A: 5}, ranges=(), spans={})
    reading.fill(3)
    reading.entries.append(lost)
    records = reading.put[A][4:]
    span = {A: Span(records[0].sequence, records[-1].sequence, 3, 0)}
    read = replace(lost, version=10, positions={A: 8}, ranges=(RangeCounts(OffsetRange(A, 5, 8)),), spans=span)
    reading.entries.append(read)

    assert [reading.way.to({A: at}).positions for at in (7, 5, 4, 3)] == [{A: 5}, {A: 5}, {A: 5}, {A: 0}]
    assert reading.way.to({A: 4}).bookmarks[A].sequence == lost.bookmarks[A].sequence
