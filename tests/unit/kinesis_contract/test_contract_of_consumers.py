"""Consumers and their subscriptions at every Kinesis endpoint."""

from __future__ import annotations

import re
from itertools import islice

import pytest
from botocore.exceptions import ClientError, EventStreamError

from tests.kinesis.endpoint import SHARD, KinesisEndpoint, received, refusal, refused_with, values


def test_a_consumer_is_created_becomes_active_and_is_found_by_name_and_arn(kinesis: KinesisEndpoint) -> None:
    name, client = kinesis.stream(), kinesis.client
    stream = kinesis.summary(name)["StreamARN"]

    made = client.register_stream_consumer(StreamARN=stream, ConsumerName="kdi")["Consumer"]
    kinesis.wait(1)
    listed = client.list_stream_consumers(StreamARN=stream)["Consumers"]
    by_name = client.describe_stream_consumer(StreamARN=stream, ConsumerName="kdi")["ConsumerDescription"]
    by_arn = client.describe_stream_consumer(ConsumerARN=made["ConsumerARN"])["ConsumerDescription"]

    assert made["ConsumerStatus"] == "CREATING"
    assert re.fullmatch(rf"{stream}/consumer/kdi:\d+", made["ConsumerARN"])
    assert [one["ConsumerARN"] for one in (*listed, by_name, by_arn)] == [made["ConsumerARN"]] * 3
    assert by_arn["StreamARN"] == stream
    assert kinesis.summary(name)["ConsumerCount"] == 1
    with refused_with("ResourceInUseException"):
        client.register_stream_consumer(StreamARN=stream, ConsumerName="kdi")


def test_a_consumer_that_is_registered_again_has_another_arn(kinesis: KinesisEndpoint) -> None:
    name, client = kinesis.stream(), kinesis.client
    first = kinesis.consumer(name)

    client.deregister_stream_consumer(ConsumerARN=first)
    kinesis.wait_until_gone(lambda: client.describe_stream_consumer(ConsumerARN=first))
    again = kinesis.consumer(name)

    assert again != first


def test_consumers_are_listed_in_pages(kinesis: KinesisEndpoint) -> None:
    name, client = kinesis.stream(), kinesis.client
    made = {kinesis.consumer(name, f"kdi-{n}") for n in range(3)}
    stream = kinesis.summary(name)["StreamARN"]

    pages = list(
        client.get_paginator("list_stream_consumers").paginate(StreamARN=stream, PaginationConfig={"PageSize": 2})
    )

    assert [len(page["Consumers"]) for page in pages] == [2, 1]
    assert {one["ConsumerARN"] for page in pages for one in page["Consumers"]} == made


def test_a_stream_with_consumers_is_deleted_only_with_them(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.consumer(name)

    with refused_with("ResourceInUseException"):
        kinesis.client.delete_stream(StreamName=name)
    kinesis.delete(name, EnforceConsumerDeletion=True)


def test_a_subscription_pushes_what_is_there_and_what_comes(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"0", b"1")
    events = kinesis.subscribe(kinesis.consumer(name), SHARD)

    there = received(events, 2)
    put = kinesis.put(name, b"2", b"3")
    came = received(events, 2)

    assert (values(there), values(came)) == ([b"0", b"1"], [b"2", b"3"])
    assert came[-1]["ContinuationSequenceNumber"] == put[-1]["SequenceNumber"]
    assert (there[-1]["MillisBehindLatest"], "ChildShards" in there[-1]) == (0, False)


def test_a_subscription_goes_on_behind_the_continuation_of_the_one_before(kinesis: KinesisEndpoint) -> None:
    name, shard = kinesis.stream(), SHARD
    kinesis.put(name, b"0", b"1")
    consumer = kinesis.consumer(name)
    reached = received(kinesis.subscribe(consumer, shard), 2)[-1]["ContinuationSequenceNumber"]
    kinesis.put(name, b"2")
    kinesis.wait(6)

    later = kinesis.subscribe(consumer, shard, "AFTER_SEQUENCE_NUMBER", SequenceNumber=reached)

    assert values(received(later, 1)) == [b"2"]


def test_a_subscription_to_an_idle_shard_says_how_far_it_is(kinesis: KinesisEndpoint) -> None:
    name, shard = kinesis.stream(), SHARD
    consumer = kinesis.consumer(name)

    idle = next(kinesis.subscribe(consumer, shard, "LATEST"))["SubscribeToShardEvent"]
    kinesis.put(name, b"0")
    read = kinesis.read(name, shard, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=idle["ContinuationSequenceNumber"])

    assert (idle["Records"], idle["MillisBehindLatest"]) == ([], 0)
    assert read.values == [b"0"]


@pytest.mark.parametrize("when", ["live", "later"])
def test_a_subscription_ends_at_the_end_of_its_shard_with_the_children(kinesis: KinesisEndpoint, when: str) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"0")
    consumer, shard = kinesis.consumer(name), kinesis.shard(name, 0)
    if when == "later":
        kinesis.split(name, shard)
    events = kinesis.subscribe(consumer, shard["ShardId"])
    got = received(events, 1)
    if when == "live":
        kinesis.split(name, shard)

    got += [event["SubscribeToShardEvent"] for event in islice(events, 100)]

    assert values(got) == [b"0"]
    children = got[-1]["ChildShards"]
    assert [child["ShardId"] for child in children] == ["shardId-000000000001", "shardId-000000000002"]
    assert not any(event.get("ChildShards") for event in got[:-1])


def test_a_second_subscription_is_refused_within_five_seconds_and_takes_over_later(kinesis: KinesisEndpoint) -> None:
    name, shard = kinesis.stream(), SHARD
    kinesis.put(name, b"0")
    consumer = kinesis.consumer(name)
    first = kinesis.subscribe(consumer, shard)
    received(first, 1)

    with pytest.raises(ClientError) as refused:
        kinesis.subscribe(consumer, shard)
    kinesis.wait(6)
    second = kinesis.subscribe(consumer, shard)

    assert refusal(refused) == "ResourceInUseException"
    assert values(received(second, 1)) == [b"0"]
    with pytest.raises(EventStreamError, match="ResourceInUseException"):
        list(islice(first, 100))


def test_two_consumers_read_a_shard_without_hindering_each_other(kinesis: KinesisEndpoint) -> None:
    name, shard = kinesis.stream(), SHARD
    kinesis.put(name, b"0")

    both = [kinesis.subscribe(kinesis.consumer(name, one), shard) for one in ("kdi-a", "kdi-b")]

    assert [values(received(events, 1)) for events in both] == [[b"0"], [b"0"]]
