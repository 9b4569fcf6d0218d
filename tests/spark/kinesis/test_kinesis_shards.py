"""Shards that expire, close or are idle between two drains of a Kinesis stream."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.kinesis.shards import id_of
from kdi_assets.streams.drain.plan_errors import TopicRecreated
from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.kinesis.drains import HOUR, Put


@pytest.mark.scenario("Kinesis: retention passes a shard's position")
@pytest.mark.parametrize("behaviour", ["horizon", "refused", "empty"])
def test_a_record_that_retention_passed_after_it_was_read_is_no_loss(
    spark: SparkSession, lake: str, server: KinesisServer, behaviour: Any
) -> None:
    server.behaviour.trimmed_position = behaviour
    orders = Put(spark, lake, server, shards=1)
    orders.put(10)
    server.advance(10 * HOUR)
    orders.drain()
    orders.put(20)
    server.advance(15 * HOUR)

    orders.drain()

    orders.assert_each_record_once()


@pytest.mark.scenario("Kinesis: retention passes a shard's position")
def test_a_shard_that_is_idle_for_longer_than_retention_is_no_loss_while_it_is_drained(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = Put(spark, lake, server, shards=2)
    orders.put(10)
    orders.drain()
    for _ in range(4):
        server.advance(8 * HOUR)
        assert orders.drain() == 0
    orders.put(20)
    orders.drain()

    orders.assert_each_record_once()
    assert [entry.kind for entry in orders.entries()] == ["start", "drain", *["renewal"] * 4, "drain"]


@pytest.mark.scenario("Kinesis: shards closed or expired unread")
def test_a_shard_may_expire_once_it_was_read_to_its_end(spark: SparkSession, lake: str, server: KinesisServer) -> None:
    orders = Put(spark, lake, server, shards=1)
    orders.put(10)
    orders.split()
    for hours in (0, 20, 10):
        server.advance(hours * HOUR)
        orders.put(20)
        orders.drain()
    listed = [shard["ShardId"] for shard in orders.client.list_shards(StreamName="orders")["Shards"]]

    orders.assert_each_record_once()
    assert listed == [id_of(1), id_of(2)]
    assert orders.entries()[-1].positions[TopicPartition("orders", 0)] == 10


@pytest.mark.scenario("Kinesis: stream deleted and made again")
def test_a_stream_that_was_created_again_is_refused_until_somebody_decides(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = Put(spark, lake, server, shards=1)
    orders.put(10)
    orders.drain()
    orders.make_again(shards=1)

    with pytest.raises(TopicRecreated):
        orders.drain()
    orders.resolve("new-topic")
    decided = orders.entries()[-1].bookmarks
    orders.put(5)
    orders.drain()

    assert [mark.seen_at > 0 for mark in decided.values()] == [True], "what arrives from now on is not lost unseen"
    assert orders.drained() == orders.ids


@pytest.mark.scenario("Kinesis: shards closed or expired unread", "Kinesis: shards split, merged, scaled")
def test_shards_that_were_closed_before_they_were_read_are_read_before_their_children(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: split an empty shard and merge its children while nothing is drained; then put records."""
    orders = Put(spark, lake, server, shards=1)
    orders.drain()
    orders.split()
    orders.put(40)
    orders.client.merge_shards(StreamName="orders", ShardToMerge=id_of(1), AdjacentShardToMerge=id_of(2))
    server.advance(60)
    orders.put(50)

    assert orders.drain() == 2, "the empty one needs no plan, its children and their child need one each"

    orders.assert_each_record_once()
    assert {tp.partition: mark.ended for tp, mark in orders.entries()[-1].bookmarks.items()} == {
        **dict.fromkeys((0, 1, 2), True),
        3: False,
    }
