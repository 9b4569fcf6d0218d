"""What every Kinesis endpoint must do: our own server, or that of KDI_KINESIS_ENDPOINT, a URL or ``aws``.

Only what can be seen within seconds is here; what needs a clock that tests move is in `test_kinesis_server.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from botocore.exceptions import ClientError, EventStreamError

from tests.kinesis import HASH_KEYS, KinesisEndpoint, Shard, frozen_kinesis, hash_range, kinesis_client, refusal

ENDPOINT = "KDI_KINESIS_ENDPOINT"
OURS = "ours"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[tuple[str, KinesisEndpoint]]:
    """The endpoint under test, with the name under which its differences are known."""
    if not (given := os.environ.get(ENDPOINT)):
        with frozen_kinesis() as ours:
            yield OURS, ours
        return
    with closing(kinesis_client(None if given == "aws" else given)) as client:
        yield given, KinesisEndpoint(client)


_NO_PARENTS = "it removes a shard that is split or merged, and what is in it"
DIFFERENCES: Mapping[str, Mapping[str, str]] = {
    "ministack": {
        "test_sequence_numbers_have_56_digits_and_grow_within_a_shard": "30 digits, with leading zeros",
        "test_a_timestamp_in_the_future_is_refused": "it is taken",
        "test_a_sequence_number_of_another_shard_is_refused_and_both_are_named": "it is taken",
        "test_a_sequence_number_of_a_deleted_stream_of_the_same_name_is_refused": "it is taken",
        "test_more_than_ten_thousand_records_cannot_be_asked_for": "any limit is taken",
        "test_a_shard_takes_five_reads_in_a_second": "nothing is throttled",
        "test_more_than_500_records_too_large_ones_and_bad_hash_keys_are_refused": "bad hash keys are taken",
        "test_a_split_shard_is_closed_stays_readable_and_names_its_children_at_its_end": _NO_PARENTS,
        "test_the_children_of_a_split_take_over_its_hash_range_and_its_records": _NO_PARENTS,
        "test_behind_the_last_record_of_a_closed_shard_a_reader_is_at_its_end": _NO_PARENTS,
        "test_a_merged_shard_names_both_parents": _NO_PARENTS,
        "test_only_open_neighbours_are_merged_and_only_open_shards_are_split": "any two shards are merged",
        "test_the_shard_count_at_most_doubles_and_at_most_halves": "any count is taken",
        "test_shards_are_listed_in_pages_whose_token_stands_alone": "a token needs the stream's name beside it",
        "test_filters_of_shards_select_by_time_and_by_id": _NO_PARENTS,
        "test_a_dry_run_only_says_that_the_call_would_succeed": "the call is made",
        "test_a_consumer_is_created_becomes_active_and_is_found_by_name_and_arn": "a consumer is ACTIVE at once",
        "test_a_stream_with_consumers_is_deleted_only_with_them": "it is deleted with them",
        "test_a_subscription_ends_at_the_end_of_its_shard_with_the_children[later]": _NO_PARENTS,
    },
}
"""What an endpoint is known to do otherwise: by its name, the test and the reason."""


@pytest.fixture
def kinesis(endpoint: tuple[str, KinesisEndpoint], request: pytest.FixtureRequest) -> Iterator[KinesisEndpoint]:
    name, one = endpoint
    known = DIFFERENCES.get(name, {})
    for test in (request.node.name, request.node.originalname):
        if test in known:
            request.applymarker(pytest.mark.xfail(reason=known[test], strict=True))
    if one.server:
        one.wait(2)  # calls of the test before must not count towards the limits of this one
    yield one
    one.clean_up()


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

    with pytest.raises(ClientError) as refused:
        kinesis.client.create_stream(StreamName=name, ShardCount=3)

    assert refusal(refused) == "ResourceInUseException"
    assert kinesis.summary(name)["OpenShardCount"] == 1


def test_calls_about_a_stream_or_shard_that_is_missing_are_refused(kinesis: KinesisEndpoint) -> None:
    name, client = kinesis.stream(), kinesis.client
    missing: list[Callable[[], Any]] = [
        lambda: client.describe_stream_summary(StreamName="no-such-stream"),
        lambda: client.list_shards(StreamName="no-such-stream"),
        lambda: client.put_record(StreamName="no-such-stream", Data=b"", PartitionKey="k"),
        lambda: kinesis.iterator("no-such-stream", "shardId-000000000000"),
        lambda: kinesis.iterator(name, "shardId-000000000007"),
        lambda: client.delete_stream(StreamName="no-such-stream"),
    ]

    for call in missing:
        with pytest.raises(ClientError) as refused:
            call()
        assert refusal(refused) == "ResourceNotFoundException"


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
    assert (by_key["ShardId"], by_hash["ShardId"]) == ("shardId-000000000000", "shardId-000000000002")


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
        kinesis.iterator(name, "shardId-000000000000", "AT_TIMESTAMP", Timestamp=datetime(2099, 1, 1, tzinfo=UTC))

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
    kinesis.client.delete_stream(StreamName=name)
    kinesis.wait(2)
    kinesis.stream(name=name)

    with pytest.raises(ClientError, match="did not come from this stream") as refused:
        kinesis.iterator(name, "shardId-000000000000", "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=number)

    assert refusal(refused) == "InvalidArgumentException"


def test_a_page_holds_at_most_the_limit_and_says_that_more_is_behind(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.put(name, *(b"%d" % n for n in range(25)))
    kinesis.wait(1)

    read = kinesis.read(name, "shardId-000000000000", limit=10)

    full = [page for page in read.pages if page["Records"]]
    assert [len(page["Records"]) for page in full] == [10, 10, 5]
    assert [page["MillisBehindLatest"] > 0 for page in full] == [True, True, False]
    assert len({record["SequenceNumber"] for record in read.records}) == 25


def test_more_than_ten_thousand_records_cannot_be_asked_for(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    iterator = kinesis.iterator(name, "shardId-000000000000")

    with pytest.raises(ClientError):
        kinesis.client.get_records(ShardIterator=iterator, Limit=10_001)
    with pytest.raises(ClientError):
        kinesis.client.get_records(ShardIterator="not an iterator")


def test_an_iterator_answers_the_same_records_again(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"0", b"1")
    iterator = kinesis.iterator(name, "shardId-000000000000")

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
        with pytest.raises(ClientError):
            call()
    assert kinesis.read(name, "shardId-000000000000").values == []


def split(kinesis: KinesisEndpoint, stream: str, shard: Shard) -> None:
    """Split a shard in the middle."""
    first, last = hash_range(shard)
    kinesis.client.split_shard(
        StreamName=stream, ShardToSplit=shard["ShardId"], NewStartingHashKey=str((first + last + 1) // 2)
    )
    kinesis.settle(stream)


def test_a_split_shard_is_closed_stays_readable_and_names_its_children_at_its_end(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    put = kinesis.put(name, b"0", b"1", b"2")

    split(kinesis, name, kinesis.shard(name, 0))
    parent, low, high = kinesis.shards(name)
    read = kinesis.read(name, parent["ShardId"], limit=2)

    assert read.values == [b"0", b"1", b"2"]
    assert all("NextShardIterator" in page for page in read.pages[:-1]) and "NextShardIterator" not in read.last_page
    assert not any(page.get("ChildShards") for page in read.pages[:-1])
    children = read.last_page["ChildShards"]
    assert [child["ShardId"] for child in children] == [low["ShardId"], high["ShardId"]]
    assert [child["ParentShards"] for child in children] == [[parent["ShardId"]]] * 2
    assert [child["HashKeyRange"] for child in children] == [low["HashKeyRange"], high["HashKeyRange"]]
    assert int(parent["SequenceNumberRange"]["EndingSequenceNumber"]) > int(put[-1]["SequenceNumber"])


def test_the_children_of_a_split_take_over_its_hash_range_and_its_records(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()

    split(kinesis, name, kinesis.shard(name, 0))
    parent, low, high = kinesis.shards(name)
    put = kinesis.put(name, b"low", shard=low) + kinesis.put(name, b"high", shard=high)

    assert [one["ShardId"] for one in put] == [low["ShardId"], high["ShardId"]]
    assert (hash_range(low)[0], hash_range(high)[1]) == hash_range(parent)
    assert hash_range(low)[1] + 1 == hash_range(high)[0]
    assert [child.get("ParentShardId") for child in (low, high)] == [parent["ShardId"]] * 2
    assert [child.get("AdjacentParentShardId") for child in (low, high)] == [None, None]
    ended = int(parent["SequenceNumberRange"]["EndingSequenceNumber"])
    assert all(int(s["SequenceNumberRange"]["StartingSequenceNumber"]) > ended for s in (low, high))
    assert kinesis.read(name, high["ShardId"]).values == [b"high"]


def test_behind_the_last_record_of_a_closed_shard_a_reader_is_at_its_end(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    last = kinesis.put(name, b"0", b"1")[-1]["SequenceNumber"]
    split(kinesis, name, kinesis.shard(name, 0))

    read = kinesis.read(name, "shardId-000000000000", "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=last)

    assert (read.values, "NextShardIterator" in read.last_page) == ([], False)
    assert len(read.last_page["ChildShards"]) == 2


def test_a_merged_shard_names_both_parents(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream(shards=2)
    left, right = kinesis.shards(name)
    kinesis.put(name, b"left", shard=left)

    kinesis.client.merge_shards(StreamName=name, ShardToMerge=left["ShardId"], AdjacentShardToMerge=right["ShardId"])
    kinesis.settle(name)

    child = kinesis.shard(name, 2)
    assert (child["ParentShardId"], child["AdjacentParentShardId"]) == (left["ShardId"], right["ShardId"])
    assert hash_range(child) == (0, HASH_KEYS - 1)
    ends = [kinesis.read(name, parent["ShardId"]).last_page["ChildShards"] for parent in (left, right)]
    assert [[(c["ShardId"], sorted(c["ParentShards"])) for c in end] for end in ends] == [
        [(child["ShardId"], [left["ShardId"], right["ShardId"]])]
    ] * 2
    assert kinesis.read(name, left["ShardId"]).values == [b"left"]


def test_only_open_neighbours_are_merged_and_only_open_shards_are_split(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream(shards=3)
    first, second, third = kinesis.shards(name)
    split(kinesis, name, second)

    def merge(one: Shard, other: Shard) -> None:
        kinesis.client.merge_shards(StreamName=name, ShardToMerge=one["ShardId"], AdjacentShardToMerge=other["ShardId"])

    for refused in (
        lambda: merge(first, third),
        lambda: merge(first, second),
        lambda: split(kinesis, name, second),
        lambda: kinesis.client.split_shard(
            StreamName=name, ShardToSplit=first["ShardId"], NewStartingHashKey=str(hash_range(third)[0] + 9)
        ),
    ):
        with pytest.raises(ClientError):
            refused()
        kinesis.wait(1)
    assert kinesis.summary(name)["OpenShardCount"] == 4


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 4), (4, 2), (2, 3), (3, 2)])
def test_an_updated_shard_count_gives_equal_shards_with_a_lineage(
    kinesis: KinesisEndpoint, before: int, after: int
) -> None:
    name = kinesis.stream(shards=before)

    kinesis.client.update_shard_count(StreamName=name, TargetShardCount=after, ScalingType="UNIFORM_SCALING")
    kinesis.settle(name)

    every = kinesis.shards(name)
    opened = sorted((s for s in every if "EndingSequenceNumber" not in s["SequenceNumberRange"]), key=hash_range)
    edges = [0, *(hash_range(shard)[1] + 1 for shard in opened)]
    widths = [following - edge for edge, following in zip(edges, edges[1:], strict=False)]
    assert [hash_range(shard)[0] for shard in opened] == edges[:-1] and edges[-1] == HASH_KEYS
    assert len(opened) == after and max(widths) - min(widths) <= after
    parents = {shard.get(name) for shard in every for name in ("ParentShardId", "AdjacentParentShardId")}
    assert parents - {None} == {shard["ShardId"] for shard in every} - {shard["ShardId"] for shard in opened}


def test_the_shard_count_at_most_doubles_and_at_most_halves(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream(shards=4)

    for target in (9, 1):
        with pytest.raises(ClientError):
            kinesis.client.update_shard_count(StreamName=name, TargetShardCount=target, ScalingType="UNIFORM_SCALING")
        kinesis.wait(1)
    assert kinesis.summary(name)["OpenShardCount"] == 4


def test_shards_are_listed_in_pages_whose_token_stands_alone(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream(shards=5)

    first = kinesis.client.list_shards(StreamName=name, MaxResults=2)
    token = first["NextToken"]
    second = kinesis.client.list_shards(NextToken=token, MaxResults=2)

    assert [s["ShardId"][-1] for s in first["Shards"] + second["Shards"]] == ["0", "1", "2", "3"]
    assert [s["ShardId"][-1] for s in kinesis.shards(name, MaxResults=2)] == ["0", "1", "2", "3", "4"]
    assert [s["ShardId"][-1] for s in kinesis.shards(name, ExclusiveStartShardId="shardId-000000000002")] == ["3", "4"]
    with pytest.raises(ClientError) as refused:
        kinesis.client.list_shards(StreamName=name, NextToken=token)
    assert refusal(refused) == "InvalidArgumentException"


def test_filters_of_shards_select_by_time_and_by_id(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    at_first = kinesis.summary(name)["StreamCreationTimestamp"]
    kinesis.wait(3)
    split(kinesis, name, kinesis.shard(name, 0))

    def numbers(kind: str, **more: Any) -> list[str]:
        return [shard["ShardId"][-1] for shard in kinesis.shards(name, ShardFilter={"Type": kind, **more})]

    assert numbers("FROM_TRIM_HORIZON") == ["0", "1", "2"]
    assert numbers("AT_TRIM_HORIZON") == ["0"]
    assert numbers("AT_LATEST") == ["1", "2"]
    assert numbers("AFTER_SHARD_ID", ShardId="shardId-000000000001") == ["2"]
    assert numbers("AT_TIMESTAMP", Timestamp=at_first + timedelta(seconds=1)) == ["0"]
    assert numbers("FROM_TIMESTAMP", Timestamp=at_first + timedelta(seconds=1)) == ["0", "1", "2"]


def test_the_retention_is_between_a_day_and_a_year(kinesis: KinesisEndpoint) -> None:
    name, client = kinesis.stream(), kinesis.client

    client.increase_stream_retention_period(StreamName=name, RetentionPeriodHours=48)
    kinesis.settle(name)
    raised = kinesis.summary(name)["RetentionPeriodHours"]
    client.decrease_stream_retention_period(StreamName=name, RetentionPeriodHours=24)
    kinesis.settle(name)

    assert (raised, kinesis.summary(name)["RetentionPeriodHours"]) == (48, 24)
    with pytest.raises(ClientError):
        client.increase_stream_retention_period(StreamName=name, RetentionPeriodHours=8761)
    with pytest.raises(ClientError):
        client.decrease_stream_retention_period(StreamName=name, RetentionPeriodHours=23)


def test_a_dry_run_only_says_that_the_call_would_succeed(kinesis: KinesisEndpoint) -> None:
    name, client = kinesis.stream(), kinesis.client
    consumer = kinesis.consumer(name)
    shard, iterator = "shardId-000000000000", kinesis.iterator(name, "shardId-000000000000")
    start = {"Type": "TRIM_HORIZON"}
    calls: list[Callable[[], Any]] = [
        lambda: client.put_record(StreamName=name, Data=b"x", PartitionKey="k", DryRun=True),
        lambda: kinesis.iterator(name, shard, DryRun=True),
        lambda: client.get_records(ShardIterator=iterator, DryRun=True),
        lambda: client.subscribe_to_shard(ConsumerARN=consumer, ShardId=shard, StartingPosition=start, DryRun=True),
    ]

    for call in calls:
        with pytest.raises(ClientError) as refused:
            call()
        assert refusal(refused) == "DryRunOperationException"
    with pytest.raises(ClientError) as refused:
        kinesis.iterator(name, "shardId-000000000009", DryRun=True)
    assert refusal(refused) == "ResourceNotFoundException"
    assert kinesis.read(name, shard).values == []


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
    with pytest.raises(ClientError) as refused:
        client.register_stream_consumer(StreamARN=stream, ConsumerName="kdi")
    assert refusal(refused) == "ResourceInUseException"


def test_a_consumer_that_is_registered_again_has_another_arn(kinesis: KinesisEndpoint) -> None:
    name, client = kinesis.stream(), kinesis.client
    first = kinesis.consumer(name)

    client.deregister_stream_consumer(ConsumerARN=first)
    kinesis.wait(2)
    with pytest.raises(ClientError) as refused:
        client.describe_stream_consumer(ConsumerARN=first)
    again = kinesis.consumer(name)

    assert refusal(refused) == "ResourceNotFoundException"
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

    with pytest.raises(ClientError) as refused:
        kinesis.client.delete_stream(StreamName=name)
    kinesis.client.delete_stream(StreamName=name, EnforceConsumerDeletion=True)
    kinesis.wait(2)

    assert refusal(refused) == "ResourceInUseException"
    with pytest.raises(ClientError):
        kinesis.summary(name)


def received(events: Any, count: int) -> list[Mapping[str, Any]]:
    """The events of a subscription, until so many records came."""
    got: list[Mapping[str, Any]] = []
    while sum(len(event["Records"]) for event in got) < count:
        got.append(next(events)["SubscribeToShardEvent"])
    return got


def values(events: list[Mapping[str, Any]]) -> list[bytes]:
    """The data of all records of some events."""
    return [record["Data"] for event in events for record in event["Records"]]


def test_a_subscription_pushes_what_is_there_and_what_comes(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"0", b"1")
    events = kinesis.subscribe(kinesis.consumer(name), "shardId-000000000000")

    there = received(events, 2)
    put = kinesis.put(name, b"2", b"3")
    came = received(events, 2)

    assert (values(there), values(came)) == ([b"0", b"1"], [b"2", b"3"])
    assert came[-1]["ContinuationSequenceNumber"] == put[-1]["SequenceNumber"]
    assert (there[-1]["MillisBehindLatest"], "ChildShards" in there[-1]) == (0, False)


def test_a_subscription_goes_on_behind_the_continuation_of_the_one_before(kinesis: KinesisEndpoint) -> None:
    name, shard = kinesis.stream(), "shardId-000000000000"
    kinesis.put(name, b"0", b"1")
    consumer = kinesis.consumer(name)
    reached = received(kinesis.subscribe(consumer, shard), 2)[-1]["ContinuationSequenceNumber"]
    kinesis.put(name, b"2")
    kinesis.wait(6)

    later = kinesis.subscribe(consumer, shard, "AFTER_SEQUENCE_NUMBER", SequenceNumber=reached)

    assert values(received(later, 1)) == [b"2"]


def test_a_subscription_to_an_idle_shard_says_how_far_it_is(kinesis: KinesisEndpoint) -> None:
    name, shard = kinesis.stream(), "shardId-000000000000"
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
        split(kinesis, name, shard)
    events = kinesis.subscribe(consumer, shard["ShardId"])
    got = received(events, 1)
    if when == "live":
        split(kinesis, name, shard)

    got += [event["SubscribeToShardEvent"] for event in islice(events, 100)]

    assert values(got) == [b"0"]
    children = got[-1]["ChildShards"]
    assert [child["ShardId"] for child in children] == ["shardId-000000000001", "shardId-000000000002"]
    assert not any(event.get("ChildShards") for event in got[:-1])


def test_a_second_subscription_is_refused_within_five_seconds_and_takes_over_later(kinesis: KinesisEndpoint) -> None:
    name, shard = kinesis.stream(), "shardId-000000000000"
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
    name, shard = kinesis.stream(), "shardId-000000000000"
    kinesis.put(name, b"0")

    both = [kinesis.subscribe(kinesis.consumer(name, one), shard) for one in ("kdi-a", "kdi-b")]

    assert [values(received(events, 1)) for events in both] == [[b"0"], [b"0"]]
