"""Consumers that are taken, missing, deregistered or somebody else's while a Kinesis stream is drained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from pyspark.sql import SparkSession

from kdi_assets.messages.kinesis.errors import ConsumerGone, ConsumerTaken, NoSuchConsumer
from kdi_assets.streams.drain.drain import drain
from kdi_assets.tools.local.kinesis.faults import Fault
from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.kinesis.drains import EFO, Put, described, meanwhile, reads_on

OURS = "kdi_orders"


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


@pytest.mark.scenario("Kinesis: subscriptions taken, ended, cut off", "two drivers at once")
def test_a_drain_whose_consumer_another_drain_takes_ends_and_the_other_one_commits(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = reads_on(spark, lake, server)

    def take() -> int:
        server.advance(6)
        return orders.drain()

    other = meanwhile(server, take)
    with pytest.raises(ConsumerTaken, match="another reader of orders is active"):
        orders.drain()
    server.behaviour.least_behind_ms = 0
    other.result()

    orders.assert_each_record_once()
    assert len([entry for entry in orders.entries() if entry.kind == "drain"]) == 1


@pytest.mark.scenario("Kinesis: subscriptions taken, ended, cut off")
def test_a_consumer_that_stays_in_use_stops_a_drain(spark: SparkSession, lake: str, server: KinesisServer) -> None:
    orders = Put(spark, lake, server, shards=1, consumer=EFO)
    orders.put(20)
    server.order(Fault("SubscribeToShard", times=2, code="ResourceInUseException"))

    with pytest.raises(ConsumerTaken):
        orders.drain()
    assert orders.drained() == []
    orders.drain()

    orders.assert_each_record_once()


@pytest.mark.scenario("Kinesis: consumers gone, not ACTIVE, too many")
def test_a_consumer_that_is_deregistered_while_it_reads_is_registered_by_the_next_drain(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = reads_on(spark, lake, server)

    def deregister() -> None:
        orders.client.deregister_stream_consumer(ConsumerARN=consumer_of(orders)["ConsumerARN"])

    gone = meanwhile(server, deregister)
    with pytest.raises(ConsumerGone, match=OURS):
        orders.drain()
    gone.result()
    server.behaviour.least_behind_ms = 0
    assert orders.drained() == []
    orders.drain()

    orders.assert_each_record_once()
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


@pytest.mark.scenario("Kinesis: consumers gone, not ACTIVE, too many")
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
