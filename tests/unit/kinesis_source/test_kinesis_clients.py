"""The two clients of Kinesis: their keys, and what they are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.java_gateway import JavaPackage

from kdi_assets.dev.s3_server import start_s3_server
from kdi_assets.sources.kinesis import reader
from kdi_assets.sources.kinesis.client import reader_access
from kdi_assets.sources.kinesis.errors import (
    KinesisReaderMissing,
    KinesisRequestRefused,
    KinesisUnanswered,
)
from kdi_assets.sources.kinesis.source import KinesisSource
from kdi_assets.stream.stream import TopicPartition
from tests.kinesis_shard import OneShard


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


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        ("AccessDeniedException: no (Service: Kinesis, Status Code: 400, Request ID: 1)", KinesisRequestRefused),
        ("InternalFailureException: oh (Service: Kinesis, Status Code: 500, Request ID: 1)", KinesisUnanswered),
        ("ProvisionedThroughputExceededException: busy (Service: Kinesis, Status Code: 400)", KinesisUnanswered),
        ("No space left on device", OSError),
    ],
)
def test_what_kinesis_says_to_the_executors_is_no_failure_of_the_storage(raised: str, error: type[Exception]) -> None:
    with pytest.raises(error), reader.reader_failures("main"):
        raise OSError(raised)
