"""Putting and reading records at every Kinesis endpoint."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.kinesis.endpoint import HASH_KEYS, SHARD, KinesisEndpoint, hash_range, refusal, refused_with


def test_sequence_numbers_have_56_digits_and_grow_within_a_shard(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()

    numbers = [kinesis.put(name, b"x")[0]["SequenceNumber"] for _ in range(5)]
    numbers += [answer["SequenceNumber"] for answer in kinesis.put(name, *[b"x"] * 20)]

    assert [number for number in numbers if not re.fullmatch(r"[1-9]\d{55}", number)] == []
    assert sorted(set(numbers), key=int) == numbers
    assert int(kinesis.shard(name, 0)["SequenceNumberRange"]["StartingSequenceNumber"]) < int(numbers[0])


def test_hash_ranges_cover_all_keys_and_a_record_goes_to_the_shard_of_its_key(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream(shards=3)
    shards = kinesis.shards(name)

    by_key = kinesis.client.put_record(StreamName=name, Data=b"", PartitionKey="a")  # MD5 0cc1…
    by_hash = kinesis.client.put_record(
        StreamName=name, Data=b"", PartitionKey="a", ExplicitHashKey=shards[2]["HashKeyRange"]["EndingHashKey"]
    )

    ranges = [hash_range(shard) for shard in shards]
    assert ranges[0][0] == 0 and ranges[-1][1] == HASH_KEYS - 1
    assert [first for first, _ in ranges[1:]] == [last + 1 for _, last in ranges[:-1]]
    assert [shard["ShardId"] for shard in shards] == [f"shardId-{n:012d}" for n in range(3)]
    assert (by_key["ShardId"], by_hash["ShardId"]) == (SHARD, "shardId-000000000002")


def test_each_record_comes_back_byte_for_byte_in_the_order_it_was_put(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    values = [b"", b"\x00\xff\xfe", "Zürich".encode(), bytes(range(256)) * 400, b"last"]

    put = kinesis.put(name, *values)
    read = kinesis.read(name, put[0]["ShardId"])

    assert read.values == values
    assert [record["SequenceNumber"] for record in read.records] == [one["SequenceNumber"] for one in put]
    assert [record["PartitionKey"] for record in read.records] == [f"k{n}" for n in range(len(values))]
    assert all("ApproximateArrivalTimestamp" in record for record in read.records)


def test_every_type_of_iterator_begins_at_its_record(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    put = kinesis.put(name, b"0", b"1")
    kinesis.wait(2)
    put += kinesis.put(name, b"2", b"3")
    shard, second = put[0]["ShardId"], put[1]["SequenceNumber"]
    latest = kinesis.iterator(name, shard, "LATEST")
    later = kinesis.read(name, shard).records[2]["ApproximateArrivalTimestamp"]

    kinesis.put(name, b"4")

    assert kinesis.read(name, shard, "TRIM_HORIZON").values == [b"0", b"1", b"2", b"3", b"4"]
    assert kinesis.read(name, shard, "AT_SEQUENCE_NUMBER", StartingSequenceNumber=second).values[0] == b"1"
    assert kinesis.read(name, shard, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=second).values[0] == b"2"
    assert kinesis.read(name, shard, "AT_TIMESTAMP", Timestamp=later).values == [b"2", b"3", b"4"]
    assert kinesis.read(name, shard, "AT_TIMESTAMP", Timestamp=datetime(2020, 1, 1, tzinfo=UTC)).values[0] == b"0"
    assert [record["Data"] for page in kinesis.pages(latest) for record in page["Records"]] == [b"4"]


def test_the_starting_sequence_number_of_a_shard_is_a_position(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"0", b"1")
    shard = kinesis.shard(name, 0)
    start = shard["SequenceNumberRange"]["StartingSequenceNumber"]

    for kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        read = kinesis.read(name, shard["ShardId"], kind, StartingSequenceNumber=start)
        assert read.values == [b"0", b"1"]


def test_a_timestamp_in_the_future_is_refused(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()

    with pytest.raises(ClientError, match="cannot be greater than the current") as refused:
        kinesis.iterator(name, SHARD, "AT_TIMESTAMP", Timestamp=datetime(2099, 1, 1, tzinfo=UTC))

    assert refusal(refused) == "InvalidArgumentException"


def test_a_sequence_number_of_another_shard_is_refused_and_both_are_named(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream(shards=2)
    first, second = kinesis.shards(name)
    number = kinesis.put(name, b"x", shard=first)[0]["SequenceNumber"]

    with pytest.raises(ClientError, match=f"{first['ShardId']}.*{second['ShardId']}") as refused:
        kinesis.iterator(name, second["ShardId"], "AT_SEQUENCE_NUMBER", StartingSequenceNumber=number)

    assert refusal(refused) == "InvalidArgumentException"


def test_a_sequence_number_of_a_deleted_stream_of_the_same_name_is_refused(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    number = kinesis.put(name, b"x")[0]["SequenceNumber"]
    kinesis.delete(name)
    kinesis.stream(name=name)

    with pytest.raises(ClientError, match="did not come from this stream") as refused:
        kinesis.iterator(name, SHARD, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=number)

    assert refusal(refused) == "InvalidArgumentException"


def test_a_page_holds_at_most_the_limit_and_says_that_more_is_behind(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.put(name, *(b"%d" % n for n in range(25)))
    kinesis.wait(1)

    read = kinesis.read(name, SHARD, limit=10)

    full = [page for page in read.pages if page["Records"]]
    assert [len(page["Records"]) for page in full] == [10, 10, 5]
    assert [page["MillisBehindLatest"] > 0 for page in full] == [True, True, False]
    assert len({record["SequenceNumber"] for record in read.records}) == 25


def test_more_than_ten_thousand_records_cannot_be_asked_for(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    iterator = kinesis.iterator(name, SHARD)

    with refused_with("InvalidArgumentException"):
        kinesis.client.get_records(ShardIterator=iterator, Limit=10_001)
    with refused_with("InvalidArgumentException"):
        kinesis.client.get_records(ShardIterator="not an iterator")


def test_an_iterator_answers_the_same_records_again(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"0", b"1")
    iterator = kinesis.iterator(name, SHARD)

    twice = [kinesis.client.get_records(ShardIterator=iterator)["Records"] for _ in range(2)]

    assert twice[0] == twice[1] != []


def test_a_shard_takes_five_reads_in_a_second(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream(shards=2)
    first, second = (kinesis.iterator(name, shard["ShardId"]) for shard in kinesis.shards(name))
    kinesis.wait(1.1)

    with pytest.raises(ClientError) as refused:
        for _ in range(20):
            kinesis.client.get_records(ShardIterator=first)

    assert refusal(refused) == "ProvisionedThroughputExceededException"
    kinesis.client.get_records(ShardIterator=second)
    kinesis.wait(1.1)
    kinesis.client.get_records(ShardIterator=first)


def test_more_than_500_records_too_large_ones_and_bad_hash_keys_are_refused(kinesis: KinesisEndpoint) -> None:
    name, client = kinesis.stream(), kinesis.client
    refusals: list[Callable[[], Any]] = [
        lambda: client.put_records(StreamName=name, Records=[{"Data": b"x", "PartitionKey": "k"}] * 501),
        lambda: client.put_record(StreamName=name, Data=bytes(1 << 20), PartitionKey="k"),
        lambda: client.put_record(StreamName=name, Data=b"", PartitionKey="k", ExplicitHashKey=str(HASH_KEYS)),
        lambda: client.put_record(StreamName=name, Data=b"", PartitionKey="k" * 257),
    ]

    for call in refusals:
        with refused_with("InvalidArgumentException", "ValidationException"):
            call()
    assert kinesis.read(name, SHARD).values == []
