"""A table's checks in a run, in the freshness sensor, and in a pipeline's gate: what blocks, and what does not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterInstance
from typer.testing import CliRunner

from kdi_assets.cli.app import app_for
from kdi_assets.components import gate
from kdi_assets.components.asset_checks import AUDIT, check_evaluation, freshness_policy, level_of
from kdi_assets.components.names import check_key, table_key
from kdi_assets.components.table_asset import table_asset
from kdi_assets.documents.model.stream import COSTLY, CheckName, Checks, Cluster, DateWindow, FreshnessLimits, Stream
from kdi_assets.downstream import on_new_upstream_data
from kdi_assets.errors import KdiError
from kdi_assets.operate.monitoring.backlog import Backlog
from kdi_assets.operate.monitoring.checks import subject
from kdi_assets.operate.monitoring.checks.finding import NO_TABLE, CheckResult
from kdi_assets.resources.spark import SparkResource
from kdi_assets.sensors import freshness
from kdi_assets.sensors.lag import lag_sensor
from kdi_assets.streams.audit.audit import AuditReport
from kdi_assets.streams.drain.plan_errors import RetentionPassedPosition
from tests.dagster.fakes import (
    UNREACHABLE,
    ScriptedDrain,
    a_backlog,
    a_commit,
    assets_of,
    audited,
    latest_check,
    materialize,
    tick,
    today,
    will_retry,
)
from tests.documents import written
from tests.table_by_hand import TP, TableByHand, data_file, orders

pytestmark = pytest.mark.usefixtures("lake_in_environment")

SILVER = dg.AssetKey(["silver", "orders"])
OLD = date(2001, 2, 3)


@dataclass
class Built:
    """A table, and a downstream asset that is built on new data."""

    instance: DagsterInstance
    stream: Stream

    def drain(self, *checks: CheckName) -> tuple[dg.ExecuteInProcessResult, bool]:
        """A run that drains rows of today and runs these checks; and whether the asset is requested then."""
        defs = self._definitions()
        before = dg.evaluate_automation_conditions(defs, self.instance, dg.AssetSelection.all())
        keys = [check_key(self.stream, name) for name in checks]
        result = materialize(self.instance, assets_of(defs), table_key(self.stream), *keys, day=today())
        after = dg.evaluate_automation_conditions(defs, self.instance, dg.AssetSelection.all(), cursor=before.cursor)
        return result, bool(after.get_requested_partitions(SILVER))

    def _definitions(self) -> dg.Definitions:
        drain = ScriptedDrain([a_commit(7, {today(): 3})])
        table = table_asset(self.stream, drain=drain, audit=audited(complete=True))
        condition = on_new_upstream_data()

        @dg.asset(key=SILVER, deps=[table_key(self.stream)], automation_condition=condition)
        def silver() -> None: ...

        return dg.Definitions(assets=[table, silver], resources={"spark": SparkResource()})


def test_an_error_of_a_check_that_blocks_keeps_the_downstream_from_being_built(
    instance: DagsterInstance, table: TableByHand
) -> None:
    table.drain(100, dead_letters=90)
    stream = orders(checks=Checks(blocking=("dead_letter_rate",)))

    result, requested = Built(instance, stream).drain("dead_letter_rate", "table_health")

    assert not result.success and not requested
    found = {e.check_name: e.passed for e in result.get_asset_check_evaluations()}
    assert found == {"dead_letter_rate": False, "table_health": True}, "those behind it are made as well"
    assert not will_retry(instance, result)


def test_an_error_of_a_check_that_does_not_block_is_shown_and_holds_nothing_up(
    instance: DagsterInstance, table: TableByHand
) -> None:
    table.drain(100, dead_letters=90)

    result, requested = Built(instance, orders()).drain("dead_letter_rate")

    assert result.success and requested
    (evaluation,) = result.get_asset_check_evaluations()
    assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert evaluation.metadata["share"].value == pytest.approx(0.45)


def test_a_warning_of_a_check_that_blocks_holds_nothing_up(instance: DagsterInstance, table: TableByHand) -> None:
    table.commit(data_file(1, OLD, rows=7), ago=timedelta(0))
    stream = orders(checks=Checks(blocking=("dates_in_window",)))

    result, requested = Built(instance, stream).drain("dates_in_window")

    assert result.success and requested
    (evaluation,) = result.get_asset_check_evaluations()
    assert (evaluation.passed, evaluation.severity) == (True, dg.AssetCheckSeverity.WARN)
    assert (evaluation.description or "").startswith("warning: 7 rows have dates outside")


def test_a_check_that_blocks_and_finds_no_broker_fails_the_run_for_a_retry(
    instance: DagsterInstance, table: TableByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        subject, "read_backlog", lambda stream, lake: replace(a_backlog(stream, 0), refusal=UNREACHABLE)
    )
    stream = orders(checks=Checks(blocking=("backlog_after_drain",)))

    result, _ = Built(instance, stream).drain("backlog_after_drain")

    assert not result.success
    assert will_retry(instance, result)


def requested_checks(instance: DagsterInstance, stream: Stream) -> set[str]:
    """The checks of the run that a tick requests."""
    sensor = lag_sensor("main", [stream], read_backlogs=lambda streams, *, lake: [a_backlog(stream, 5000, lag=90.0)])
    table = table_asset(stream, drain=ScriptedDrain(), audit=audited(complete=True))
    defs = dg.Definitions(assets=[table], sensors=[sensor], resources={"spark": SparkResource()})
    (request,) = tick(instance, defs).run_requests or []
    return {key.name for key in request.asset_check_keys or ()}


@pytest.mark.parametrize(
    ("audits", "due"),
    [
        ([], True),
        ([NO_TABLE], True),
        ([CheckResult("passed", "0 offsets", {"offsets": 0})], True),
        ([CheckResult("passed", "5 offsets = 5 rows", {"offsets": 5})], False),
        ([CheckResult("error", "1 offset is missing", {"offsets": 5})], False),
    ],
)
def test_a_sensor_requests_the_checks_without_spark_and_the_others_until_an_audit_saw_offsets(
    instance: DagsterInstance, audits: list[CheckResult], due: bool
) -> None:
    stream = orders(freshness=LIMITS)
    for result in audits:
        instance.report_runless_asset_event(check_evaluation(stream, AUDIT, result))

    wanted = set(stream.check_names) if due else set(stream.check_names) - set(COSTLY)
    assert requested_checks(instance, stream) == wanted
    assert {"fresh", "backlog_after_drain", "dead_letter_rate", "table_health"} <= wanted


def test_a_table_with_many_commits_that_dagster_does_not_know_is_not_audited_by_its_drains(
    instance: DagsterInstance, lake: str
) -> None:
    table, stream = TableByHand(lake), orders()
    for _ in range(30):
        table.drain(1)

    assert AUDIT not in requested_checks(instance, stream)


def test_an_audit_that_its_run_did_not_make_is_not_requested_with_every_drain(instance: DagsterInstance) -> None:
    stream = orders()
    dead = table_asset(stream, drain=ScriptedDrain(ending=MemoryError()), audit=audited(complete=True))
    result = materialize(instance, [dead], table_key(stream), check_key(stream, AUDIT), day=today())

    assert not result.success
    assert AUDIT not in requested_checks(instance, stream)


def test_a_drain_makes_the_checks_again_and_a_fault_is_shown_at_once_and_until_it_is_gone(
    instance: DagsterInstance, lake: str
) -> None:
    """The checks look at the newest commits only while all is well: the fault lies 60 commits back in the end."""
    table, seen = TableByHand(lake), []
    for fault in (False, True, False):
        table.drain(100, dead_letters=90 if fault else 0)
        Built(instance, orders()).drain("dead_letter_rate")
        seen.append(levels(instance, "dead_letter_rate"))
    for _ in range(60):
        table.drain(1)
    Built(instance, orders()).drain("dead_letter_rate")

    assert [*seen, levels(instance, "dead_letter_rate")] == ["passed", "error", "error", "error"]


def test_after_a_drain_a_check_that_passed_reads_the_newest_commits_only(instance: DagsterInstance, lake: str) -> None:
    table, built = TableByHand(lake), Built(instance, orders())
    for _ in range(60):
        table.drain(1)

    numbers = []
    for _ in range(2):
        result, _ = built.drain("dead_letter_rate")
        (evaluation,) = result.get_asset_check_evaluations()
        numbers.append(evaluation.metadata["drains"].value)

    assert numbers == [60, 50]


def test_a_failure_that_does_not_block_stays_shown_after_a_drain_that_does_not_make_the_check(
    instance: DagsterInstance, table: TableByHand
) -> None:
    doubled = CheckResult("error", "1 message has duplicate rows")
    instance.report_runless_asset_event(check_evaluation(orders(), "no_duplicate_coordinates", doubled))
    result, _ = Built(instance, orders()).drain("table_health")

    (record,) = instance.event_log_storage.get_asset_check_execution_history(
        check_key(orders(), "no_duplicate_coordinates"), limit=1
    )
    assert record.run_id == result.run_id, "Dagster shows a result of the run that materialized last"
    assert record.evaluation is not None and not record.evaluation.passed


def levels(instance: DagsterInstance, name: CheckName) -> str:
    made = latest_check(instance, orders(), name)
    assert made is not None
    return level_of(made)


def test_a_run_of_a_table_judges_what_waits_before_it_reads_the_table(
    instance: DagsterInstance, table: TableByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = [0]

    def audit(*_: object, **__: object) -> AuditReport:
        waits[0] = 7
        return AuditReport(complete=True)

    monkeypatch.setattr(subject, "read_backlog", lambda stream, lake: a_backlog(stream, waits[0]))
    stream = orders()
    asset = table_asset(stream, drain=ScriptedDrain(), audit=audit)
    wanted: tuple[CheckName, ...] = ("every_offset_accounted_for", "backlog_after_drain")

    result = materialize(instance, [asset], *(check_key(stream, name) for name in wanted))

    numbers = {e.check_name: e.metadata for e in result.get_asset_check_evaluations()}
    assert numbers.keys() == set(wanted)
    assert numbers["backlog_after_drain"]["backlog"].value == 0


LIMITS = FreshnessLimits(300, 1800)


def test_the_freshness_sensor_tells_of_a_change_at_once_and_of_the_same_only_hourly(instance: DagsterInstance) -> None:
    stream, lags = orders(freshness=LIMITS), [10.0, 12.0, 400.0, 410.0]

    def look(streams: Sequence[Stream], *, lake: str) -> list[Backlog]:
        return [a_backlog(stream, 5, lag=lags.pop(0))]

    sensor, cursor, told = freshness.freshness_sensor("main", [stream], read_backlogs=look), None, []
    for _ in range(4):
        context = dg.build_sensor_context(instance, cursor=cursor)
        data = sensor.evaluate_tick(context)
        cursor = data.cursor
        for event in data.asset_events:
            instance.report_runless_asset_event(event)
        told.append(len(data.asset_events))

    assert told == [1, 0, 1, 0]
    shown = latest_check(instance, stream, "fresh")
    assert shown is not None and (shown.passed, shown.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert (data.skip_message or "").startswith("bronze/orders: the oldest of 5 waiting offsets is 410 s old")


def test_the_freshness_sensor_corrects_at_once_what_a_drain_found_meanwhile(instance: DagsterInstance) -> None:
    stream = orders(freshness=LIMITS)
    sensor = freshness.freshness_sensor(
        "main", [stream], read_backlogs=lambda streams, *, lake: [a_backlog(stream, 5, lag=10.0)]
    )
    first = sensor.evaluate_tick(dg.build_sensor_context(instance))
    by_drain = check_evaluation(stream, "fresh", CheckResult("error", "the oldest is 4,000 s old"))
    for event in (*first.asset_events, by_drain):
        instance.report_runless_asset_event(event)

    data = sensor.evaluate_tick(dg.build_sensor_context(instance, cursor=first.cursor))

    (event,) = data.asset_events
    assert isinstance(event, dg.AssetCheckEvaluation) and event.passed


def test_the_freshness_sensor_tells_of_so_many_at_once_and_of_what_does_not_pass_first(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freshness, "LOGGED_PER_TICK", 2)
    streams = [replace(orders(freshness=LIMITS), table=f"bronze/{name}") for name in "abc"]

    def look(streams: Sequence[Stream], *, lake: str) -> list[Backlog]:
        return [a_backlog(s, 5, lag=400.0 if s.table == "bronze/c" else 1.0) for s in streams]

    sensor, cursor, told = freshness.freshness_sensor("main", streams, read_backlogs=look), None, []
    for _ in range(3):
        data = sensor.evaluate_tick(dg.build_sensor_context(instance, cursor=cursor))
        cursor = data.cursor
        told.append([event.asset_key.path[-1] for event in data.asset_events])

    assert told == [["c", "a"], ["b"], []]


def test_a_cursor_that_cannot_be_read_costs_the_freshness_sensor_no_tick(instance: DagsterInstance) -> None:
    stream = orders(freshness=LIMITS)
    waits = a_backlog(stream, 5, lag=10.0)
    sensor = freshness.freshness_sensor("main", [stream], read_backlogs=lambda streams, *, lake: [waits])

    for cursor in ("not json", "[1]", '{"bronze/orders": "passed"}'):
        data = sensor.evaluate_tick(dg.build_sensor_context(instance, cursor=cursor))
        assert len(data.asset_events) == 1


def test_brokers_that_never_answer_cost_the_freshness_of_their_own_streams_alone(instance: DagsterInstance) -> None:
    mute = Cluster("mute", "127.0.0.1:1")
    silent = replace(orders(freshness=LIMITS), table="bronze/silent", cluster=mute)

    def look(streams: Sequence[Stream], *, lake: str) -> list[Backlog]:
        if silent in streams:
            raise TimeoutError("as when Dagster ends a tick that takes too long")
        return [a_backlog(s, 5, lag=10.0) for s in streams]

    told: list[str] = []
    for sensor in freshness.freshness_sensors([silent, orders(freshness=LIMITS)], read_backlogs=look):
        with suppress(TimeoutError):
            data = sensor.evaluate_tick(dg.build_sensor_context(instance))
            told += [event.asset_key.path[-1] for event in data.asset_events]

    assert told == ["orders"]


def test_dagsters_own_policy_has_the_limits_of_the_document() -> None:
    stream = orders(freshness=LIMITS)

    for status in ("paused", "retired"):
        assert freshness_policy(orders(freshness=LIMITS, status=status)) is None, "nothing drains it"
    (spec,) = table_asset(stream, drain=ScriptedDrain(), audit=audited(complete=True)).specs

    window = dg.FreshnessPolicy.time_window(fail_window=timedelta(minutes=30), warn_window=timedelta(minutes=5))
    assert spec.freshness_policy == window


LOST = RetentionPassedPosition(stream="bronze/orders", topic_partition=TP, position=0, earliest=7)
DOCUMENT = """
type: kdi_assets.components.TopicTable
attributes: {{topic: {table}, table: bronze/{table}, schema: id bigint, date: current_date(), status: {status}}}
"""


@pytest.mark.parametrize(("refusal", "checks_made"), [(UNREACHABLE, 0), (LOST, 5)])
def test_a_drain_that_is_refused_fails_the_gate_with_its_reason(
    table: TableByHand, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch, refusal: KdiError, checks_made: int
) -> None:
    monkeypatch.setattr(gate, "drain", ScriptedDrain(ending=refusal))
    monkeypatch.setattr(subject, "read_backlog", lambda stream, lake: a_backlog(stream, 0))

    refused = gate.run_gate(orders(), instance, drains=True, costly=False)
    checked = gate.run_gate(orders(), instance, drains=False, costly=False)

    assert not refused.passed and refused.failure == str(refusal)
    assert len(refused.outcomes) == checks_made
    assert checked.passed and [o.level for o in checked.outcomes] == ["passed"] * 5


def test_a_stream_whose_dates_do_not_include_today_fails_the_gate_with_its_reason(
    table: TableByHand, instance: DagsterInstance
) -> None:
    begins = today() + timedelta(days=30)

    refused = gate.run_gate(orders(date_window=DateWindow(start=begins)), instance, drains=True, costly=False)

    assert (refused.passed, refused.failure) == (False, f"its date window begins on {begins}; no drain before that")


@pytest.mark.parametrize(
    ("named", "drained"), [([], ["bronze/runs"]), (["rests", "ended"], ["bronze/rests"]), (["runs", "--no-drain"], [])]
)
def test_the_gate_drains_a_paused_stream_only_if_it_is_named_and_a_retired_one_never(
    defs: Path, lake: str, monkeypatch: pytest.MonkeyPatch, named: list[str], drained: list[str]
) -> None:
    drain = ScriptedDrain()
    monkeypatch.setattr(gate, "drain", drain)
    monkeypatch.setattr(subject, "read_backlog", lambda stream, lake: a_backlog(stream, 0))
    monkeypatch.setenv("KDI_KAFKA", "127.0.0.1:1")
    statuses = {"runs": "active", "rests": "paused", "ended": "retired"}
    written(defs, **{table: DOCUMENT.format(table=table, status=status) for table, status in statuses.items()})

    answer = CliRunner().invoke(app_for(()), ["check-assets", "--cheap", "--defs", str(defs), *named])

    assert answer.exit_code == 0, answer.output
    assert drain.streams == drained
    assert answer.stdout.count("no message was drained") == len(drained), "a gate that judged nothing says so"
    assert len(answer.stdout.splitlines()) > 4, "the checks of the others are made all the same"


@pytest.mark.parametrize("drains", [True, False])
def test_a_gate_that_drains_keeps_to_the_lake_that_it_is_given_and_announces_nothing(
    defs: Path, lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drains: bool
) -> None:
    """Purpose: a pull request writes neither into the lake that a document names nor to the topic of announcements.
    Procedure: a stream with a lake of its own, where its table lies, and with `announce`; the gate.
    Pass: it drains below KDI_LAKE, and announces nothing; if it does not drain, it checks the document's table.
    """
    seen: list[Stream] = []

    def run_gate(stream: Stream, *_: object, **__: object) -> gate.Gate:
        seen.append(stream)
        return gate.Gate(stream.name, ())

    monkeypatch.setattr(gate, "run_gate", run_gate)
    monkeypatch.setenv("KDI_KAFKA", "127.0.0.1:1")
    own = DOCUMENT.format(table="far", status="active").replace(
        "}", f", lake: {tmp_path}/own, announce: {{topic: n}}}}"
    )
    written(defs, far=own)

    answer = CliRunner().invoke(app_for(()), ["check-assets", "--defs", str(defs), *([] if drains else ["--no-drain"])])

    assert answer.exit_code == 0, answer.output
    (stream,) = seen
    assert (stream.announce is None) is drains
    assert stream.table_uri(lake) == f"{lake if drains else tmp_path / 'own'}/bronze/far"
    assert not drains or stream.former_uris(lake) == (), "a table below the document's root is not to be moved"
