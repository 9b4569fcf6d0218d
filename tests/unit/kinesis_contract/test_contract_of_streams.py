"""Streams at every Kinesis endpoint: made, described, missing, kept."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.kinesis.endpoint import SHARD, KinesisEndpoint, refused_with


def test_a_stream_is_described_with_arn_creation_retention_and_open_shards(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream(shards=2)

    described = kinesis.summary(name)

    assert described["StreamName"] == name
    assert re.fullmatch(rf"arn:aws:kinesis:[a-z0-9-]+:\d{{12}}:stream/{name}", described["StreamARN"])
    assert described["RetentionPeriodHours"] == 24
    assert described["OpenShardCount"] == 2
    assert abs(described["StreamCreationTimestamp"] - datetime.now(UTC)) < timedelta(minutes=10)
    by_arn = kinesis.client.describe_stream_summary(StreamARN=described["StreamARN"])["StreamDescriptionSummary"]
    assert by_arn["StreamCreationTimestamp"] == described["StreamCreationTimestamp"]


def test_a_stream_that_exists_is_not_created_again(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()

    with refused_with("ResourceInUseException"):
        kinesis.client.create_stream(StreamName=name, ShardCount=3)

    assert kinesis.summary(name)["OpenShardCount"] == 1


def test_calls_about_a_stream_or_shard_that_is_missing_are_refused(kinesis: KinesisEndpoint) -> None:
    name, client = kinesis.stream(), kinesis.client
    missing: list[Callable[[], Any]] = [
        lambda: client.describe_stream_summary(StreamName="no-such-stream"),
        lambda: client.list_shards(StreamName="no-such-stream"),
        lambda: client.put_record(StreamName="no-such-stream", Data=b"", PartitionKey="k"),
        lambda: kinesis.iterator("no-such-stream", SHARD),
        lambda: kinesis.iterator(name, "shardId-000000000007"),
        lambda: client.delete_stream(StreamName="no-such-stream"),
    ]

    for call in missing:
        with refused_with("ResourceNotFoundException"):
            call()


def test_the_retention_is_between_a_day_and_a_year(kinesis: KinesisEndpoint) -> None:
    name, client = kinesis.stream(), kinesis.client

    client.increase_stream_retention_period(StreamName=name, RetentionPeriodHours=48)
    kinesis.settle(name)
    raised = kinesis.summary(name)["RetentionPeriodHours"]
    client.decrease_stream_retention_period(StreamName=name, RetentionPeriodHours=24)
    kinesis.settle(name)

    assert (raised, kinesis.summary(name)["RetentionPeriodHours"]) == (48, 24)
    with refused_with("InvalidArgumentException", "ValidationException"):
        client.increase_stream_retention_period(StreamName=name, RetentionPeriodHours=8761)
    with refused_with("InvalidArgumentException", "ValidationException"):
        client.decrease_stream_retention_period(StreamName=name, RetentionPeriodHours=23)


def test_a_dry_run_only_says_that_the_call_would_succeed(kinesis: KinesisEndpoint) -> None:
    name, client = kinesis.stream(), kinesis.client
    consumer = kinesis.consumer(name)
    shard, iterator = SHARD, kinesis.iterator(name, SHARD)
    start = {"Type": "TRIM_HORIZON"}
    calls: list[Callable[[], Any]] = [
        lambda: client.put_record(StreamName=name, Data=b"x", PartitionKey="k", DryRun=True),
        lambda: kinesis.iterator(name, shard, DryRun=True),
        lambda: client.get_records(ShardIterator=iterator, DryRun=True),
        lambda: client.subscribe_to_shard(ConsumerARN=consumer, ShardId=shard, StartingPosition=start, DryRun=True),
    ]

    for call in calls:
        with refused_with("DryRunOperationException"):
            call()
    with refused_with("ResourceNotFoundException"):
        kinesis.iterator(name, "shardId-000000000009", DryRun=True)
    assert kinesis.read(name, shard).values == []
