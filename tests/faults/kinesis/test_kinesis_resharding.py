"""Shards that are split, merged and scaled, at every moment of a drain and while nothing drains."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.kinesis.shards import id_of
from kdi_assets.messages.kinesis.source import KinesisSource
from kdi_assets.tools.local.kinesis.faults import Fault
from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.driven import Once
from tests.kinesis.drains import EFO, HOUR, NEVER_NEAR_MS, POLLING, Crash, Put, crash_at, meanwhile
from tests.oracle import read_back

pytestmark = pytest.mark.scenario("Kinesis: shards split, merged, scaled")

FIRST = 1200
"""The number of the first shard: old streams had others before."""
RESHARDINGS: dict[str, Callable[[Put], None]] = {
    "split": Put.split_any,
    "merged": Put.merge_any,
    "scaled up": lambda orders: orders.scale(+1),
    "scaled down": lambda orders: orders.scale(-1),
}
MOMENTS = ("idle", "mid-capture", "before reading", "accounted for", "between two crashes")


@pytest.mark.parametrize("mode", [POLLING, EFO], ids=["polling", "efo"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_shards_that_are_resharded_at_any_moment_are_read_once_and_after_their_parents(
    spark: SparkSession, lake: str, server: KinesisServer, moment: str, mode: Any
) -> None:
    """Purpose: the shards of a stream may change between any two requests of a drain.
    Procedure: old shard numbers, and children listed before their parents. Shards are split, merged, scaled up and
    down, each time with records before and after: between two drains, while they are read, between capture and commit,
    or between two drains that end before their commit.
    Pass: each record is a row once; no child is read before its parents are ended; the audit is complete.
    """
    server.behaviour.first_shard = FIRST
    server.behaviour.newest_shards_first = True
    orders = Put(spark, lake, server, shards=2, consumer=mode)
    orders.put(10)
    orders.drain()

    for reshard in RESHARDINGS.values():
        orders.put(10)
        _drain_and(orders, reshard, moment)
        orders.put(10)
        server.advance(6)
    orders.drain()

    orders.assert_each_record_once()
    assert min(tp.partition for tp in orders.entries()[-1].positions) == FIRST


def _drain_and(orders: Put, reshard: Callable[[Put], None], moment: str) -> None:
    """Drain, and reshard at the moment."""
    behaviour = orders.server.behaviour
    match moment:
        case "idle":
            reshard(orders)
            orders.drain()
        case "mid-capture":
            operation = "SubscribeToShard" if orders.by_fan_out else "GetRecords"
            behaviour.least_behind_ms = NEVER_NEAR_MS

            def act() -> None:
                reshard(orders)
                orders.put(5)
                behaviour.least_behind_ms = 0

            begun = orders.server.calls(operation)
            # The second client has looked by then: twice at each shard that was read before.
            calls = begun + (1 if orders.by_fan_out else 10)
            acted = meanwhile(orders.server, act, operation=operation, calls=calls)
            orders.drain()
            acted.result()
        case "between two crashes":
            for _ in range(2):
                with pytest.raises(Crash):
                    orders.drain(crash_at("accounted for"))
                reshard(orders) if _ == 0 else orders.put(5)
                orders.server.advance(6)
            orders.drain()
        case point:
            reshards = Once(point, lambda: reshard(orders))
            orders.drain(reshards)
            assert reshards.happened


@pytest.mark.scenario("Kinesis: shards closed or expired unread")
@pytest.mark.parametrize("mode", [POLLING, EFO], ids=["polling", "efo"])
def test_generations_of_shards_that_nobody_read_are_read_in_their_order(
    spark: SparkSession, lake: str, server: KinesisServer, mode: Any
) -> None:
    """Purpose: a job that was down for long meets parents, grandparents and shards that were closed before it saw them.
    Procedure: before the first drain and between the next two, shards are split, merged and scaled, each time with new
    versions of ten keys; one generation stays without records.
    Pass: each record is a row once, in the order of its key; every shard that is closed is ended.
    """
    server.behaviour.newest_shards_first = True
    orders = Put(spark, lake, server, shards=2, consumer=mode)
    for _ in range(2):
        for reshard in (Put.split_any, Put.merge_any, lambda put: put.scale(+1), Put.merge_any):
            orders.put_versions(10)
            reshard(orders)
        orders.split_any()  # of a shard without records
        orders.put_versions(10)
        orders.drain()
        server.advance(6)

    orders.assert_each_record_once()
    of_key: dict[str, list[int]] = {}
    key = {json.loads(record.value)["id"]: record.key for record in orders.log}
    for each in _drained_in_order(orders):
        of_key.setdefault(key[each], []).append(each)
    assert all(ids == sorted(ids) for ids in of_key.values()), f"a key's records are out of order: {of_key}"
    marks = orders.entries()[-1].bookmarks
    listed = orders.client.list_shards(StreamName="orders")["Shards"]
    closed = {s["ShardId"] for s in listed if "EndingSequenceNumber" in s["SequenceNumberRange"]}
    assert {id_of(tp.partition) for tp, mark in marks.items() if mark.ended} == closed


def _drained_in_order(orders: Put) -> list[int]:
    """The ids in the order of commits, and in each of their numbers."""
    rows = read_back(orders.stream, orders.lake).rows
    at = {(row["kinesis"]["partition"], row["kinesis"]["offset"]): row["id"] for row in rows}
    ranges = [counts.range for entry in orders.entries() for counts in entry.ranges]
    return [at[r.topic_partition.partition, number] for r in ranges for number in range(r.start, r.end)]


@pytest.mark.scenario("Kinesis: shards closed or expired unread")
def test_a_closed_shard_with_more_records_than_a_plan_is_not_ended_by_the_first_plan(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Purpose: closed is not read to the end.
    Procedure: plans of ten records; put 35 and close the shard; a drain ends after its first commit; drain.
    """
    orders = Put(spark, lake, server, shards=1, max_records=10)
    orders.put(35)
    orders.split_any()
    orders.put(5)
    with pytest.raises(Crash):
        orders.drain(crash_at("commit sent"))
    ended = [mark.ended for mark in orders.entries()[-1].bookmarks.values()]
    orders.drain()

    assert ended and not any(ended)
    orders.assert_each_record_once()


@pytest.mark.scenario("Kinesis: shards closed or expired unread")
@pytest.mark.parametrize("mode", [POLLING, EFO], ids=["polling", "efo"])
def test_a_closed_shard_that_needs_several_answers_is_read_to_the_last_one(
    spark: SparkSession, lake: str, server: KinesisServer, mode: Any
) -> None:
    """Procedure: put more records than an answer holds, and close the shard; drain it and its children at once. The
    iterator of the second answer has expired, or the subscription breaks after its first events.
    """
    orders = Put(spark, lake, server, shards=1, consumer=mode)
    orders.put(10_500)
    orders.split_any()
    orders.put(10)
    expires = Fault("GetRecords", shard=id_of(0), skip=2, code="ExpiredIteratorException")
    breaks = Fault("SubscribeToShard", shard=id_of(0), cut_after=300_000)
    server.order(breaks if orders.by_fan_out else expires)

    assert orders.drain() == 2

    orders.assert_each_record_once()


@pytest.mark.scenario("Kinesis: shards closed or expired unread")
def test_shards_expire_one_generation_after_the_other_while_a_table_is_drained(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: four times, records, a split or a merge, a drain, 13 hours: retention is 24."""
    orders = Put(spark, lake, server, shards=2)
    for reshard in (Put.split_any, Put.merge_any, Put.split_any, Put.merge_any):
        orders.put(10)
        reshard(orders)
        orders.put(10)
        orders.drain()
        server.advance(13 * HOUR)
    orders.put(10)
    orders.drain()

    listed = orders.client.list_shards(StreamName="orders")["Shards"]
    assert len(listed) < len(orders.entries()[-1].positions)
    orders.assert_each_record_once()


@pytest.mark.scenario("Kinesis: shards closed or expired unread")
@pytest.mark.parametrize("mode", [POLLING, EFO], ids=["polling", "efo"])
@pytest.mark.parametrize("unread", [5, 0], ids=["unread records", "nothing unread"])
def test_a_closed_shard_hides_no_records_of_its_children_behind_answers_without_records(
    spark: SparkSession, lake: str, server: KinesisServer, monkeypatch: pytest.MonkeyPatch, unread: int, mode: Any
) -> None:
    """Purpose: such an answer says that it is almost of now; then the children may have records that arrived before
    the drain, and once the parent counted as seen until then, retention could take them without a word.
    Procedure: two answers without records come before each one with records, and before the end of a shard; all
    answers come a minute after the drain's moment. A shard has unread records or none, is split, and records arrive;
    a drain ends after its first commit; drain.
    Pass: the parent counts as seen only up to its end, until this is seen; the second drain has read everything.
    """
    orders = Put(spark, lake, server, shards=1, consumer=mode)
    orders.put(5)
    orders.drain()
    server.advance(6)
    server.behaviour.empty_pages = 2
    orders.put(unread)
    orders.split_any()
    orders.put(5)
    real = KinesisSource.described

    def late(*arguments: Any, **options: Any) -> Any:
        found = real(*arguments, **options)
        server.advance(60)
        return found

    monkeypatch.setattr(KinesisSource, "described", late)
    with pytest.raises(Crash):
        orders.drain(crash_at("commit sent"))
    parent = orders.entries()[-1].bookmarks[TopicPartition("orders", 0)]
    orders.drain()

    assert parent.ended or parent.complete_until < orders.log[-1].put_at.timestamp() * 1000
    orders.assert_each_record_once()
