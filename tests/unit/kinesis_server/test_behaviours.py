"""What differs between real streams, where tests order it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from botocore.exceptions import ClientError

from tests.kinesis.endpoint import HOUR, SHARD, KinesisEndpoint, refusal


def after(kinesis: KinesisEndpoint, stream: str, number: str, kind: str = "AFTER_SEQUENCE_NUMBER") -> str:
    """An iterator at or behind a sequence number of the first shard."""
    return kinesis.iterator(stream, SHARD, kind, StartingSequenceNumber=number)


def aged(kinesis: KinesisEndpoint) -> tuple[str, str]:
    """A stream of two records, the first of which is too old; and its number."""
    name = kinesis.stream()
    number = kinesis.put(name, b"old")[0]["SequenceNumber"]
    kinesis.wait(25 * HOUR)
    kinesis.put(name, b"new")
    return name, number


def test_reading_behind_a_record_that_is_gone_goes_on_silently(kinesis: KinesisEndpoint) -> None:
    name, number = aged(kinesis)

    assert kinesis.page(after(kinesis, name, number))["Records"][0]["Data"] == b"new"
    assert kinesis.page(after(kinesis, name, number, "AT_SEQUENCE_NUMBER"))["Records"][0]["Data"] == b"new"


def test_reading_behind_a_record_that_is_gone_is_refused_where_it_is_ordered(kinesis: KinesisEndpoint) -> None:
    name, number = aged(kinesis)
    kinesis.ours.behaviour.trimmed_position = "refused"

    with pytest.raises(ClientError) as refused:
        after(kinesis, name, number)

    assert refusal(refused) == "InvalidArgumentException"
    assert kinesis.read(name, SHARD).values == [b"new"]


def test_reading_behind_a_record_that_is_gone_is_empty_without_end_where_it_is_ordered(
    kinesis: KinesisEndpoint,
) -> None:
    name, number = aged(kinesis)
    kinesis.ours.behaviour.trimmed_position = "empty"

    iterator, answers = after(kinesis, name, number), []
    for _ in range(5):
        kinesis.wait(1)
        answers.append(kinesis.page(iterator))
        iterator = answers[-1]["NextShardIterator"]

    assert [(one["Records"], one["MillisBehindLatest"]) for one in answers] == [([], 86_400_000)] * 5


def test_a_position_on_an_idle_shard_outlives_retention_if_no_record_had_it(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.ours.behaviour.trimmed_position = "refused"
    start = kinesis.shard(name, 0)["SequenceNumberRange"]["StartingSequenceNumber"]

    kinesis.wait(100 * HOUR)

    assert kinesis.page(after(kinesis, name, start))["Records"] == []


def test_empty_pages_that_are_behind_come_before_each_page_of_records(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"0", b"1")
    kinesis.ours.behaviour.empty_pages = 3
    kinesis.wait(60)

    read = kinesis.read(name, SHARD, limit=1)

    assert [len(one["Records"]) for one in read.pages] == [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]
    assert all(one["MillisBehindLatest"] > 60_000 for one in read.pages[:7]), "as the records that are not read yet"
    assert read.pages[-1]["MillisBehindLatest"] == 0


def test_on_some_streams_a_reader_is_never_at_zero(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"0")
    kinesis.ours.behaviour.least_behind_ms = 40

    first = kinesis.page(kinesis.iterator(name, SHARD))
    second = kinesis.page(first["NextShardIterator"])

    assert ([r["Data"] for r in first["Records"]], second["Records"]) == ([b"0"], [])
    assert first["MillisBehindLatest"] == second["MillisBehindLatest"] == 40


def test_arrival_timestamps_are_out_of_order_where_it_is_ordered(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.ours.behaviour.arrival_jitter_ms = 500

    kinesis.put(name, *(b"%d" % n for n in range(50)))

    arrived = [record["ApproximateArrivalTimestamp"] for record in kinesis.read(name, SHARD).records]
    assert sorted(arrived) != arrived and max(arrived) - min(arrived) < timedelta(milliseconds=500)


def test_shard_numbers_may_begin_at_1200_and_children_may_be_listed_before_their_parents(
    kinesis: KinesisEndpoint,
) -> None:
    kinesis.ours.behaviour.first_shard = 1200
    kinesis.ours.behaviour.newest_shards_first = True
    name = kinesis.stream()

    kinesis.client.update_shard_count(StreamName=name, TargetShardCount=2, ScalingType="UNIFORM_SCALING")

    assert [s["ShardId"] for s in kinesis.shards(name, MaxResults=1)] == [
        f"shardId-{n:012d}" for n in (1202, 1201, 1200)
    ]
