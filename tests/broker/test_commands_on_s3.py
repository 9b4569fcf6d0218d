"""Everything beside the drain on a lake in an S3 bucket: tests of a local lake once more, with their tables there."""

from __future__ import annotations

import subprocess
from pathlib import Path
from urllib.request import urlopen

import boto3
import pytest

from kdi_assets.delta.log import TableLog
from kdi_assets.delta.object_storage import PROOF
from kdi_assets.runtime.errors import OtherLock
from kdi_assets.settings import Settings
from tests.broker import (
    test_audit,
    test_checks,
    test_cli_commands,
    test_cli_dead_letters,
    test_decisions,
    test_metrics,
    test_replay_dates,
    test_replay_letters,
    test_upkeep,
)
from tests.broker.test_cli_commands import DOCUMENT, publish
from tests.conftest import DrivenFactory
from tests.documents import written
from tests.driven import DrivenStream
from tests.faults import test_dead_letters, test_restores
from tests.secrets import KEYS
from tests.typed import Answer, Kdi

orders, web = test_cli_commands.orders, test_metrics.web

test_plan = test_cli_commands.test_plan_says_what_the_drain_does_next_and_does_nothing_itself
test_drain_and_status = test_cli_commands.test_drain_and_status_tell_what_was_drained
test_no_spark = test_cli_commands.test_plan_status_and_an_audit_that_finds_nothing_load_no_spark
test_peek = test_cli_commands.test_peek_shows_rows_and_reasons_of_what_waits_or_of_the_newest
test_accept_loss = test_cli_commands.test_a_loss_is_shown_first_and_accepted_with_yes
test_audit_and_upkeep = (
    test_cli_commands.test_audit_names_what_is_gone_takes_bounds_and_compares_and_upkeep_copies_what_it_cleans
)
test_audit_against_kafka = test_audit.test_rows_dead_letters_and_tombstones_agree_with_the_messages_in_kafka
test_audit_of_one_version = test_audit.test_an_audit_during_a_drain_sees_one_version
test_letters_by_command = (
    test_cli_dead_letters.test_letters_are_listed_shown_replayed_and_discarded_and_their_rows_moved_to_another_date
)
test_orphaned_letters = test_dead_letters.test_orphaned_dead_letters_are_removed_only_below_the_position
test_replay_of_a_date = (
    test_replay_dates.test_a_date_becomes_what_todays_definition_makes_of_its_messages_and_no_other_file_is_touched
)
test_replays_at_once = test_replay_letters.test_two_replays_and_a_drain_at_once_lose_nothing_and_double_nothing
test_rewind = test_decisions.test_rows_are_removed_in_the_commit_that_sets_the_positions_back
test_restore = test_restores.test_an_idle_restore_is_answered_before_anything_is_read
test_clean_up = test_upkeep.test_after_a_clean_up_drains_go_on_and_the_audit_is_complete
test_renewal = test_upkeep.test_an_idle_tables_positions_are_renewed_before_its_newest_ledger_commit_goes
test_freshness = test_checks.test_an_idle_stream_is_fresh_a_waiting_one_gets_old_and_a_held_one_too
test_scrape = test_metrics.test_a_scrape_tells_of_broker_and_table_and_of_what_came_since_the_last


@pytest.fixture
def lake(s3_lake: str) -> str:
    """The lake of these tests' streams."""
    return s3_lake


def served_at(server: subprocess.Popen[bytes]) -> str:
    """The address that the server names in its output."""
    assert server.stderr is not None
    return test_metrics.served_at(server.stderr)


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
    with test_metrics.kdi("metrics", "serve", "--port", "0") as server, urlopen(served_at(server)) as scraped:
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

    assert test_checks.wrong(web) == {}


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
