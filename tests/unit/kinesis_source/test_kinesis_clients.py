"""The two clients of Kinesis: their keys, and what they are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.java_gateway import JavaPackage

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.kinesis import reader
from kdi_assets.messages.kinesis.client import reader_access, translated
from kdi_assets.messages.kinesis.errors import (
    KinesisReaderMissing,
    KinesisRequestRefused,
    KinesisUnanswered,
    NoSuchKinesisStream,
)
from kdi_assets.messages.kinesis.shards import id_of
from kdi_assets.messages.kinesis.source import KinesisSource
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.tools.local.kinesis.faults import Fault
from kdi_assets.tools.local.s3_server import start_s3_server
from tests.kinesis.shard import OneShard


def test_a_session_without_the_reader_is_refused_with_the_command_that_fetches_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_kinesis = SimpleNamespace(ShardReader=JavaPackage("kdi.kinesis.ShardReader", None))
    monkeypatch.setattr(reader, "jvm_view", lambda spark: SimpleNamespace(kdi=SimpleNamespace(kinesis=of_kinesis)))

    with pytest.raises(KinesisReaderMissing, match="kdi jars --kinesis"):
        reader.read_shards(cast("Any", None), (), "s", [], until=0, most=1)


def test_both_clients_have_the_keys_of_a_role(tmp_path: Path, shard: OneShard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the server of roles has its own clock
    for name, value in shard.server.environment().items():
        monkeypatch.setenv(name, value)
    role, roles = "arn:aws:iam::123456789012:role/kdi", start_s3_server(tmp_path, services=("sts",))
    own = shard.connection
    try:
        taken = reader_access(replace(own, role_arn=role, role_external_id="4711", sts_endpoint=roles.endpoint))
        source = KinesisSource(replace(own, role_arn=role, sts_endpoint=roles.endpoint))
        assert source.topic("s").partitions.keys() == {TopicPartition("s", 0)}
    finally:
        roles.stop()

    assert reader_access(own) == ("us-east-1", own.endpoint, "kdi-loopback", "kdi-loopback-secret", "")
    assert taken[2] != "kdi-loopback"
    assert all(taken)


def test_a_shard_that_expired_after_it_was_listed_is_no_missing_stream(shard: OneShard) -> None:
    with pytest.raises(KinesisUnanswered, match=id_of(7)), translated(shard.connection, "s"):
        shard.client.get_shard_iterator(StreamName="s", ShardId=id_of(7), ShardIteratorType="TRIM_HORIZON")
    with pytest.raises(NoSuchKinesisStream), translated(shard.connection, "t"):
        shard.client.list_shards(StreamName="t")


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ("GetShardIterator", "ResourceInUseException"),  # the stream is made or deleted
        ("GetShardIterator", "InvalidArgumentException"),  # retention passed the place since it was looked at
        ("GetRecords", "InvalidArgumentException"),
    ],
)
def test_what_another_look_at_a_shard_finds_otherwise_may_pass(shard: OneShard, operation: str, code: str) -> None:
    shard.put("a")
    shard.server.order(Fault(operation, code=code))

    with pytest.raises(KinesisUnanswered, match=code), translated(shard.connection, "s"):
        shard.look(Bookmark())


@pytest.mark.parametrize(
    ("code", "error"),
    [("ExpiredTokenException", KinesisUnanswered), ("UnrecognizedClientException", KinesisRequestRefused)],
)
def test_keys_that_were_replaced_are_read_again_once_the_old_ones_are_refused(
    shard: OneShard, monkeypatch: pytest.MonkeyPatch, code: str, error: type[Exception]
) -> None:
    before = reader_access(shard.connection)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "newer")
    shard.server.order(Fault("DescribeStreamSummary", code=code))

    with pytest.raises(error):
        shard.source.topic("s")

    assert (before[2], reader_access(shard.connection)[2]) == ("kdi-loopback", "newer")


def test_a_role_that_cannot_be_taken_is_an_error_of_kinesis(
    shard: OneShard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    role = replace(shard.connection, role_arn="arn:aws:iam::123456789012:role/kdi", sts_endpoint="http://127.0.0.1:1")
    with pytest.raises(KinesisUnanswered, match="127.0.0.1:1"):
        reader_access(role)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    with pytest.raises(KinesisUnanswered, match="Unable to locate credentials"):
        reader_access(shard.connection)


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        ("AccessDeniedException: no (Service: Kinesis, Status Code: 400, Request ID: 1)", KinesisRequestRefused),
        ("InternalFailureException: oh (Service: Kinesis, Status Code: 500, Request ID: 1)", KinesisUnanswered),
        ("ProvisionedThroughputExceededException: busy (Service: Kinesis, Status Code: 400)", KinesisUnanswered),
        ("ResourceNotFoundException: gone (Service: Kinesis, Status Code: 400)", KinesisUnanswered),
        ("KinesisException: ExpiredTokenException: old (Service: Kinesis, Status Code: 400)", KinesisUnanswered),
        ("KinesisException: UnknownOperationException: no (Service: Kinesis, Status Code: 400)", KinesisRequestRefused),
        ("InvalidArgumentException: trimmed (Service: Kinesis, Status Code: 400)", KinesisUnanswered),
        ("ResourceInUseException: not ACTIVE (Service: Kinesis, Status Code: 400)", KinesisUnanswered),
        ("No space left on device", OSError),
    ],
)
def test_what_kinesis_says_to_the_executors_is_no_failure_of_the_storage(raised: str, error: type[Exception]) -> None:
    with pytest.raises(error), reader.reader_failures("main"):
        raise OSError(raised)
