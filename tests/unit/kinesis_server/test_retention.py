"""Retention by the clock of the server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import pytest
from botocore.exceptions import ClientError

from tests.kinesis.endpoint import HOUR, SHARD, KinesisEndpoint, refusal


def test_retention_removes_records_by_the_clock(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"old")
    kinesis.wait(23 * HOUR)
    kinesis.put(name, b"new")

    before = kinesis.read(name, SHARD).values
    kinesis.wait(HOUR)
    later = kinesis.read(name, SHARD).values

    assert (before, later) == ([b"old", b"new"], [b"new"])


def test_a_closed_shard_is_listed_and_read_until_retention_has_passed_its_end(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"0")
    kinesis.split(name, kinesis.shard(name, 0))

    kinesis.wait(23 * HOUR)
    before = [shard["ShardId"][-1] for shard in kinesis.shards(name)], kinesis.read(name, SHARD).values
    kinesis.wait(2 * HOUR)

    assert before == (["0", "1", "2"], [b"0"])
    assert [shard["ShardId"][-1] for shard in kinesis.shards(name)] == ["1", "2"]
    assert kinesis.shards(name)[0]["ParentShardId"] == SHARD
    with pytest.raises(ClientError) as refused:
        kinesis.iterator(name, SHARD)
    assert refusal(refused) == "ResourceNotFoundException"


def test_lowered_retention_hides_at_once_and_raised_retention_brings_nothing_back(kinesis: KinesisEndpoint) -> None:
    name, client = kinesis.stream(), kinesis.client
    client.increase_stream_retention_period(StreamName=name, RetentionPeriodHours=72)
    kinesis.put(name, b"old")
    kinesis.wait(30 * HOUR)
    kinesis.put(name, b"new")
    kept = kinesis.read(name, SHARD).values

    client.decrease_stream_retention_period(StreamName=name, RetentionPeriodHours=24)
    hidden = kinesis.read(name, SHARD).values
    client.increase_stream_retention_period(StreamName=name, RetentionPeriodHours=72)

    assert kept == [b"old", b"new"]
    assert hidden == kinesis.read(name, SHARD).values == [b"new"]


def test_the_date_of_answers_is_the_servers_clock(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.wait(48 * HOUR)

    headers = kinesis.client.list_shards(StreamName=name)["ResponseMetadata"]["HTTPHeaders"]

    assert abs(parsedate_to_datetime(headers["date"]).timestamp() - kinesis.ours.now()) < 1
    assert parsedate_to_datetime(headers["date"]) > datetime.now(UTC) + timedelta(hours=47)
