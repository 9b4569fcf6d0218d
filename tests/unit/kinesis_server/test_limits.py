"""Limits of calls, bytes and memory."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.kinesis.endpoint import HOUR, SHARD, KinesisEndpoint, frozen_kinesis, refusal, refused_with


def test_an_iterator_expires_after_five_minutes_and_not_before(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    iterator = kinesis.iterator(name, SHARD)

    kinesis.wait(300)
    kinesis.page(iterator)
    kinesis.wait(0.01)

    with pytest.raises(ClientError) as refused:
        kinesis.page(iterator)
    assert refusal(refused) == "ExpiredIteratorException"


def test_a_page_holds_at_most_ten_thousand_records(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    for _ in range(21):
        kinesis.put(name, *[b"x"] * 500)

    read = kinesis.read(name, SHARD)

    assert [len(page["Records"]) for page in read.pages if page["Records"]] == [10_000, 500]


def test_a_page_of_ten_mebibytes_keeps_the_shard_busy_for_five_seconds(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    for n in range(11):
        kinesis.put(name, b"%d" % n + bytes((1 << 20) - 4))

    first = kinesis.page(kinesis.iterator(name, SHARD))
    kinesis.wait(4.9)
    with pytest.raises(ClientError) as refused:
        kinesis.page(first["NextShardIterator"])
    kinesis.wait(0.1)
    second = kinesis.page(first["NextShardIterator"])

    assert (len(first["Records"]), len(second["Records"])) == (10, 1)
    assert refusal(refused) == "ProvisionedThroughputExceededException"


def test_a_shard_gives_two_mebibytes_a_second_to_all_its_readers(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    for _ in range(2):
        kinesis.put(name, bytes((1 << 20) - 4), b"x")
    iterator = kinesis.iterator(name, SHARD)

    kinesis.page(iterator)
    with pytest.raises(ClientError) as refused:
        kinesis.page(iterator)
    kinesis.wait(1)
    kinesis.page(iterator)

    assert refusal(refused) == "ProvisionedThroughputExceededException"


def test_a_record_of_ten_megabytes_is_read_where_the_stream_allows_it(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream(MaxRecordSizeInKiB=10_240)
    data = b"large" * 2_000_000

    kinesis.put(name, b"small", data, b"small")

    records = kinesis.page(kinesis.iterator(name, SHARD))["Records"]
    assert [record["Data"] for record in records] == [b"small", data, b"small"]


def test_an_idle_reader_is_as_far_behind_as_its_next_record_is_old(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"0", b"1")

    kinesis.wait(60)
    answers = list(kinesis.pages(kinesis.iterator(name, SHARD), limit=1))

    assert [round(one["MillisBehindLatest"], -3) for one in answers[:2]] == [60_000, 0]


@pytest.mark.parametrize(
    ("calls", "code", "ask"),
    [
        (
            5,
            "ProvisionedThroughputExceededException",
            lambda c, name, _: c.get_shard_iterator(StreamName=name, ShardId=SHARD, ShardIteratorType="LATEST"),
        ),
        (20, "LimitExceededException", lambda c, name, _: c.describe_stream_summary(StreamName=name)),
        (5, "LimitExceededException", lambda c, _, arn: c.list_stream_consumers(StreamARN=arn)),
    ],
    ids=["GetShardIterator", "DescribeStreamSummary", "ListStreamConsumers"],
)
def test_one_call_too_many_in_a_second_is_refused(
    kinesis: KinesisEndpoint, calls: int, code: str, ask: Callable[[Any, str, str], Any]
) -> None:
    name = kinesis.stream()
    arn = kinesis.summary(name)["StreamARN"]
    kinesis.wait(1)

    for _ in range(calls):
        ask(kinesis.client, name, arn)
    with pytest.raises(ClientError) as refused:
        ask(kinesis.client, name, arn)
    kinesis.wait(1)

    ask(kinesis.client, name, arn)
    assert refusal(refused) == code


def test_many_producers_and_readers_at_once_neither_lose_nor_double_a_record(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream(shards=4)

    def put(worker: int) -> None:
        for n in range(20):
            kinesis.put(name, *(b"%d-%d-%d" % (worker, n, k) for k in range(5)))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(put, range(8)))

    read = [kinesis.read(name, shard["ShardId"]) for shard in kinesis.shards(name)]
    values = [value for one in read for value in one.values]
    numbers = [record["SequenceNumber"] for one in read for record in one.records]
    assert sorted(values) == sorted(b"%d-%d-%d" % (w, n, k) for w in range(8) for n in range(20) for k in range(5))
    assert len(set(numbers)) == 800


def test_the_server_refuses_puts_when_its_memory_is_used_up() -> None:
    with frozen_kinesis(most_bytes=100_000) as small:
        name = small.stream()
        entries = [{"Data": bytes(10_000), "PartitionKey": "k"}] * 20

        answers = small.client.put_records(StreamName=name, Records=entries)["Records"]

        kept = [one for one in answers if "SequenceNumber" in one]
        assert 5 < len(kept) < 10
        assert {one.get("ErrorCode") for one in answers} == {None, "LimitExceededException"}
        assert [r["SequenceNumber"] for r in small.read(name, SHARD).records] == [k["SequenceNumber"] for k in kept]
        small.wait(25 * HOUR)
        small.put(small.stream(), bytes(90_000))  # what the other stream keeps is too old


def test_a_stream_of_the_same_name_has_limits_of_its_own(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    for _ in range(5):
        kinesis.client.get_shard_iterator(StreamName=name, ShardId=SHARD, ShardIteratorType="LATEST")
    with refused_with("ProvisionedThroughputExceededException"):
        kinesis.client.get_shard_iterator(StreamName=name, ShardId=SHARD, ShardIteratorType="LATEST")

    kinesis.client.delete_stream(StreamName=name)
    kinesis.client.create_stream(StreamName=name, ShardCount=1)

    assert kinesis.client.get_shard_iterator(StreamName=name, ShardId=SHARD, ShardIteratorType="LATEST")
