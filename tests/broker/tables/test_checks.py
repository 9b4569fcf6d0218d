"""The checks of a table, over a broker, Spark and drains: each passes on a good table and fails on its own fault."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from deltalake import DeltaTable, write_deltalake

from kdi_assets.components.materializations import drain_metadata
from kdi_assets.components.names import check_key
from kdi_assets.documents.model.stream import Checks, Cluster, DateWindow, FreshnessLimits
from kdi_assets.operate.monitoring.backlog_reader import read_backlog
from kdi_assets.operate.monitoring.checks.all_checks import run_check
from kdi_assets.operate.monitoring.checks.finding import CheckResult
from kdi_assets.operate.monitoring.checks.subject import CheckSubject
from kdi_assets.sensors.check_tables import CheckTables, table_check_job
from kdi_assets.settings import Settings
from kdi_assets.tools.local.broker import Broker
from kdi_assets.tools.local.publisher import ensure_topic
from tests.broker.tables.checked import checked, wrong
from tests.conftest import DrivenFactory, also_on_s3
from tests.driven import WEB_REQUESTS, DrivenStream, web_requests, web_requests_document
from tests.faults.topics import TransactionalPublisher
from tests.kafka_log import Publisher
from tests.typed import Kdi
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FRESHNESS = FreshnessLimits(300, 1800)


def fresh(web: DrivenStream) -> CheckResult:
    return run_check("fresh", CheckSubject(web.stream, web.lake, web.session))


@pytest.fixture(scope="module")
def _drained(broker: Broker, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DrivenStream:
    """A stream that was drained once, with some dead letters and tombstones."""
    cluster = Cluster("main", broker.bootstrap_servers)
    ensure_topic(cluster, "checks_of_one_drain", partitions=1)
    stream = web_requests("checks_of_one_drain", cluster, freshness=FRESHNESS, checks=Checks(dead_letter_rate=0.2))
    lake = str(tmp_path_factory.mktemp("drained"))
    web = DrivenStream(stream, lake, Publisher(broker.bootstrap_servers), lambda: spark)
    web.produce(200, bad=0.05, tombstones=0.02)
    web.drain()
    return web


@pytest.fixture
def web(_drained: DrivenStream, tmp_path: Path) -> DrivenStream:
    """The drained stream with a copy of its tables, which a test may damage."""
    return _drained.copied(tmp_path / "copy")


@pytest.mark.core
def test_every_check_passes_after_a_drain(web: DrivenStream) -> None:
    after = checked(web, drained=True)

    assert {name: f.description for name, f in after.items() if not f.passed} == {}
    assert len(after) == 9
    assert after["no_duplicate_coordinates"].numbers["rows_looked_at"] == len(web.found().rows)
    assert after["every_offset_accounted_for"].numbers["offsets"] == 200
    assert after["dead_letter_rate"].numbers["dead_letters"] == len(web.found().dead_letters) > 0
    assert after["schema_as_declared"].numbers["columns"] == after["schema_as_declared"].numbers["columns_declared"]


def test_a_position_that_another_writer_set_back_is_found_by_its_check_and_by_no_other(web: DrivenStream) -> None:
    web.as_another_writer(web.stream.app_id, last=3)

    assert wrong(web) == {"positions_never_go_back": "error"}


def test_a_document_that_the_table_does_not_fit_is_found_by_its_check_and_by_no_other(web: DrivenStream) -> None:
    later = DateWindow(start=datetime.now(UTC).date() + timedelta(days=30))
    other = web.with_definition(record_ddl=WEB_REQUESTS.replace("status int", "status bigint"))

    assert wrong(web.with_definition(date_window=later)) == {"dates_in_window": "warn"}
    assert wrong(other) == {"schema_as_declared": "error"}
    differences = checked(other)["schema_as_declared"].lists["differences"]
    assert differences == ("column status is int in the table and bigint in the stream",)


def test_a_retired_stream_is_checked_without_its_topic(web: DrivenStream) -> None:
    gone = replace(web.stream.kafka, bootstrap_servers="127.0.0.1:1")

    retired = web.with_definition(status="retired", cluster=gone)

    assert wrong(retired) == {}
    assert not {"fresh", "backlog_after_drain"} & set(retired.stream.check_names)


def test_the_daily_job_finds_a_row_that_is_there_twice_by_two_checks_and_by_no_other(
    web: DrivenStream, environment: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDI_LAKE", web.lake)
    rows = DeltaTable(web.uri).to_pyarrow_table()
    write_deltalake(web.uri, rows.slice(0, 1), mode="append")

    with dg.DagsterInstance.ephemeral() as instance:
        config = dg.RunConfig({"make_checks": CheckTables(costly=True)})
        job = table_check_job([web.stream])
        ran = job.execute_in_process(instance=instance, run_config=config, raise_on_error=False)
        keys = [check_key(web.stream, name) for name in web.stream.check_names]
        shown = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)

    assert not ran.success and len(shown) == 9
    errors = {key.name for key, record in shown.items() if record.status.value == "FAILED"}
    assert errors == {"every_offset_accounted_for", "no_duplicate_coordinates"}, "shown although the run failed"


@also_on_s3
def test_an_idle_stream_is_fresh_a_waiting_one_gets_old_and_a_held_one_too(driven: DrivenFactory) -> None:
    """Procedure: drain everything; then a message of ten minutes ago; drain it; then a transaction of 40 minutes ago,
    open and then aborted.
    """
    web = driven(partitions=1, freshness=FRESHNESS)
    web.produce(20)
    web.drain()
    idle = fresh(web)

    web.send("{}", timestamp=datetime.now(UTC) - timedelta(minutes=10))
    late = fresh(web)
    web.drain()
    servers = web.stream.kafka.bootstrap_servers
    writer = TransactionalPublisher(servers, f"{web.stream.topic}-held")
    writer.begin()
    writer.produce(web.stream.topic, "{}", timestamp=datetime.now(UTC) - timedelta(minutes=40))
    writer.flush()
    held = fresh(web)
    writer.end(commit=False)
    wait_until(
        lambda: not read_backlog(web.stream, web.lake).open_transaction_offsets
    )  # the marker comes after the answer
    aborted = fresh(web)

    assert (idle.level, late.level, held.level) == ("passed", "warn", "error")
    assert late.numbers["lag_seconds"] == pytest.approx(600, abs=60)
    assert held.numbers["open_transaction_seconds"] == pytest.approx(2400, abs=60)
    assert aborted.passed and "there is no message in them" in aborted.description


def test_freshness_is_the_time_from_a_messages_timestamp_to_its_commit(
    driven: DrivenFactory, kdi: Kdi, defs: Path
) -> None:
    """Procedure: 90 messages of two minutes ago, 10 of half an hour ago; drain; compare the drain's figures with `kdi
    freshness`.
    """
    web = driven(partitions=1)
    for count, minutes in ((90, 2), (10, 30)):
        web.send(*["{}"] * count, timestamp=datetime.now(UTC) - timedelta(minutes=minutes))
    began = datetime.now(UTC)
    report = web.drain()
    took = (datetime.now(UTC) - began).total_seconds()

    told = drain_metadata(report, lag_after=None)
    (defs / "defs.yaml").write_text(web_requests_document(web.stream.topic))
    answer = kdi("freshness", "--json")

    assert answer.code == 0
    (said,) = answer.objects
    assert told["freshness_p50_seconds"] == pytest.approx(120 + took / 2, rel=0.05, abs=took)
    assert told["freshness_p95_seconds"] == pytest.approx(1800 + took / 2, rel=0.05, abs=took)
    assert (said["drains"], said["messages"]) == (1, 100)
    assert said["p50_seconds"] == pytest.approx(told["freshness_p50_seconds"], abs=1)
    assert said["p99_seconds"] == pytest.approx(told["freshness_p95_seconds"], abs=1)


def test_the_gate_of_a_pipeline_drains_checks_and_fails_on_an_error_alone(
    driven: DrivenFactory, kdi: Kdi, defs: Path
) -> None:
    """Procedure: a stream with dead letters; the gate. Then another writer sets a position back; the gate, without a
    drain and without Spark. Then someone confirms the position by a decision, and the gate again.
    """
    web = driven(partitions=1)
    web.produce(100, bad=0.1)
    document = web_requests_document(web.stream.topic, checks="{dead_letter_rate: 0.05}")
    (defs / "defs.yaml").write_text(document)

    def gate(*arguments: str) -> tuple[int, dict[str, str]]:
        answer = kdi("check-assets", "--json", *arguments)
        (said,) = answer.objects
        assert said["failure"] == ""
        assert said["offsets"] == (None if "--no-drain" in arguments else 100)
        return answer.code, {o["check"]: o["level"] for o in said["outcomes"]}

    code, levels = gate()
    assert code == 0 and len(levels) == 8
    assert {name for name, level in levels.items() if level != "passed"} == {"dead_letter_rate"}
    assert levels["dead_letter_rate"] == "warn"
    assert len(web.found().rows) + len(web.found().dead_letters) == 100

    web.as_another_writer(web.stream.app_id, last=3)
    code, levels = gate("--no-drain", "--cheap")
    assert code == 1 and len(levels) == 5
    assert {name for name, level in levels.items() if level == "error"} == {"positions_never_go_back"}

    assert kdi("resolve", web.stream.table, "rewind", "--topic-partition", "0", "--to", "4", "--yes").code == 0
    assert gate("--no-drain", "--cheap")[0] == 0
