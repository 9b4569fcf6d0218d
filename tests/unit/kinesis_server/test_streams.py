"""Streams and lists of the server while tests move its clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.kinesis.endpoint import HOUR, SHARD, KinesisEndpoint, refusal, refused_with


def test_a_token_of_listed_shards_is_valid_for_five_minutes(kinesis: KinesisEndpoint) -> None:
    token = kinesis.client.list_shards(StreamName=kinesis.stream(shards=3), MaxResults=1)["NextToken"]

    kinesis.wait(300)
    kinesis.client.list_shards(NextToken=token)
    kinesis.wait(0.01)

    with pytest.raises(ClientError) as refused:
        kinesis.client.list_shards(NextToken=token)
    assert refusal(refused) == "ExpiredNextTokenException"


def test_no_shard_is_left_out_when_one_expires_between_two_pages(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.split(name, kinesis.shard(name, 0))
    kinesis.wait(24 * HOUR - 100)

    first = kinesis.client.list_shards(StreamName=name, MaxResults=1)
    kinesis.wait(200)
    second = kinesis.client.list_shards(NextToken=first["NextToken"])

    assert [[shard["ShardId"][-1] for shard in page["Shards"]] for page in (first, second)] == [["0"], ["1", "2"]]


def test_no_consumer_is_left_out_when_one_goes_between_two_pages(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    made = [kinesis.consumer(name, one) for one in ("a", "b", "c")]
    arn = kinesis.summary(name)["StreamARN"]

    first = kinesis.client.list_stream_consumers(StreamARN=arn, MaxResults=1)
    kinesis.client.deregister_stream_consumer(ConsumerARN=made[0])
    second = kinesis.client.list_stream_consumers(StreamARN=arn, NextToken=first["NextToken"])

    assert [[one["ConsumerName"] for one in page["Consumers"]] for page in (first, second)] == [["a"], ["b", "c"]]


def test_a_token_of_another_kind_is_refused(kinesis: KinesisEndpoint) -> None:
    name, client = kinesis.stream(shards=2), kinesis.client
    arn = kinesis.summary(name)["StreamARN"]
    shards, iterator = client.list_shards(StreamName=name, MaxResults=1)["NextToken"], kinesis.iterator(name, SHARD)

    calls: list[Callable[[], Any]] = [
        lambda: client.list_shards(NextToken=iterator),
        lambda: client.list_stream_consumers(StreamARN=arn, NextToken=shards),
        lambda: client.get_records(ShardIterator=shards),
    ]
    for call in calls:
        with refused_with("InvalidArgumentException"):
            call()


def test_shards_are_listed_of_the_stream_of_one_creation(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    first = kinesis.summary(name)["StreamCreationTimestamp"]
    kinesis.delete(name)
    kinesis.stream(name=name)
    second = kinesis.summary(name)["StreamCreationTimestamp"]

    with refused_with("ResourceNotFoundException"):
        kinesis.shards(name, StreamCreationTimestamp=first)
    assert len(kinesis.shards(name, StreamCreationTimestamp=second)) == 1
    with refused_with("ValidationException"):
        kinesis.shards(name, ShardFilter={"Type": "AT_NOON"})


def test_a_stream_on_demand_is_not_resharded(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream(shards=2, StreamModeDetails={"StreamMode": "ON_DEMAND"})
    both = [shard["ShardId"] for shard in kinesis.shards(name)]

    calls: list[Callable[[], Any]] = [
        lambda: kinesis.split(name, kinesis.shard(name, 0)),
        lambda: kinesis.client.merge_shards(StreamName=name, ShardToMerge=both[0], AdjacentShardToMerge=both[1]),
        lambda: kinesis.client.update_shard_count(StreamName=name, TargetShardCount=4, ScalingType="UNIFORM_SCALING"),
    ]
    for call in calls:
        with refused_with("ValidationException"):
            call()
    described = kinesis.summary(name)
    assert described["StreamModeDetails"] == {"StreamMode": "ON_DEMAND"}
    assert described["RecordDistributionStrategy"] == "USER_PARTITION_KEY"


def test_a_stream_that_distributes_records_ignores_their_keys_and_is_on_demand(kinesis: KinesisEndpoint) -> None:
    auto = kinesis.stream(shards=2, RecordDistributionStrategy="AUTO", StreamModeDetails={"StreamMode": "ON_DEMAND"})

    for keys in ({"PartitionKey": "k", "ExplicitHashKey": "0"}, {}):
        kinesis.client.put_records(StreamName=auto, Records=[{"Data": b"%d" % n, **keys} for n in range(20)])

    read = [kinesis.read(auto, shard["ShardId"]).records for shard in kinesis.shards(auto)]
    assert sum(map(len, read)) == 40 and all(read)
    assert {record.get("PartitionKey") for records in read for record in records} == {"k", None}
    assert kinesis.summary(auto)["RecordDistributionStrategy"] == "AUTO"
    keyed = kinesis.stream()
    assert "RecordDistributionStrategy" not in kinesis.summary(keyed)
    with refused_with("InvalidArgumentException"):
        kinesis.client.put_record(StreamName=keyed, Data=b"0")
    with refused_with("InvalidArgumentException"):
        kinesis.client.create_stream(StreamName="provisioned", ShardCount=1, RecordDistributionStrategy="AUTO")


def test_an_iterator_does_not_outlive_its_stream_even_if_another_has_its_name(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    iterator = kinesis.iterator(name, SHARD)
    kinesis.delete(name)
    kinesis.stream(name=name)
    kinesis.put(name, b"of another stream")

    with pytest.raises(ClientError) as refused:
        kinesis.page(iterator)

    assert refusal(refused) == "ResourceNotFoundException"


def test_streams_that_are_created_at_one_moment_are_not_of_the_future(kinesis: KinesisEndpoint) -> None:
    for number in range(30):
        kinesis.client.create_stream(StreamName=f"at-once-{number}", ShardCount=1)
        kinesis.made.add(f"at-once-{number}")

    created = kinesis.summary("at-once-29")["StreamCreationTimestamp"].timestamp()

    assert kinesis.ours.now() - 1 < created <= kinesis.ours.now()
