"""Records of Kinesis that are gone unread: a drain refuses, ``accept-loss`` decides, the next drain reads on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.delta.transaction import Staged
from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.kinesis.errors import BookmarkDiffers, ShardTrimmed
from kdi_assets.messages.kinesis.shards import id_of
from kdi_assets.messages.of_stream import source_of
from kdi_assets.operate.monitoring.commit_history import commit_history
from kdi_assets.streams.drain.plan_errors import TopicPartitionVanished
from kdi_assets.streams.ledger.commit import commit, next_entry
from kdi_assets.streams.ledger.positions import read_ledger
from kdi_assets.streams.resolve.errors import NothingToResolve
from kdi_assets.streams.resolve.resolve import Decision
from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.kinesis.drains import EFO, HOUR, Crash, Put, crash_at
from tests.oracle import read_back

SHARD = TopicPartition("orders", 0)
SECOND = 1000


def accept(orders: Put, only: TopicPartition | None = None) -> Decision:
    return orders.resolve("accept-loss", topic_partition=only)


def lost_between(decision: Decision) -> dict[int, tuple[int, int]]:
    return {tp.partition: between for tp, between in decision.lost_between.items()}


def now_ms(orders: Put) -> int:
    return round(orders.server.now() * SECOND)


def assert_audited(orders: Put, *, losses: int) -> None:
    report = orders.audit()

    assert (report.complete, report.declared_losses) == (True, losses), report.line()
    assert report.rows == len(orders.drained())


def trimmed(spark: SparkSession, lake: str, server: KinesisServer, **fields: Any) -> Put:
    """A shard of which 10 records were read; then came 20 that retention took, and 5 that are held."""
    orders = Put(spark, lake, server, shards=1, **fields)
    orders.put(10)
    orders.drain()
    orders.put(20)
    server.advance(30 * HOUR)
    orders.put(5)
    return orders


@pytest.mark.parametrize("behaviour", ["horizon", "refused", "empty"])
def test_after_an_accepted_loss_all_that_is_held_is_read_once(
    spark: SparkSession, lake: str, server: KinesisServer, behaviour: Any
) -> None:
    """Pass: one number stands for what is gone; the decision, the ledger and the history say when it arrived."""
    server.behaviour.trimmed_position = behaviour
    orders = trimmed(spark, lake, server, consumer=EFO if behaviour == "refused" else {"mode": "polling"})
    with pytest.raises(ShardTrimmed, match="kdi resolve bronze/orders accept-loss --yes"):
        orders.drain()
    assert orders.drained() == orders.ids[:10]

    decision = accept(orders)
    orders.drain()

    assert decision.declared_losses == (OffsetRange(SHARD, 10, 11),)
    since, until = lost_between(decision)[0]
    assert (now_ms(orders) - since) // SECOND == pytest.approx(30 * HOUR, abs=120), "the last record that was read"
    assert (now_ms(orders) - until) // SECOND == pytest.approx(0, abs=60), "the first one that is held"
    assert orders.drained() == [*orders.ids[:10], *orders.ids[30:]]
    offsets = sorted(row["kinesis"]["offset"] for row in read_back(orders.stream, lake).rows)
    assert offsets == [*range(10), *range(11, 16)]
    assert_audited(orders, losses=1)
    compared = orders.compare()
    assert (compared.agreed, compared.absent, compared.faults) == (5, 0, ()), "what is gone is no fault of a drain"
    said = [event.description for event in commit_history(orders.stream, lake) if event.operation == "resolve"]
    assert len(said) == 1
    assert "given up: records that arrived between 20" in said[0]


def test_what_a_first_drain_left_unread_is_refused_once_retention_has_passed_it(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Purpose: the start at the oldest record says that all before it was seen; after a part is read, it is not so.
    Procedure: three records, seven hours between them; a first drain is killed when it has committed the first one; the
    next drain comes when retention has passed the second.
    """
    orders = Put(spark, lake, server, shards=1, max_records=1)
    for _ in range(3):
        orders.put(1)
        server.advance(7 * HOUR)
    with pytest.raises(Crash):
        orders.drain(crash_at("commit sent"))

    server.advance(11 * HOUR)

    assert orders.drained() == orders.ids[:1]
    with pytest.raises(ShardTrimmed, match="may be missing"):
        orders.drain()
    lost_since, _ = lost_between(accept(orders))[0]
    orders.drain()
    assert (now_ms(orders) - lost_since) // SECOND == pytest.approx(32 * HOUR, abs=120), "the one record that was read"
    assert orders.drained() == [orders.ids[0], orders.ids[2]]


def test_a_drain_that_is_killed_after_the_decision_is_made_again(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = trimmed(spark, lake, server)
    accept(orders)

    for point in ("accounted for", "dead letters written"):
        with pytest.raises(Crash):
            orders.drain(crash_at(point))
    orders.drain()

    assert orders.drained() == [*orders.ids[:10], *orders.ids[30:]]
    assert_audited(orders, losses=1)


def test_nothing_is_accepted_where_no_record_is_known_to_be_lost(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Nor a second time before the next drain: that loss is decided."""
    orders = Put(spark, lake, server, shards=1)
    orders.put(10)
    orders.drain()
    orders.put(5)
    with pytest.raises(NothingToResolve, match="no record of orders is known to be lost"):
        accept(orders)
    server.advance(30 * HOUR)

    with pytest.raises(NothingToResolve, match="nobody can set one"):
        orders.decide("accept-loss", topic_partition=SHARD, until=12)
    accept(orders)
    with pytest.raises(NothingToResolve, match="no record of orders is known to be lost"):
        accept(orders)
    orders.drain()

    assert orders.drained() == orders.ids[:10]
    assert_audited(orders, losses=1)


@pytest.mark.parametrize(("minutes", "refused"), [(50, False), (70, True)])
def test_retention_that_goes_on_after_the_decision_is_a_loss_of_its_own_after_an_hour(
    spark: SparkSession, lake: str, server: KinesisServer, minutes: int, refused: bool
) -> None:
    """Procedure: records at every quarter of an hour; accept what is gone, and let retention take more of them.
    Pass: within the hour what is left is read; later the drain refuses; the second loss begins where the first ends.
    """
    orders = Put(spark, lake, server, shards=1)
    orders.put(10)
    orders.drain()
    server.advance(HOUR)
    for _ in range(12):
        server.advance(HOUR / 4)
        orders.put(1)
    server.advance(24 * HOUR - 100 * 60)  # the oldest one that is held goes in 5 minutes
    first = accept(orders)
    server.advance(minutes * 60)

    if refused:
        with pytest.raises(ShardTrimmed):
            orders.drain()
        second = accept(orders)
        assert lost_between(second)[0][0] == pytest.approx(lost_between(first)[0][1], abs=60 * SECOND)
    orders.drain()

    kept = orders.drained()[10:]
    assert kept == orders.ids[-len(kept) :]
    assert 1 <= len(kept) < 7, "some are left, and some went after the decision"
    assert_audited(orders, losses=1 + refused)


def test_a_loss_that_comes_after_an_accepted_one_was_drained_is_refused_again(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = trimmed(spark, lake, server)
    accept(orders)
    orders.drain()
    orders.put(7)
    server.advance(30 * HOUR)
    orders.put(3)

    with pytest.raises(ShardTrimmed):
        orders.drain()
    accept(orders)
    orders.drain()

    assert orders.drained() == [*orders.ids[:10], *orders.ids[30:35], *orders.ids[-3:]]
    assert_audited(orders, losses=2)


def test_a_table_whose_first_drains_all_failed_begins_after_what_is_gone(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: two shards; one of them has records when retention has passed the start."""
    orders = Put(spark, lake, server, shards=2)
    orders.put(20)
    with pytest.raises(Crash):
        orders.drain(crash_at("accounted for"))
    server.advance(30 * HOUR)
    orders.put(10)
    with pytest.raises(ShardTrimmed):
        orders.drain()

    one = accept(orders, TopicPartition("orders", 1))
    with pytest.raises(ShardTrimmed, match=id_of(0)):
        orders.drain()
    other = accept(orders)
    orders.drain()

    assert (set(lost_between(one)), set(lost_between(other))) == ({1}, {0})
    assert orders.drained() == orders.ids[20:]
    assert_audited(orders, losses=2)


def test_a_shard_that_expired_unread_ends_and_its_children_are_read(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Pass: the shard and both children each have a number for what they may have lost."""
    orders = Put(spark, lake, server, shards=1)
    orders.put(10)
    orders.drain()
    orders.put(20)
    orders.split()
    orders.put(30)
    server.advance(30 * HOUR)
    orders.put(40)
    with pytest.raises(TopicPartitionVanished, match="kdi resolve bronze/orders accept-loss --yes"):
        orders.drain()

    decision = accept(orders)
    orders.drain()
    orders.put(5)
    orders.drain()

    assert {r.topic_partition.partition: r.start for r in decision.declared_losses} == {0: 10, 1: 0, 2: 0}
    assert orders.drained() == [*orders.ids[:10], *orders.ids[60:]]
    newest = orders.entries()[-1]
    assert (newest.positions[SHARD], newest.bookmarks[SHARD].ended) == (11, True)
    assert_audited(orders, losses=3)


def test_shards_that_came_and_went_unread_are_given_up_with_their_child(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = Put(spark, lake, server, shards=1)
    orders.put(10)
    orders.drain()
    orders.split()
    orders.put(20)
    orders.client.merge_shards(StreamName="orders", ShardToMerge=id_of(1), AdjacentShardToMerge=id_of(2))
    server.advance(30 * HOUR)
    orders.put(30)

    decision = accept(orders)
    orders.drain()

    assert set(lost_between(decision)) == {0, 3}
    assert orders.drained() == [*orders.ids[:10], *orders.ids[30:]]
    assert all(now_ms(orders) - since < 40 * HOUR * SECOND for since, _ in lost_between(decision).values())
    assert_audited(orders, losses=2)


def test_reading_goes_on_after_another_record_in_the_place_of_the_last_one(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Pass: nothing that may have been read is read again."""
    orders = Put(spark, lake, server, shards=1)
    orders.put(10)
    orders.drain()
    topic = source_of(orders.stream).topic("orders")
    ledger = read_ledger(orders.stream, lake, topic_id=topic.topic_id, topic_partitions=1)
    assert ledger and ledger.entry
    marks = {SHARD: replace(ledger.entry.bookmarks[SHARD], digest="another")}
    entry = next_entry(orders.stream, ledger, kind="renewal", topic_id=topic.topic_id, bookmarks=marks)
    commit(spark, Staged(), orders.stream.table_uri(lake), read_version=ledger.version, entry=entry)
    orders.put(5)
    with pytest.raises(BookmarkDiffers, match="kdi resolve bronze/orders accept-loss --yes"):
        orders.drain()

    accept(orders)
    orders.drain()

    assert orders.drained() == orders.ids
    assert_audited(orders, losses=1)


def test_a_restore_to_before_an_accepted_loss_takes_the_decision_back(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: go back to before the decision, and to the decision itself.
    Pass: the first is refused until it is decided again; after both, what is held is read once.
    """
    orders = trimmed(spark, lake, server)
    accept(orders)
    orders.drain()
    drained, decided, first = (entry.version for entry in orders.entries()[:-4:-1])
    uri = orders.stream.table_uri(lake)

    spark.sql(f"RESTORE TABLE delta.`{uri}` TO VERSION AS OF {first}")
    with pytest.raises(ShardTrimmed):
        orders.drain()
    accept(orders)
    orders.drain()
    assert orders.drained() == [*orders.ids[:10], *orders.ids[30:]]
    assert_audited(orders, losses=1)

    spark.sql(f"RESTORE TABLE delta.`{uri}` TO VERSION AS OF {decided}")
    assert orders.drained() == orders.ids[:10]
    orders.drain()
    assert drained > decided
    assert orders.drained() == [*orders.ids[:10], *orders.ids[30:]]
    assert_audited(orders, losses=1)
