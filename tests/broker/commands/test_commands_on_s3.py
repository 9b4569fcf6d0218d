"""What is only on a lake in an S3 bucket, beside the drain: keys, locks, a missing bucket."""

from __future__ import annotations

from pathlib import Path
from urllib.request import urlopen

import boto3
import pytest

from kdi_assets.delta.log import TableLog
from kdi_assets.delta.object_storage import PROOF
from kdi_assets.runtime.errors import OtherLock
from kdi_assets.settings import Settings
from tests.broker.commands.conftest import DOCUMENT, publish
from tests.broker.commands.until_interrupted import kdi as running
from tests.broker.commands.until_interrupted import served_at
from tests.broker.tables.checked import wrong
from tests.conftest import DrivenFactory
from tests.documents import written
from tests.driven import DrivenStream
from tests.storage.secrets import KEYS
from tests.typed import Answer, Kdi


@pytest.fixture
def lake(s3_lake: str) -> str:
    """The lake of these tests' streams."""
    return s3_lake


def objects(lake: str) -> dict[str, bytes]:
    """Every object of the bucket, by its key."""
    client, bucket = boto3.client("s3"), lake.removeprefix("s3://").split("/")[0]
    keys = [
        thing["Key"]
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        for thing in page.get("Contents", ())
    ]
    return {key: client.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}


def test_no_command_and_no_object_of_the_lake_shows_a_key(kdi: Kdi, orders: DrivenStream) -> None:
    """Pass: of what commands and metrics say and of what lies in the bucket, nothing holds the access key or the
    secret.
    """
    publish(orders, good=10, bad=3)
    commands = ("plan", "drain", "status", "history", "audit", "upkeep", "peek")

    answers: list[Answer] = [kdi(name, "orders", *json) for name in commands for json in ((), ("--json",))]
    answers += [kdi("dead-letters", "list", "orders"), kdi("doctor"), kdi("doctor", "--json"), kdi("check")]
    with running("metrics", "serve", "--port", "0") as server:
        assert server.stderr is not None
        with urlopen(served_at(server.stderr)) as scraped:
            metrics = scraped.read()
    found = objects(orders.lake)

    assert [answer.err for answer in answers if answer.code] == []
    assert f"lake/{PROOF}" in found and any(key.endswith("00000000000000000001.json") for key in found)
    assert b"kdi_position_offset" in metrics
    texts = [metrics, *found.values(), *((answer.out + answer.err).encode() for answer in answers)]
    assert [text for text in texts if any(key in text for key in KEYS)] == []


def test_every_check_of_the_table_passes(driven: DrivenFactory) -> None:
    web = driven()
    web.produce(30, tombstones=0.1)
    web.drain()

    assert wrong(web) == {}


def test_a_session_with_the_log_store_of_dynamodb_commits_nothing(driven: DrivenFactory) -> None:
    """Procedure: the session's setting names Delta's log store with a lock, as spark-defaults.conf could; drain; then
    drain with ours.
    """
    web, setting = driven(), "spark.delta.logStore.s3.impl"
    produced, conf = web.produce(20), web.session().conf
    ours = conf.get(setting)
    assert ours is not None

    conf.set(setting, "io.delta.storage.S3DynamoDBLogStore")
    with pytest.raises(OtherLock, match=rf"{setting} is io.delta.storage.S3DynamoDBLogStore"):
        web.drain()
    table = TableLog.open(web.uri)
    conf.set(setting, ours)
    web.drain()

    assert table is None
    web.assert_each_offset_once(produced)


def test_doctor_says_that_the_lake_is_in_order(kdi: Kdi, orders: DrivenStream) -> None:
    found = {f["examination"]: f for f in kdi("doctor", "--json").objects if f["of"] == orders.lake}

    assert {name: f["verdict"] for name, f in found.items()} == dict.fromkeys(("region", "storage", "clock"), "ok")


def test_a_lake_that_names_a_missing_bucket_is_refused_with_the_way_out(
    kdi: Kdi, orders: DrivenStream, environment: Settings, defs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDI_LAKE", "s3://there-is-no-such-bucket/lake")
    written(defs, orders=DOCUMENT.format(topic=orders.stream.topic, table="orders"))
    publish(orders)

    drained, planned = kdi("drain", "orders"), kdi("plan", "orders")

    assert (drained.code, planned.code) == (75, 75)
    assert "NoSuchBucket" in drained.err and "kdi doctor" in drained.err
