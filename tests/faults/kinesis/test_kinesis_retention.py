"""Records that retention removes before a drain reads them, and streams that are deleted and created again."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.errors import KdiError, Transient
from kdi_assets.messages.kinesis.errors import ShardTrimmed
from kdi_assets.streams.drain.plan_errors import TopicPartitionVanished, TopicRecreated
from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.driven import Once
from tests.kinesis.drains import EFO, HOUR, NEVER_NEAR_MS, POLLING, Crash, Put, crash_at, meanwhile

retention = pytest.mark.scenario("Kinesis: retention passes a shard's position", "retention passes the position")
BEHAVIOURS = ("horizon", "refused", "empty")


def _assert_refused(orders: Put, *, drained: int, error: type[KdiError] = ShardTrimmed) -> None:
    """Drains refuse what is lost, again and again, and leave the table as it was."""
    for _ in range(2):
        with pytest.raises(error, match="retention"):
            orders.drain()
        orders.server.advance(6)
    assert orders.drained() == orders.ids[:drained]


@retention
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
@pytest.mark.parametrize("unread", [20, 0], ids=["unread records", "nothing unread"])
def test_a_position_that_retention_passed_unseen_is_refused_however_kinesis_answers(
    spark: SparkSession, lake: str, server: KinesisServer, behaviour: Any, unread: int
) -> None:
    """Purpose: nobody can tell what came and went while nobody looked: a silent horizon is a silent loss.
    Procedure: drain; records that nobody reads, or none; 30 hours with a retention of 24; more records.
    """
    server.behaviour.trimmed_position = behaviour
    orders = Put(spark, lake, server, shards=1)
    orders.put(10)
    orders.drain()
    orders.put(unread)
    server.advance(30 * HOUR)
    orders.put(5)

    _assert_refused(orders, drained=10)


@retention
@pytest.mark.parametrize("seen", [True, False], ids=["after it was seen", "before it was seen"])
def test_a_shorter_retention_is_a_loss_only_of_what_nobody_read(
    spark: SparkSession, lake: str, server: KinesisServer, seen: bool
) -> None:
    """Procedure: retention of 72 hours; drain; records; 30 hours; drain or not; retention of 24; more records."""
    orders = Put(spark, lake, server, shards=1)
    orders.client.increase_stream_retention_period(StreamName="orders", RetentionPeriodHours=72)
    orders.put(10)
    orders.drain()
    orders.put(10)
    server.advance(30 * HOUR)
    if seen:
        orders.drain()
    orders.client.decrease_stream_retention_period(StreamName="orders", RetentionPeriodHours=24)
    orders.put(5)

    if not seen:
        _assert_refused(orders, drained=10)
        return
    orders.drain()
    orders.assert_each_record_once()


@retention
@pytest.mark.scenario("Kinesis: shards closed or expired unread")
@pytest.mark.parametrize("children", ["unread", "in the ledger"])
def test_a_shard_that_expires_before_it_was_read_to_its_end_is_a_loss(
    spark: SparkSession, lake: str, server: KinesisServer, children: str
) -> None:
    """Purpose: Kinesis no longer names such a shard, and its children look as if nothing was missing.
    Procedure: a shard with records that nobody read is split; in the second case a drain commits some of them first;
    30 hours; more records in its children.
    """
    orders = Put(spark, lake, server, shards=1, max_records=10)
    orders.put(10)
    orders.drain()
    orders.put(20)
    orders.split_any()
    if children == "in the ledger":
        with pytest.raises(Crash):
            orders.drain(crash_at("commit sent"))
    drained = len(orders.drained())
    server.advance(30 * HOUR)
    orders.put(5)

    assert len(orders.client.list_shards(StreamName="orders")["Shards"]) == 2
    _assert_refused(orders, drained=drained, error=TopicPartitionVanished)


@retention
@pytest.mark.scenario("Kinesis: stream deleted and made again")
@pytest.mark.parametrize("longer", [False, True], ids=["the same retention", "a longer retention"])
def test_what_retention_took_of_a_stream_that_was_made_again_is_a_loss(
    spark: SparkSession, lake: str, server: KinesisServer, longer: bool
) -> None:
    """Purpose: a stream that was made again is drained from its start; nobody knows what came and went before someone
    decided.
    Procedure: drain; the stream is made again; records; 30 hours, after which the retention may be made longer; more
    records; decide ``new-topic``; drain; decide ``accept-loss``; drain.
    Pass: the first drain is refused, the second one has the later records.
    """
    orders = Put(spark, lake, server, shards=1)
    orders.put(10)
    orders.drain()
    orders.make_again(shards=1)
    orders.put(10)
    server.advance(30 * HOUR)
    if longer:
        orders.client.increase_stream_retention_period(StreamName="orders", RetentionPeriodHours=48)
    orders.put(5)

    orders.resolve("new-topic")

    _assert_refused(orders, drained=10)
    orders.resolve("accept-loss")
    orders.drain()
    assert orders.drained() == [*orders.ids[:10], *orders.ids[20:]]
    begun, _ = orders.entries()[-2].lost_between[TopicPartition("orders", 0)]
    assert begun < orders.log[10].put_at.timestamp() * 1000, "the loss begins when the stream was made"


@pytest.mark.scenario("Kinesis: stream deleted and made again", "topic deleted and made again")
@pytest.mark.parametrize("mode", [POLLING, EFO], ids=["polling", "efo"])
@pytest.mark.parametrize("moment", ["idle", "mid-capture", "before reading", "accounted for"])
def test_a_stream_that_is_made_again_mixes_no_epochs(
    spark: SparkSession, lake: str, server: KinesisServer, moment: str, mode: Any
) -> None:
    """Purpose: the new stream has shards of the same names, and records get the same numbers again.
    Procedure: drain; records; the stream is deleted and created again, with more records, while nothing runs, while
    its shards are read, or before the files or the commit of a drain; decide ``new-topic``; drain.
    Pass: drains say that the stream is another one; both are there, each record once, but for those of the old one that
    were not committed.
    """
    orders = Put(spark, lake, server, shards=2, consumer=mode)
    orders.put(10, bad=1)
    orders.drain()
    read = len(orders.log)
    orders.put(10, bad=1)
    waiting = len(orders.log)
    committed = len(orders.entries())

    def make_again() -> None:
        orders.make_again(shards=2)
        orders.put(30, bad=2)
        server.behaviour.least_behind_ms = 0

    match moment:
        case "idle":
            make_again()
        case "mid-capture":
            server.behaviour.least_behind_ms = NEVER_NEAR_MS
            operation = "SubscribeToShard" if mode == EFO else "GetRecords"
            calls = server.calls(operation) + (1 if mode == EFO else 12)
            done = meanwhile(server, make_again, operation=operation, calls=calls)
            with pytest.raises((Transient, TopicRecreated)):
                orders.drain()
            done.result()
        case point:
            with suppress(TopicRecreated):
                orders.drain(Once(point, make_again))
    with pytest.raises(TopicRecreated):
        orders.drain()
    if len(orders.entries()) == committed:
        orders.log[read:waiting] = []
    assert (len(orders.entries()) > committed) == (moment == "accounted for"), "it was read whole before"
    orders.resolve("new-topic")
    server.advance(6)
    orders.drain()

    orders.assert_each_record_once()
