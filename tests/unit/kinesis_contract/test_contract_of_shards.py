"""Resharding and lists of shards at every Kinesis endpoint."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.kinesis.endpoint import HASH_KEYS, SHARD, KinesisEndpoint, Shard, hash_range, refused_with


def test_a_split_shard_is_closed_stays_readable_and_names_its_children_at_its_end(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    put = kinesis.put(name, b"0", b"1", b"2")

    kinesis.split(name, kinesis.shard(name, 0))
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

    kinesis.split(name, kinesis.shard(name, 0))
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
    kinesis.split(name, kinesis.shard(name, 0))

    read = kinesis.read(name, SHARD, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=last)

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
    kinesis.split(name, second)

    def merge(one: Shard, other: Shard) -> None:
        kinesis.client.merge_shards(StreamName=name, ShardToMerge=one["ShardId"], AdjacentShardToMerge=other["ShardId"])

    refusals: list[Callable[[], Any]] = [
        lambda: merge(first, third),
        lambda: merge(first, second),
        lambda: kinesis.split(name, second),
        lambda: kinesis.client.split_shard(
            StreamName=name, ShardToSplit=first["ShardId"], NewStartingHashKey=str(hash_range(third)[0] + 9)
        ),
    ]
    for call in refusals:
        with refused_with("InvalidArgumentException"):
            call()
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
        with refused_with("LimitExceededException", "InvalidArgumentException"):
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
    with refused_with("InvalidArgumentException"):
        kinesis.client.list_shards(StreamName=name, NextToken=token)


def test_filters_of_shards_select_by_time_and_by_id(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    at_first = kinesis.summary(name)["StreamCreationTimestamp"]
    kinesis.wait(3)
    kinesis.split(name, kinesis.shard(name, 0))

    def numbers(kind: str, **more: Any) -> list[str]:
        return [shard["ShardId"][-1] for shard in kinesis.shards(name, ShardFilter={"Type": kind, **more})]

    assert numbers("FROM_TRIM_HORIZON") == ["0", "1", "2"]
    assert numbers("AT_TRIM_HORIZON") == ["0"]
    assert numbers("AT_LATEST") == ["1", "2"]
    assert numbers("AFTER_SHARD_ID", ShardId="shardId-000000000001") == ["2"]
    assert numbers("AT_TIMESTAMP", Timestamp=at_first + timedelta(seconds=1)) == ["0"]
    assert numbers("FROM_TIMESTAMP", Timestamp=at_first + timedelta(seconds=1)) == ["0", "1", "2"]
