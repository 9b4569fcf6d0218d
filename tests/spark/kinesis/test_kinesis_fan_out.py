"""Whole drains of a Kinesis stream with enhanced fan-out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.stream import Stream, TopicPartition
from kdi_assets.messages.kinesis.capture import Capture, captured
from kdi_assets.messages.kinesis.shards import id_of
from kdi_assets.runtime.threads import start_in_thread
from kdi_assets.streams.audit.audit import audit
from kdi_assets.streams.drain.drain import drain
from kdi_assets.tools.local.kinesis.faults import Fault
from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.kinesis.drains import EFO, NEVER_NEAR_MS, POLLING, Put, described, meanwhile, reads_on
from tests.kinesis.endpoint import kinesis_client
from tests.oracle import entries, read_back

PAGE = 10_000
TEXT = "x" * 250


@pytest.mark.core
@pytest.mark.scenario("Kinesis: shards split, merged, scaled", "Kinesis: subscriptions taken, ended, cut off")
def test_rows_and_positions_are_the_same_in_both_modes(spark: SparkSession, lake: str, server: KinesisServer) -> None:
    """Purpose: the mode may change between any two drains of a table.
    Procedure: drain a stream into three tables: polled, with fan-out, and with both in turns; while the second one
    subscribes, split one of 4 shards and merge two; put more, and drain all of them two times more.
    Pass: each id is in each table once; rows, positions and bookmarks are the same.
    """
    orders = Put(spark, lake, server, shards=4, consumer=EFO)
    folder = Path(lake).parent
    polled = described(folder / "polled", server, {"table": "bronze/polled", "consumer": POLLING})
    in_turns = [
        described(folder / mode, server, {"table": "bronze/in_turns", "consumer": {"mode": mode}})
        for mode in ("efo", "polling", "efo")
    ]
    orders.put(900)

    def reshard() -> None:
        orders.client.split_shard(StreamName="orders", ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 125))
        server.advance(6)
        orders.client.merge_shards(StreamName="orders", ShardToMerge=id_of(1), AdjacentShardToMerge=id_of(2))
        server.advance(6)
        orders.put(400)

    resharded = meanwhile(server, reshard)
    for turn, mixed in enumerate(in_turns):
        orders.drain()
        resharded.result()
        for stream in (polled, mixed):
            server.advance(6)
            drain(stream, lake=lake, session=lambda: spark)
        if turn < 2:
            orders.put(350)

    tables = [rows_and_marks(stream, lake) for stream in (polled, orders.stream, mixed)]
    assert sorted(row["id"] for row in tables[0][0]) == orders.ids
    assert tables[0] == tables[1] == tables[2]
    assert {number: mark["ended"] for number, mark in tables[0][2].items()} == {
        **dict.fromkeys((0, 1, 2), True),
        **dict.fromkeys((3, 4, 5, 6), False),
    }


def test_many_records_of_shards_that_split_and_merge_are_the_same_rows_in_both_modes(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Purpose: what both modes promise, with pages and events that fill a shard's throughput.
    Procedure: drain 200,000 records of 4 shards into two tables, one by fan-out and one by polling; while each of them
    reads, split a shard, merge two, and put more. Another reader polls two times a second while fan-out reads.
    Pass: each id is in each table once, and the rows are the same; both audits are complete. The other reader is never
    refused. Polling asks at most 1.1 times for each page that has records, and two times for each seam.
    """
    orders = Put(spark, lake, server, shards=4, consumer=EFO)
    polled = described(Path(lake).parent / "polled", server, {"table": "bronze/polled", "consumer": POLLING})

    def reshard(split: int, at: int, *merged: int) -> None:
        name = {"StreamName": "orders"}
        orders.client.split_shard(**name, ShardToSplit=id_of(split), NewStartingHashKey=str(at))
        server.advance(6)
        orders.client.merge_shards(**name, ShardToMerge=id_of(merged[0]), AdjacentShardToMerge=id_of(merged[1]))
        server.advance(6)
        orders.put(40_000, text=TEXT)

    def drain_polled() -> int:
        before = server.calls("GetRecords")
        drain(polled, lake=lake, session=lambda: spark)
        return server.calls("GetRecords") - before

    orders.put(120_000, text=TEXT)
    resharded = meanwhile(server, lambda: reshard(0, 1 << 125, 1, 2))
    before = server.calls("GetRecords")
    polls, _ = polled_by_another(server, lambda: orders.drain())
    shared = server.calls("GetRecords") - before - polls
    resharded.result()
    resharded = meanwhile(
        server, lambda: reshard(3, 7 << 125, 5, 6), operation="GetRecords", calls=server.calls("GetRecords") + 12
    )
    asked = drain_polled()
    resharded.result()
    orders.drain()
    asked += drain_polled()

    by_fan_out, by_polling = rows_and_marks(orders.stream, lake), rows_and_marks(polled, lake)
    assert sorted(row["id"] for row in by_fan_out[0]) == orders.ids == [*range(200_000)]
    assert by_fan_out == by_polling
    assert orders.audit().complete
    assert audit(polled, lake=lake, session=lambda: spark).complete
    assert shared <= 5 * 7, "of each shard the record of the bookmark and the next one, two times, and the last one"
    drains = entries(polled.table_uri(lake), polled.app_id)
    spans = [span for entry in drains for span in entry.spans.values()]
    looks = 2 * len(drains[-1].bookmarks)  # at the end of each of the two drains nothing was left
    assert asked <= 1.1 * sum(-(-span.records // PAGE) for span in spans) + 2 * (2 * len(spans) + looks)


def rows_and_marks(stream: Stream, lake: str) -> tuple[list[Any], dict[int, int], dict[int, dict[str, Any]]]:
    """Rows in the order of their coordinates, positions, and bookmarks without the moment of the drain."""
    last = entries(stream.table_uri(lake), stream.app_id)[-1]
    rows = sorted(read_back(stream, lake).rows, key=lambda row: (row["kinesis"]["partition"], row["kinesis"]["offset"]))
    marks = {
        tp.partition: {"sequence": m.sequence, "arrived": m.arrived, "digest": m.digest, "ended": m.ended}
        for tp, m in last.bookmarks.items()
    }
    return rows, {tp.partition: at for tp, at in last.positions.items()}, marks


FAULTS = {
    "dropped in the first event": [Fault("SubscribeToShard", cut_after=500)],
    "dropped in the second event": [Fault("SubscribeToShard", cut_after=300_000)],
    "one call too many": [Fault("SubscribeToShard", times=3, code="LimitExceededException")],
    "server error": [Fault("SubscribeToShard", code="InternalFailure", status=500)],
    "in use once": [Fault("SubscribeToShard", code="ResourceInUseException")],
}


@pytest.mark.scenario("Kinesis: subscriptions taken, ended, cut off")
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_subscriptions_that_fail_neither_lose_nor_double_a_record(
    spark: SparkSession, lake: str, server: KinesisServer, faults: list[Fault]
) -> None:
    """Procedure: events without records come before those with records, and arrivals are not in order."""
    orders = Put(spark, lake, server, shards=1, consumer=EFO)
    orders.put(2_500)
    server.behaviour.empty_pages = 2
    server.behaviour.arrival_jitter_ms = 300
    for fault in faults:
        server.order(fault)

    assert orders.drain() == 1

    orders.assert_each_record_once()
    assert server.calls("SubscribeToShard") > len(faults)


@pytest.mark.scenario("Kinesis: subscriptions taken, ended, cut off")
def test_a_subscription_that_ends_after_five_minutes_is_made_again(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = reads_on(spark, lake, server)

    def pass_five_minutes() -> None:
        server.advance(301)
        meanwhile(server, lambda: setattr(server.behaviour, "least_behind_ms", 0), calls=2).result()

    passed = meanwhile(server, pass_five_minutes)
    orders.drain()

    passed.result()
    orders.assert_each_record_once()
    assert server.calls("SubscribeToShard") == 2


@pytest.mark.scenario("Kinesis: requests throttled, failed, cut off, repeated")
def test_a_shard_that_ends_after_its_iterator_failed_is_looked_at_behind_its_last_record(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: poll a closed shard; the iterator after its records expires before the end is told.
    Pass: beside the reader's 2 iterators, the second client takes one for the first record, one for the last, and one
    for what follows it. Calls of GetRecords are too many for a second, and made again.
    """
    orders = Put(spark, lake, server, shards=1, consumer=POLLING)
    orders.put(30)
    orders.split()
    server.order(Fault("GetRecords", shard=id_of(0), skip=1, repeats=True))
    server.order(Fault("GetRecords", shard=id_of(0), skip=2, code="ExpiredIteratorException"))
    server.behaviour.least_behind_ms = NEVER_NEAR_MS

    orders.drain(lambda point: setattr(server.behaviour, "least_behind_ms", 0))  # the children are looked at later

    assert orders.drained() == orders.ids
    assert orders.entries()[-1].bookmarks[TopicPartition("orders", 0)].ended
    assert server.calls("GetShardIterator", shard=id_of(0)) == 2 + 3


@pytest.mark.scenario("Kinesis: subscriptions taken, ended, cut off", "Kinesis: shards split, merged, scaled")
def test_a_shard_that_is_split_while_it_is_read_is_ended_and_not_subscribed_to_again(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = reads_on(spark, lake, server)

    def split() -> None:
        orders.client.split_shard(StreamName="orders", ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
        server.advance(120)

    done = meanwhile(server, split)
    orders.drain()
    done.result()
    server.behaviour.least_behind_ms = 0
    orders.put(200)
    orders.drain()

    orders.assert_each_record_once()
    assert {tp.partition: mark.ended for tp, mark in orders.entries()[-1].bookmarks.items()} == {
        0: True,
        1: False,
        2: False,
    }
    assert server.calls("SubscribeToShard", shard=id_of(0)) == 1


def test_a_drain_with_fan_out_leaves_the_shared_calls_to_other_readers(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: another reader polls each shard two times a second while a table is drained by fan-out.
    Pass: it is throttled once a shard at most. The drain makes 5 calls of GetRecords a shard, whatever the number of
    records: the record of the bookmark and the first one after it, before and after the reading; the last record
    between them. If all come in one second, they and those of the other reader are more than a shard's five: each
    refused one is made once more.
    """
    orders = Put(spark, lake, server, shards=2, consumer=EFO)
    orders.put(50)
    orders.drain()
    orders.put(20_000)
    before, plans = server.calls("GetRecords"), list[int]()

    polled, refused = polled_by_another(server, lambda: plans.append(orders.drain()))

    assert plans == [1]
    assert orders.drained() == orders.ids
    assert refused <= 2
    assert 2 * 5 <= server.calls("GetRecords") - before - polled <= 2 * 6


def polled_by_another(server: KinesisServer, work: Callable[[], object]) -> tuple[int, int]:
    """Let another reader poll the first two shards two times a second while the work is done.

    Returns:
        Its calls, and how many of them were refused.
    """
    over = Event()

    def poll() -> tuple[int, int]:
        polled = refused = 0
        with closing(kinesis_client(server.endpoint)) as client:
            places = [
                client.get_shard_iterator(StreamName="orders", ShardId=id_of(n), ShardIteratorType="LATEST")
                for n in range(2)
            ]
            while not over.wait(0.5):
                for place in places:  # the client never tries again: a refusal is raised
                    polled += 1
                    try:
                        client.get_records(ShardIterator=place["ShardIterator"])
                    except client.exceptions.ProvisionedThroughputExceededException:
                        refused += 1
        return polled, refused

    other = start_in_thread(poll, name="another reader")
    try:
        work()
    finally:
        over.set()
    return other.result()


@pytest.mark.scenario("Kinesis: subscriptions taken, ended, cut off")
def test_a_reader_goes_on_through_any_number_of_empty_events_that_come_nearer_to_the_end(
    spark: SparkSession, lake: str, server: KinesisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: a stream that was idle for days has more of them than a limit allows, and each try begins anew."""
    orders, empty_events = Put(spark, lake, server, shards=1, consumer=EFO), 1_100
    orders.put(3)

    @contextmanager
    def far_from_the_end(*args: Any, **options: Any) -> Iterator[Capture]:
        server.behaviour.empty_pages = empty_events
        with captured(*args, **options) as capture:
            server.behaviour.empty_pages = 0
            yield capture

    monkeypatch.setattr("kdi_assets.messages.kinesis.source.captured", far_from_the_end)
    orders.drain()

    orders.assert_each_record_once()
