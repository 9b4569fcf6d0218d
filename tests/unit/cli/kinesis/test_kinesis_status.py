"""`kdi status`, `kdi plan` and `kdi doctor` of a stream of Kinesis: how long records wait, and what is not known."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kdi_assets.cli.session import LazySession
from kdi_assets.operate.monitoring.backlog import State
from kdi_assets.operate.monitoring.stream_row import stream_row_reader
from kdi_assets.tools.local.kinesis.faults import Fault
from tests.kinesis.drained import Drained, document
from tests.typed import Kdi


def test_a_plan_says_since_when_records_wait(kdi: Kdi, orders: Drained, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "nothing to drain" in kdi("plan", "orders").out

    monkeypatch.setattr(LazySession, "__call__", lambda session: None)
    monkeypatch.setattr("kdi_assets.streams.drain.takeover.refuse_unsuitable", lambda *_: None)
    orders.put()
    orders.server.advance(2)
    plan, (fields,) = kdi("plan", "orders"), kdi("plan", "orders", "--json").objects

    assert "would drain what follows the positions" in plan.out
    assert "orders/0" in plan.out and "nothing" not in plan.out
    assert (fields["step"], fields["backlog_offsets"]) == ("drain", None)
    assert fields["waiting_since"]


def test_before_the_first_drain_status_plan_and_doctor_say_since_when_records_wait(
    kdi: Kdi, orders: Drained, lake: str
) -> None:
    shutil.rmtree(Path(lake) / "bronze")
    orders.server.advance(3600)

    (row,) = kdi("status", "orders", "--json").objects
    status, plan = kdi("status", "orders"), kdi("plan", "orders")
    (fields,) = kdi("plan", "orders", "--json").objects
    found = {(one["examination"], one["of"]): one for one in kdi("doctor", "orders", "--json").objects}

    assert (row["backlog_offsets"], row["needs_position_commit"], row["next_command"]) == (
        1,
        True,
        "kdi drain bronze/orders",
    )
    assert row["lag_seconds"] is not None
    assert row["time_to_loss_seconds"] is None, "what retention removes before a start is not lost"
    assert "1 shard" in status.out
    assert "FIRST RECORD ARRIVED" in plan.out
    assert (fields["step"], fields["backlog_offsets"]) == ("position_commit", None)
    assert fields["waiting_since"]
    assert found["stream", "bronze/orders"]["found"].startswith("records wait on 1 shard")
    assert found["retention", "bronze/orders"]["verdict"] == "ok"


def test_a_status_that_did_not_reach_the_end_of_a_shard_says_so(
    kdi: Kdi, orders: Drained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.monotonic", orders.server.now)
    orders.server.behaviour.empty_pages = 250

    status, (row,) = kdi("status", "orders"), kdi("status", "orders", "--json").objects

    assert (row["state"], row["behind"], row["topic_partitions"]["orders/0"]["backlog_offsets"]) == (
        "unknown",
        None,
        None,
    )
    assert "not every shard was looked at to its end yet; kdi status bronze/orders --watch goes on" in status.out


def test_a_status_of_a_stream_that_does_not_answer_says_so_and_does_not_count(kdi: Kdi, orders: Drained) -> None:
    orders.put()
    orders.server.order(Fault("GetRecords", code="ExpiredTokenException", times=1000))

    status, (row,) = kdi("status", "orders"), kdi("status", "orders", "--json").objects
    orders.server.unmet_faults()

    assert (row["state"], row["behind"], row["waiting_seconds"]) == ("unreachable", None, None)
    assert "Kinesis (eu) does not answer now" in status.out
    assert "was looked at to its end" not in status.out


def test_a_status_knows_how_long_records_wait_and_not_how_many(orders: Drained, lake: str) -> None:
    orders.put()
    orders.server.advance(2)

    (row,) = stream_row_reader([orders.stream], lake)()

    assert (row.state, row.behind, row.next_command) == (State.OK, 1, "kdi drain bronze/orders")
    assert row.waiting_seconds is not None
    assert row.backlog.time_to_loss_seconds is not None
    assert (row.backlog.bytes, row.backlog.arrival_rate, row.backlog.time_to_close_seconds) == (None, None, None)


def test_the_doctor_looks_at_streams_of_kinesis(kdi: Kdi, orders: Drained) -> None:
    found = {(one["examination"], one["of"]): one for one in kdi("doctor", "orders", "--json").objects}

    assert found["stream", "bronze/orders"]["verdict"] == "ok"
    assert found["retention", "bronze/orders"]["found"].startswith("kept for 1 d")
    assert found["jars", "kinesis"]["verdict"] == "wrong"
    assert "kdi jars --kinesis" in str(found["jars", "kinesis"])


def test_the_doctor_names_the_jars_of_kinesis_once(
    kdi: Kdi, orders: Drained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home" / "jars" / "kinesis").mkdir(parents=True)
    monkeypatch.setattr("kdi_assets.operate.doctor.machine.refuse_unlocked", lambda *_, **options: 6)

    rows = [one["of"] for one in kdi("doctor", "orders", "--json").objects if one["examination"] == "jars"]

    assert rows.count("kinesis") == 1


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_KINESIS", "AWS_ENDPOINT_URL"])
def test_a_status_begins_with_the_address_that_the_environment_gives_instead_of_the_regions(
    kdi: Kdi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    document(tmp_path / "defs", endpoint="")
    monkeypatch.setenv(variable, "http://127.0.0.1:1")

    answer = kdi("status")

    assert f"kinesis    http://127.0.0.1:1 (eu: {variable})" in answer.err


def test_a_doctor_of_a_table_says_why_its_document_is_not_loaded(kdi: Kdi, tmp_path: Path) -> None:
    document(tmp_path / "defs")
    (tmp_path / "defs" / "orders" / "defs.yaml").rename(tmp_path / "defs" / "orders.yaml")

    answer = kdi("doctor", "orders")

    assert answer.code == 1
    assert "orders.yaml:1 document: nothing loads this file" in answer.err
