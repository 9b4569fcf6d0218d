"""Faults that tests order of the server, and its counts of calls."""

from __future__ import annotations

from itertools import islice

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError
from urllib3.exceptions import ProtocolError

from kdi_assets.tools.local.kinesis.faults import Fault
from tests.kinesis.endpoint import SHARD, KinesisEndpoint, refusal, refused_with


def test_the_next_calls_of_an_operation_are_throttled_and_then_go_well(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    iterator = kinesis.iterator(name, SHARD)
    kinesis.ours.order(Fault("GetRecords", skip=1, times=2, code="ProvisionedThroughputExceededException"))

    outcomes = []
    for _ in range(5):
        kinesis.wait(1)
        try:
            kinesis.page(iterator)
            outcomes.append("")
        except ClientError as refused:
            outcomes.append(refused.response["Error"]["Code"])

    throttled = "ProvisionedThroughputExceededException"
    assert outcomes == ["", throttled, throttled, "", ""]


def test_a_fault_waits_for_a_call_that_no_limit_refuses(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    iterator = kinesis.iterator(name, SHARD)
    kinesis.ours.order(Fault("GetRecords", skip=5, code="InternalFailureException", status=500))

    for _ in range(5):
        kinesis.page(iterator)
    with refused_with("ProvisionedThroughputExceededException"):
        kinesis.page(iterator)
    kinesis.wait(1)

    with refused_with("InternalFailureException"):
        kinesis.page(iterator)


def test_faults_of_records_wait_for_a_call_with_records(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.ours.order(Fault("GetRecords", repeats=True))
    kinesis.ours.order(Fault("PutRecords", entries=1))

    empty = kinesis.read(name, SHARD).values
    with refused_with("ResourceNotFoundException"):
        kinesis.put("no-such-stream", b"0")
    refused = kinesis.client.put_records(StreamName=name, Records=[{"Data": b"0", "PartitionKey": "k"}])
    kinesis.put(name, b"0")
    twice = kinesis.read(name, SHARD).values

    assert (empty, refused["FailedRecordCount"], twice) == ([], 1, [b"0", b"0"])


@pytest.mark.parametrize(
    "fault",
    [
        Fault("GetRecord", code="InternalFailureException"),
        Fault("GetRecords"),
        Fault("GetRecords", code="InternalFailureException", times=0),
        Fault("GetRecords", code="InternalFailureException", repeats=True),
        Fault("GetRecords", cut_after=-1),
        Fault("SubscribeToShard", repeats=True),
        Fault("PutRecord", entries=1),
        Fault("ListShards", shard=SHARD, code="InternalFailureException"),
    ],
    ids=str,
)
def test_a_fault_that_could_never_happen_is_refused(kinesis: KinesisEndpoint, fault: Fault) -> None:
    with pytest.raises(ValueError):
        kinesis.ours.order(fault)


def test_a_fault_that_did_not_happen_is_known_and_withdrawn(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.ours.order(Fault("ListShards", times=3, code="LimitExceededException"))
    with refused_with("LimitExceededException"):
        kinesis.shards(name)

    unmet = kinesis.ours.unmet_faults()

    assert [(fault.operation, fault.times) for fault in unmet] == [("ListShards", 2)]
    assert kinesis.ours.unmet_faults() == []
    assert len(kinesis.shards(name)) == 1


def test_a_fault_may_concern_one_shard_only(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream(shards=2)
    first, second = (kinesis.iterator(name, shard["ShardId"]) for shard in kinesis.shards(name))
    kinesis.ours.order(Fault("GetRecords", shard="shardId-000000000001", code="InternalFailureException", status=500))

    kinesis.page(first)
    with pytest.raises(ClientError) as failed:
        kinesis.page(second)
    kinesis.page(second)

    assert failed.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500


@pytest.mark.parametrize("cut_after", [0, 500, 1 << 20])
def test_a_connection_ends_in_the_middle_of_an_answer(kinesis: KinesisEndpoint, cut_after: int) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"0" * 1000)
    iterator = kinesis.iterator(name, SHARD)
    kinesis.ours.order(Fault("GetRecords", cut_after=cut_after))

    with pytest.raises(ConnectionClosedError):
        kinesis.page(iterator)

    assert kinesis.page(iterator)["Records"][0]["Data"] == b"0" * 1000


def test_a_put_whose_answer_is_cut_did_happen(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.ours.order(Fault("PutRecord", cut_after=10))

    with pytest.raises(ConnectionClosedError):
        kinesis.client.put_record(StreamName=name, Data=b"0", PartitionKey="k")
    kinesis.client.put_record(StreamName=name, Data=b"0", PartitionKey="k")

    assert kinesis.read(name, SHARD).values == [b"0", b"0"]


@pytest.mark.parametrize("cut_after", [0, 3000])
def test_a_subscription_breaks_in_the_middle_of_an_event(kinesis: KinesisEndpoint, cut_after: int) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"0" * 5000)
    consumer = kinesis.consumer(name)
    kinesis.ours.order(Fault("SubscribeToShard", cut_after=cut_after))

    with pytest.raises(ProtocolError):
        list(islice(kinesis.subscribe(consumer, SHARD), 10))


def test_an_answer_comes_twice(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.put(name, b"0", b"1", b"2")
    kinesis.ours.order(Fault("GetRecords", repeats=True))

    read = kinesis.read(name, SHARD, limit=2)

    assert read.values == [b"0", b"1", b"0", b"1", b"2"]


def test_records_of_one_put_are_refused_alone(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    kinesis.ours.order(Fault("PutRecords", entries=2))

    entries = [{"Data": b"%d" % n, "PartitionKey": "k"} for n in range(4)]
    answer = kinesis.client.put_records(StreamName=name, Records=entries)

    assert answer["FailedRecordCount"] == 2
    assert ["ErrorCode" in one for one in answer["Records"]] == [True, True, False, False]
    assert kinesis.read(name, SHARD).values == [b"2", b"3"]


def test_iterators_expire_when_it_is_ordered_and_new_ones_go_well(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream()
    iterator = kinesis.iterator(name, SHARD)

    kinesis.ours.expire_iterators()

    with pytest.raises(ClientError) as refused:
        kinesis.page(iterator)
    assert refusal(refused) == "ExpiredIteratorException"
    kinesis.page(kinesis.iterator(name, SHARD))


def test_calls_are_counted_by_operation_stream_shard_and_consumer(kinesis: KinesisEndpoint) -> None:
    name = kinesis.stream(shards=2)
    server, second = kinesis.ours, "shardId-000000000001"
    kinesis.put(name, b"0")

    for shard in (SHARD, second, second):
        kinesis.wait(1)
        kinesis.page(kinesis.iterator(name, shard))
    next(kinesis.subscribe(kinesis.consumer(name), SHARD))
    server.order(Fault("GetRecords", code="InternalFailureException", status=500))
    with refused_with("InternalFailureException"):
        kinesis.page(kinesis.iterator(name, SHARD))

    assert [server.calls("GetRecords", stream=name, shard=shard) for shard in (SHARD, second)] == [2, 2]
    assert server.calls("GetRecords", stream=name) == 4
    assert server.calls("SubscribeToShard", stream=name, shard=SHARD, consumer="kdi") == 1
    assert server.calls("SubscribeToShard", stream=name, shard=second) == 0
    assert server.calls("RegisterStreamConsumer", consumer="kdi", stream=name) == 1
