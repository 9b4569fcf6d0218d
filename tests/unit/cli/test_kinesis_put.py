"""`kdi kinesis`: the server in the foreground, and generated records, alone or in aggregates."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from kdi_assets.tools.local.kinesis import producer
from kdi_assets.tools.local.kinesis.aggregates import to_aggregate
from kdi_assets.tools.local.kinesis.faults import Fault
from kdi_assets.tools.local.kinesis.server import run_kinesis
from tests.kinesis.endpoint import SHARD, KinesisEndpoint, frozen_kinesis, hash_range
from tests.kinesis.kpl import hash_key, parse_aggregate
from tests.typed import Kdi


@pytest.fixture
def kinesis(monkeypatch: pytest.MonkeyPatch) -> Iterator[KinesisEndpoint]:
    """A server that `kdi` finds by its environment."""
    with frozen_kinesis() as endpoint:
        for name, value in endpoint.ours.environment().items():
            monkeypatch.setenv(name, value)
        yield endpoint


def read_all(kinesis: KinesisEndpoint, stream: str) -> dict[str, list[Any]]:
    """The records of every shard."""
    ids = [shard["ShardId"] for shard in kinesis.shards(stream)]
    return {shard: list(kinesis.read(stream, shard).records) for shard in ids}


def test_an_aggregate_holds_its_user_records_in_order_and_each_key_once() -> None:
    records = [("a", b"0"), ("b" * 200, b""), ("a", b"\x00\xff" * 70_000), ("ü", b"3")]

    data = to_aggregate(records)

    assert parse_aggregate(data) == records
    assert data.count(b"b" * 200) == 1


def test_each_message_is_put_once(kdi: Kdi, kinesis: KinesisEndpoint) -> None:
    answer = kdi("kinesis", "put", "orders", "--records", "1200", "--shards", "2", "--json")

    read = read_all(kinesis, "orders")
    keys = sorted(int(record["PartitionKey"]) for records in read.values() for record in records)
    assert (answer.code, answer.objects[0]["records"]) == (0, 1200)
    assert keys == list(range(1200))
    assert all(read.values()) and all(b'"uuid"' in record["Data"] for record in read[SHARD])


def test_each_message_is_in_an_aggregate_of_the_shard_of_its_key(
    kdi: Kdi, kinesis: KinesisEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdi_assets.tools.local.kinesis.manage_streams.PAGE_SHARDS", 2)
    kinesis.stream(shards=3, name="orders")

    answer = kdi("kinesis", "put", "orders", "--records", "2000", "--aggregate")

    spans = {shard["ShardId"]: hash_range(shard) for shard in kinesis.shards("orders")}
    keys = []
    for shard, records in read_all(kinesis, "orders").items():
        inside = [key for record in records for key, _ in parse_aggregate(record["Data"])]
        hashes = [hash_key(key.encode()) for key in inside]
        assert all(spans[shard][0] <= one <= spans[shard][1] for one in hashes)
        keys += inside
    assert sorted(map(int, keys)) == list(range(2000))
    assert "2,000 messages put in " in answer.out and "aggregates" in answer.out


def test_records_that_are_throttled_are_put_again(
    kdi: Kdi, kinesis: KinesisEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "FIRST_PAUSE_SECONDS", 0.0)
    kinesis.stream(name="orders")
    kinesis.ours.order(Fault("PutRecords", times=2, entries=3))

    answer = kdi("kinesis", "put", "orders", "--records", "10")

    keys = [int(record["PartitionKey"]) for record in read_all(kinesis, "orders")[SHARD]]
    assert answer.code == 0
    assert sorted(keys) == list(range(10))


def test_records_that_are_refused_again_and_again_are_counted(
    kdi: Kdi, kinesis: KinesisEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "FIRST_PAUSE_SECONDS", 0.0)
    kinesis.stream(name="orders")
    kinesis.ours.order(Fault("PutRecords", skip=1, times=8, entries=3))

    answer = kdi("kinesis", "put", "orders", "--records", "1200")

    read = kinesis.read("orders", SHARD).records
    assert answer.code == 75
    assert "orders: 3 records were refused again and again: ProvisionedThroughputExceededException" in answer.err
    assert "997 messages were acknowledged" in answer.err and len(read) == 997
    assert "kdi kinesis put orders --records 203 " in answer.err


def test_of_aggregates_that_are_refused_the_messages_are_counted(
    kdi: Kdi, kinesis: KinesisEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "FIRST_PAUSE_SECONDS", 0.0)
    kinesis.stream(name="orders")
    kinesis.ours.order(Fault("PutRecords", times=8, entries=1))

    answer = kdi("kinesis", "put", "orders", "--records", "1000", "--aggregate")

    put = sum(len(parse_aggregate(record["Data"])) for record in kinesis.read("orders", SHARD).records)
    assert answer.code == 75 and 0 < put < 1000
    assert f"{put} messages were acknowledged" in answer.err
    assert f"kdi kinesis put orders --records {1000 - put} --aggregate " in answer.err


def test_what_was_put_before_kinesis_stopped_answering_is_counted(
    kdi: Kdi, kinesis: KinesisEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    kinesis.ours.order(Fault("PutRecords", entries=3))
    kinesis.ours.order(Fault("PutRecords", skip=1, code="InternalFailureException", status=500))

    answer = kdi("kinesis", "put", "orders", "--records", "10", "--shards", "1")

    assert answer.code == 75
    assert "7 messages were acknowledged before" in answer.err
    assert "kdi kinesis put orders --records 3 --shards 1 " in answer.err


def test_a_stream_is_created_only_if_it_is_asked_for(kdi: Kdi, kinesis: KinesisEndpoint) -> None:
    refused = kdi("kinesis", "put", "orders", "--records", "1", "--aggregate")
    created = kdi("kinesis", "put", "orders", "--records", "1", "--shards", "3")

    assert refused.code == 1
    assert "has no Kinesis stream 'orders'" in refused.err
    assert "kdi kinesis put orders --records 1 --aggregate --shards 2 " in refused.err
    assert (created.code, len(kinesis.shards("orders"))) == (0, 3)


def test_without_region_or_server_the_refusal_says_what_to_run(
    kdi: Kdi, kinesis: KinesisEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_KINESIS", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    silent = kdi("kinesis", "put", "orders", "--records", "1")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    nowhere = kdi("kinesis", "put", "orders", "--records", "1")

    assert silent.code == 75 and "Kinesis does not answer for the stream 'orders'" in silent.err
    assert nowhere.code == 1 and "You must specify a region" in nowhere.err and "kdi kinesis run" in nowhere.err
    assert all("kdi kinesis put orders --records 1 " in answer.err for answer in (silent, nowhere))


def test_without_credentials_a_retry_does_not_help(
    kdi: Kdi, kinesis: KinesisEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it remembers the credentials of the tests before

    answer = kdi("kinesis", "put", "orders", "--records", "10")

    assert answer.code == 1
    assert "Unable to locate credentials" in answer.err and "kdi kinesis put orders --records 10 " in answer.err


@pytest.mark.parametrize("command", ["broker", "kinesis"])
@pytest.mark.parametrize("port", ["0", "-1", "65536"])
def test_a_port_that_does_not_exist_is_refused(kdi: Kdi, command: str, port: str) -> None:
    answer = kdi(command, "run", "--port", port)

    assert answer.code == 2
    assert "--port" in answer.err


def test_the_server_in_the_foreground_says_how_to_reach_it_and_ends_with_ctrl_c() -> None:
    lines: list[str] = []

    def report(line: str) -> None:
        lines.append(line)
        if "SECRET" in line:
            os.kill(os.getpid(), signal.SIGINT)

    run_kinesis(port=0, report=report)

    endpoint = lines[0].split()[3].rstrip(",")
    assert lines[0].startswith("Kinesis answers on http://127.0.0.1:")
    assert f"export AWS_ENDPOINT_URL_KINESIS={endpoint}" in lines
    assert "export AWS_DEFAULT_REGION=us-east-1" in lines
