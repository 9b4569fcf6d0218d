"""Whole drains from a source in memory: the way of a message is the same whatever its source is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.stream import OffsetRange, Stream, TopicPartition
from kdi_assets.settings import lake_root
from kdi_assets.streams.audit.audit import audit
from kdi_assets.streams.audit.source_comparison import compare
from kdi_assets.streams.drain.drain import drain
from kdi_assets.streams.drain.errors import AccountingMismatch, UnexplainedGap
from kdi_assets.streams.drain.plan_errors import TopicTruncated
from kdi_assets.streams.drain.shared_read import drain_together
from kdi_assets.streams.replay.replay_dates import replay_dates
from kdi_assets.streams.resolve.resolve import commit_decision, decide
from tests.driven import AS_DECODED
from tests.memory_source import Memory, MemoryMessage, MemorySource
from tests.oracle import entries, read_back

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class World:
    """A stream over a source in memory, and its table."""

    def __init__(self, spark: SparkSession, lake: str, **fields: Any) -> None:
        self.spark, self.lake = spark, lake
        self.source = MemorySource({P0: {}, P1: {}}, **fields)
        memory = Memory("main", "memory", source=self.source)
        self.stream = Stream("orders", "bronze/orders", cluster=memory, **AS_DECODED | {"record_ddl": "id bigint"})

    def put(self, tp: TopicPartition, *offsets: int, value: str = "") -> None:
        """Messages at these offsets; an offset that is left out is a gap."""
        for o in offsets:
            at = NOON + timedelta(seconds=o)
            self.source.log[tp][o] = MemoryMessage(value or json.dumps({"id": 1000 * tp.partition + o}), at)

    def drain(self, at: Callable[[str], None] = lambda point: None, **options: Any) -> int:
        """The number of plans that a drain commits; however it ends, the source holds nothing any more."""
        try:
            return len(drain(self.stream, lake=self.lake, session=lambda: self.spark, at=at, **options).commits)
        finally:
            assert self.source.holds == 0

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in read_back(self.stream, self.lake).rows)

    def entries(self) -> list[Any]:
        return entries(self.stream.table_uri(self.lake), self.stream.app_id)


@pytest.mark.parametrize("reads_ahead", [False, True])
def test_a_drain_brings_each_message_once_and_records_gap_letter_and_positions(
    spark: SparkSession, lake: str, reads_ahead: bool
) -> None:
    world = World(spark, lake, gaps_are_normal=True, reads_ahead=reads_ahead)
    world.put(P0, 0, 1, 4, 5)
    world.put(P1, 0, 1)
    world.put(P1, 2, value="no JSON")

    assert (world.drain(), world.drain()) == (1, 0)
    world.put(P0, 6)
    assert world.drain() == 1

    first, last = (entry for entry in world.entries() if entry.kind == "drain")
    assert world.ids() == [0, 1, 4, 5, 6, 1000, 1001]
    assert [letter["offset"] for letter in read_back(world.stream, lake).dead_letters] == [2]
    assert first.gaps == (OffsetRange(P0, 2, 4),)
    assert last.positions == {P0: 7, P1: 3}
    assert audit(world.stream, lake=lake, session=lambda: spark).complete
    assert (world.source.reads == 0) is reads_ahead


@pytest.mark.parametrize("address", ["{lake}/la ke+ä#", "file:{lake}/la%20ke", "file://{lake}/l%C3%A4ke"])
def test_a_lake_of_any_name_is_one_folder_for_spark_and_for_all_others(
    spark: SparkSession, lake: str, address: str
) -> None:
    world = World(spark, lake_root(address.format(lake=lake)))
    world.put(P0, 0, 1)
    world.put(P1, 0, value="no JSON")

    assert (world.drain(), world.drain()) == (1, 0)

    assert world.ids() == [0, 1]
    assert audit(world.stream, lake=world.lake, session=lambda: spark).complete


def test_a_plan_is_made_of_the_messages_that_the_source_holds(spark: SparkSession, lake: str) -> None:
    """Procedure: the source loses and gains messages after it has read them, before the pass."""
    world = World(spark, lake, reads_ahead=True)
    world.put(P0, 0, 1, 2)

    def change(point: str) -> None:
        assert world.source.holds == 1
        if point == "before reading":
            world.source.log[P0].pop(1, None)
            world.put(P0, 3)

    world.drain(at=change)

    assert world.ids() == [0, 1, 2]


def test_a_drain_goes_up_to_the_ends_that_the_source_held_first(spark: SparkSession, lake: str) -> None:
    world = World(spark, lake, reads_ahead=True)
    world.put(P0, 0, 1)

    assert world.drain(at=lambda point: world.put(P0, 2) if point == "before reading" else None) == 1
    assert world.ids() == [0, 1]
    assert world.drain() == 1
    assert world.ids() == [0, 1, 2]


def test_streams_that_are_drained_together_read_what_the_source_holds_for_each(spark: SparkSession, lake: str) -> None:
    world = World(spark, lake, reads_ahead=True)
    world.put(P0, 0, 1)
    other = replace(world.stream, table="bronze/orders_too")

    drained = drain_together([world.stream, other], lake=lake, session=lambda: spark)

    assert [len(each.result().commits) for each in drained.values()] == [1, 1]
    assert world.ids() == [row["id"] for row in read_back(other, lake).rows] == [0, 1]
    assert (world.source.reads, world.source.holds) == (0, 0)


def test_what_the_source_holds_is_released_when_the_report_fails(spark: SparkSession, lake: str) -> None:
    world = World(spark, lake, reads_ahead=True)
    world.put(P0, 0)

    def report(line: str) -> None:
        if "draining" in line:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        world.drain(report=report)


def test_a_gap_stops_a_drain_where_every_offset_has_a_message(spark: SparkSession, lake: str) -> None:
    world = World(spark, lake)
    world.put(P0, 0, 1, 3)

    with pytest.raises(UnexplainedGap) as refused:
        world.drain()

    assert refused.value.offsets == (OffsetRange(P0, 2, 3),)
    assert world.ids() == [0, 1], "what comes before the gap is drained"


def test_a_message_that_only_the_second_client_sees_stops_a_drain(spark: SparkSession, lake: str) -> None:
    world = World(spark, lake, gaps_are_normal=True, skipped=frozenset({2}))
    world.put(P0, 0, 1, 2, 3)

    with pytest.raises(AccountingMismatch, match="offset 2 of orders/0"):
        world.drain()

    assert world.ids() == []


def test_a_topic_whose_end_was_lost_is_refused_until_a_rewind_drains_it_again(spark: SparkSession, lake: str) -> None:
    world = World(spark, lake)
    world.put(P0, 0, 1, 2)
    world.drain()
    world.source.log[P0].pop(2)
    world.put(P0, 2, 3, value='{"id": 77}')

    with pytest.raises(TopicTruncated):
        world.drain()
    assert world.ids() == [0, 1, 2]
    decision = decide(world.stream, lake, "rewind", topic_partition=P0, to=1, session=lambda: spark)
    commit_decision(spark, decision, world.stream, lake)
    world.drain()

    assert world.ids() == [0, 1, 77, 77]


def test_a_replay_and_a_comparison_read_the_source_again(spark: SparkSession, lake: str) -> None:
    world = World(spark, lake)
    world.put(P0, 0, 1, 2)
    world.drain()

    day = NOON.date()
    replay_dates(world.stream, lake=lake, session=lambda: spark, first=day, last=day)
    found = compare(world.stream, lake=lake, session=lambda: spark)

    assert world.ids() == [0, 1, 2]
    assert (found.messages, found.agrees) == (3, True)
