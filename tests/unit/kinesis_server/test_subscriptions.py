"""Consumers and subscriptions while tests move the clock."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from botocore.exceptions import ClientError, EventStreamError

from kdi_assets.tools.local.kinesis.consumers import Subscription, deregister_consumer, register_consumer
from kdi_assets.tools.local.kinesis.faults import ApiCall, ServerClock
from kdi_assets.tools.local.kinesis.manage_streams import delete_stream
from kdi_assets.tools.local.kinesis.state import ApiRequest, KinesisState
from tests.kinesis.endpoint import HOUR, SHARD, KinesisEndpoint, refusal


def test_a_stream_takes_20_consumers_of_which_five_may_be_created_at_once(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    arn = kinesis.summary(name)["StreamARN"]
    kinesis.ours.behaviour.activation_ms = 3000

    def register(number: int) -> None:
        kinesis.wait(0.25)
        kinesis.client.register_stream_consumer(StreamARN=arn, ConsumerName=f"kdi-{number}")

    for number in range(5):
        register(number)
    with pytest.raises(ClientError) as too_fast:
        register(5)
    for number in range(5, 20):
        kinesis.wait(3)
        register(number)
    kinesis.wait(3)
    with pytest.raises(ClientError) as too_many:
        register(20)

    assert refusal(too_fast) == refusal(too_many) == "LimitExceededException"
    assert kinesis.summary(name)["ConsumerCount"] == 20


def test_a_consumer_that_never_becomes_active_cannot_subscribe(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.ours.behaviour.activation_ms = 1 << 60
    arn = kinesis.summary(name)["StreamARN"]
    consumer = kinesis.client.register_stream_consumer(StreamARN=arn, ConsumerName="kdi")["Consumer"]

    kinesis.wait(24 * HOUR)

    with pytest.raises(ClientError) as refused:
        kinesis.subscribe(consumer["ConsumerARN"], SHARD)
    assert refusal(refused) == "ResourceInUseException"


def test_a_subscription_ends_after_five_minutes_without_an_error(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"0")
    events = kinesis.subscribe(kinesis.consumer(name), SHARD)
    first = next(events)["SubscribeToShardEvent"]

    kinesis.wait(299)
    alive = next(events)["SubscribeToShardEvent"]
    kinesis.wait(1)

    assert [record["Data"] for record in first["Records"]] == [b"0"]
    assert alive["Records"] == [] and "ChildShards" not in alive
    assert int(alive["ContinuationSequenceNumber"]) > int(first["ContinuationSequenceNumber"])
    assert list(islice(events, 10)) == []


@pytest.mark.parametrize("gone", ["consumer", "stream"])
def test_a_subscription_ends_with_an_error_when_its_consumer_or_stream_is_deleted(
    kinesis: KinesisEndpoint, gone: str
) -> None:
    name = kinesis.stream()
    consumer = kinesis.consumer(name)
    events = kinesis.subscribe(consumer, SHARD)
    next(events)

    if gone == "consumer":
        kinesis.client.deregister_stream_consumer(ConsumerARN=consumer)
    else:
        kinesis.client.delete_stream(StreamName=name, EnforceConsumerDeletion=True)

    with pytest.raises(EventStreamError, match="ResourceNotFoundException"):
        list(islice(events, 10))


@pytest.mark.parametrize("gone", ["consumer", "stream"])
def test_no_subscription_is_kept_of_a_consumer_or_stream_that_was_deleted(gone: str) -> None:
    """A stream that was deleted would otherwise stay in memory with all its records."""
    clock = ServerClock(frozen=True)
    state = KinesisState(clock, most_bytes=1 << 20)
    state.create("orders", shards=1)
    stream = state.streams["orders"]

    def request(operation: str, **fields: Any) -> ApiRequest:
        return ApiRequest(ApiCall(operation, "orders"), {"StreamName": "orders", **fields})

    arn = register_consumer(state, request("RegisterStreamConsumer", ConsumerName="kdi"))["Consumer"]["ConsumerARN"]
    clock.advance(1)
    position = {"Type": "LATEST"}
    with state.changed:
        Subscription(state, request("SubscribeToShard", ConsumerARN=arn, ShardId=SHARD, StartingPosition=position))
    kept = len(state.subscriptions)

    if gone == "consumer":
        deregister_consumer(state, request("DeregisterStreamConsumer", ConsumerARN=arn))
    else:
        delete_stream(state, request("DeleteStream", EnforceConsumerDeletion=True))

    assert (kept, len(state.subscriptions), stream.consumers) == (1, 0, {})


def test_events_without_records_come_before_those_with_records_and_pass_over_none(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.ours.behaviour.empty_pages = 2
    kinesis.put(name, b"0")
    consumer = kinesis.consumer(name)

    empty = [event["SubscribeToShardEvent"] for event in islice(kinesis.subscribe(consumer, SHARD), 2)]
    kinesis.wait(6)
    after = {"SequenceNumber": empty[-1]["ContinuationSequenceNumber"]}
    events = kinesis.subscribe(consumer, SHARD, "AFTER_SEQUENCE_NUMBER", **after)
    more = [event["SubscribeToShardEvent"] for event in islice(events, 3)]

    assert [event["Records"] for event in [*empty, *more[:2]]] == [[]] * 4
    assert all(event["MillisBehindLatest"] > 0 for event in empty)
    assert [record["Data"] for record in more[2]["Records"]] == [b"0"]
