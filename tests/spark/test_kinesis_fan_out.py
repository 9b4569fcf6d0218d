"""Whole drains of a Kinesis stream with enhanced fan-out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from botocore.exceptions import ClientError
from pyspark.sql import SparkSession

from kdi_assets.dev.kinesis.faults import Fault
from kdi_assets.dev.kinesis.server import KinesisServer, start_kinesis
from kdi_assets.drain.drain import drain
from kdi_assets.runtime.threads import start_in_thread
from kdi_assets.sources.kinesis.errors import ConsumerGone, ConsumerTaken, NoSuchConsumer
from kdi_assets.sources.kinesis.shards import id_of
from kdi_assets.stream.stream import Stream, TopicPartition
from tests.kinesis import kinesis_client
from tests.oracle import entries, read_back
from tests.spark.test_kinesis import Put, described

EFO = {"mode": "efo"}
POLLING = {"mode": "polling"}
OURS = "kdi_orders"
PATIENCE_SECONDS = 60
NEVER_NEAR_MS = 100_000  # a drain goes on until it is so old, or this is 0 again


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[KinesisServer]:
    """A server that both clients reach with the keys of the environment."""
    server = start_kinesis()
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    yield server
    server.stop()


def meanwhile(
    server: KinesisServer, act: Callable[[], object], *, operation: str = "SubscribeToShard", calls: int = 1
) -> Future[None]:
    """Act once there were so many calls."""

    def wait_and_act() -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while server.calls(operation) < calls:
            assert time.monotonic() < deadline, f"fewer than {calls} calls of {operation}"
            time.sleep(0.05)
        act()

    return start_in_thread(wait_and_act, name="meanwhile")


def consumer_of(orders: Put, name: str = OURS) -> dict[str, Any]:
    """What the server says of a consumer."""
    arn = orders.client.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]["StreamARN"]
    described: dict[str, Any] = orders.client.describe_stream_consumer(StreamARN=arn, ConsumerName=name)
    return described["ConsumerDescription"]  # type: ignore[no-any-return]


def registered(orders: Put, name: str) -> str:
    """The ARN of a consumer that somebody registered."""
    arn = orders.client.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]["StreamARN"]
    made = orders.client.register_stream_consumer(StreamARN=arn, ConsumerName=name)
    orders.server.advance(1)
    return str(made["Consumer"]["ConsumerARN"])


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

    assert orders.drained() == orders.ids
    assert server.calls("SubscribeToShard") > len(faults)


def test_a_subscription_that_ends_after_five_minutes_is_made_again(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = Put(spark, lake, server, shards=1, consumer=EFO)
    orders.put(300)
    server.behaviour.least_behind_ms = NEVER_NEAR_MS

    def pass_five_minutes() -> None:
        server.advance(301)
        meanwhile(server, lambda: setattr(server.behaviour, "least_behind_ms", 0), calls=2).result()

    passed = meanwhile(server, pass_five_minutes)
    orders.drain()

    passed.result()
    assert orders.drained() == orders.ids
    assert server.calls("SubscribeToShard") == 2


def test_a_shard_that_ends_after_its_iterator_failed_is_looked_at_behind_its_last_record(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: poll a closed shard; the iterator after its records expires before the end is told.
    Pass: beside the reader's 3 calls, the second client asks for the first record, the last, and what follows it.
    """
    orders = Put(spark, lake, server, shards=1, consumer=POLLING)
    orders.put(30)
    orders.client.split_shard(StreamName="orders", ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
    server.advance(60)
    server.order(Fault("GetRecords", shard=id_of(0), skip=1, repeats=True))
    server.order(Fault("GetRecords", shard=id_of(0), skip=2, code="ExpiredIteratorException"))
    server.behaviour.least_behind_ms = NEVER_NEAR_MS
    reset = meanwhile(
        server, lambda: setattr(server.behaviour, "least_behind_ms", 0), operation="GetRecords", calls=1 + 3
    )

    orders.drain()

    reset.result()
    assert orders.drained() == orders.ids
    assert orders.entries()[-1].bookmarks[TopicPartition("orders", 0)].ended
    assert server.calls("GetRecords", shard=id_of(0)) == 3 + 3


def test_a_shard_that_is_split_while_it_is_read_is_ended_and_not_subscribed_to_again(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = Put(spark, lake, server, shards=1, consumer=EFO)
    orders.put(300)
    server.behaviour.least_behind_ms = NEVER_NEAR_MS

    def split() -> None:
        orders.client.split_shard(StreamName="orders", ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
        server.advance(120)

    done = meanwhile(server, split)
    orders.drain()
    done.result()
    server.behaviour.least_behind_ms = 0
    orders.put(200)
    orders.drain()

    assert orders.drained() == orders.ids
    assert {tp.partition: mark.ended for tp, mark in orders.entries()[-1].bookmarks.items()} == {
        0: True,
        1: False,
        2: False,
    }
    assert server.calls("SubscribeToShard", shard=id_of(0)) == 1


def test_a_drain_whose_consumer_another_drain_takes_ends_and_the_other_one_commits(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = Put(spark, lake, server, shards=1, consumer=EFO)
    orders.put(300)
    server.behaviour.least_behind_ms = NEVER_NEAR_MS

    def take() -> int:
        server.advance(6)
        return orders.drain()

    other = meanwhile(server, take)
    with pytest.raises(ConsumerTaken, match="another drain of orders is active"):
        orders.drain()
    server.behaviour.least_behind_ms = 0
    other.result()

    assert orders.drained() == orders.ids
    assert len([entry for entry in orders.entries() if entry.kind == "drain"]) == 1


def test_a_consumer_that_stays_in_use_stops_a_drain(spark: SparkSession, lake: str, server: KinesisServer) -> None:
    orders = Put(spark, lake, server, shards=1, consumer=EFO)
    orders.put(20)
    server.order(Fault("SubscribeToShard", times=2, code="ResourceInUseException"))

    with pytest.raises(ConsumerTaken):
        orders.drain()
    assert orders.drained() == []
    orders.drain()

    assert orders.drained() == orders.ids


def test_a_consumer_that_is_deregistered_while_it_reads_is_registered_by_the_next_drain(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = Put(spark, lake, server, shards=1, consumer=EFO)
    orders.put(300)
    server.behaviour.least_behind_ms = NEVER_NEAR_MS

    def deregister() -> None:
        orders.client.deregister_stream_consumer(ConsumerARN=consumer_of(orders)["ConsumerARN"])

    gone = meanwhile(server, deregister)
    with pytest.raises(ConsumerGone, match=OURS):
        orders.drain()
    gone.result()
    server.behaviour.least_behind_ms = 0
    assert orders.drained() == []
    orders.drain()

    assert orders.drained() == orders.ids
    assert server.calls("RegisterStreamConsumer") == 2


def test_a_consumer_of_ours_may_end_with_each_drain(spark: SparkSession, lake: str, server: KinesisServer) -> None:
    orders = Put(spark, lake, server, shards=1, max_records=100, consumer={**EFO, "deregister": "after_drain"})
    for _ in range(2):
        orders.put(150)
        assert orders.drain() == 2, "two plans"
        with pytest.raises(ClientError, match="not found"):
            consumer_of(orders)

    assert orders.drained() == orders.ids
    assert server.calls("RegisterStreamConsumer") == 2


def test_a_consumer_that_someone_registered_is_used_and_stays(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = Put(spark, lake, server, shards=1, consumer={**EFO, "registered": "analytics"})
    orders.put(30)
    with pytest.raises(NoSuchConsumer):
        orders.drain()
    arn = registered(orders, "analytics")
    assert orders.drain() == 1
    orders.put(40)
    by_arn = {"consumer": {**EFO, "registered": arn}}
    assert (
        len(drain(described(Path(lake).parent / "arn", server, by_arn), lake=lake, session=lambda: spark).commits) == 1
    )

    assert orders.drained() == orders.ids
    assert server.calls("RegisterStreamConsumer") == 1
    assert consumer_of(orders, "analytics")["ConsumerStatus"] == "ACTIVE"


def test_a_drain_with_fan_out_leaves_the_shared_calls_to_other_readers(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: another reader polls each shard two times a second while a table is drained by fan-out.
    Pass: it is never throttled. The drain makes 5 calls of GetRecords a shard, whatever the number of records: the
    record of the bookmark and the first one after it, before and after the reading; the last record between them.
    """
    orders = Put(spark, lake, server, shards=2, consumer=EFO)
    orders.put(50)
    orders.drain()
    orders.put(20_000)
    before, over = server.calls("GetRecords"), Event()

    def poll() -> int:
        polled = 0
        with closing(kinesis_client(server.endpoint)) as client:
            places = [
                client.get_shard_iterator(StreamName="orders", ShardId=id_of(n), ShardIteratorType="LATEST")
                for n in range(2)
            ]
            while not over.wait(0.5):
                for place in places:  # the client never tries again: a refusal is raised
                    client.get_records(ShardIterator=place["ShardIterator"])
                    polled += 1
        return polled

    other = start_in_thread(poll, name="another reader")
    assert orders.drain() == 1
    over.set()
    polled = other.result()

    assert orders.drained() == orders.ids
    assert server.calls("GetRecords") - before - polled == 2 * 5
