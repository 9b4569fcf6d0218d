"""A table's checks in Dagster: what blocks, what a sensor asks for, and what is made without anybody clicking."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from kdi_assets.checks import measures, subject
from kdi_assets.checks.finding import Finding
from kdi_assets.checks.measures import MEASURES
from kdi_assets.checks.subject import Subject
from kdi_assets.cli.main import app
from kdi_assets.components import gate
from kdi_assets.components.asset_checks import freshness_policy
from kdi_assets.components.assets import table_asset
from kdi_assets.components.names import check_key, table_key
from kdi_assets.downstream import on_new_upstream_data
from kdi_assets.drain.backlog import Backlog, PartitionBacklog
from kdi_assets.drain.refusals import RetentionPassedPosition
from kdi_assets.errors import KdiError
from kdi_assets.ledger.audit import AuditReport
from kdi_assets.sources.kafka import BrokerUnreachable
from kdi_assets.stream import COSTLY, CheckName, Checks, Freshness, KafkaCluster, Stream, TopicPartition
from resources.spark import SparkResource
from sensors import check_tables, freshness
from sensors.check_tables import CheckTables, check_schedules, findings, table_check_job
from sensors.lag import lag_sensor
from tests.dagster.fakes import AN_ORIGIN, ScriptedDrain, a_commit, an_audit, unfinished_run
from tests.table_by_hand import TP, TableByHand, data_file, orders

pytestmark = pytest.mark.usefixtures("lake_in_environment")

SILVER = dg.AssetKey(["silver", "orders"])
UNREACHABLE = BrokerUnreachable(cluster="main", bootstrap_servers="127.0.0.1:1", detail="refused")
LOST = RetentionPassedPosition(stream="bronze/orders", topic_partition=TP, position=0, earliest=7)
OLD = date(2001, 2, 3)
LIMITS = Freshness(300, 1800)
DOCUMENT = """
type: kdi_assets.components.TopicTable
attributes: {{topic: {table}, table: bronze/{table}, schema: id bigint, date: current_date(), status: {status}}}
"""


@pytest.fixture
def table(lake: str) -> TableByHand:
    """A table with a drain; its log is all that cheap checks read."""
    table = TableByHand(lake)
    table.drain(100)
    return table


@dataclass
class Built:
    """A table, and an asset that is built on it whenever it got new data."""

    instance: DagsterInstance
    stream: Stream

    def drain(self, *checks: CheckName) -> tuple[dg.ExecuteInProcessResult, bool]:
        """A run that drains rows of today and makes these checks; and whether the asset is requested then."""
        defs = self._definitions()
        before = dg.evaluate_automation_conditions(defs, self.instance, dg.AssetSelection.all())
        table = dg.AssetSelection.assets(table_key(self.stream)).without_checks()
        result = dg.materialize(
            [asset for asset in defs.assets or () if isinstance(asset, dg.AssetsDefinition)],
            selection=table | dg.AssetSelection.checks(*(check_key(self.stream, name) for name in checks)),
            instance=self.instance,
            partition_key=today().isoformat(),
            resources={"spark": SparkResource()},
            raise_on_error=False,
        )
        after = dg.evaluate_automation_conditions(defs, self.instance, dg.AssetSelection.all(), cursor=before.cursor)
        return result, bool(after.get_requested_partitions(SILVER))

    def _definitions(self) -> dg.Definitions:
        drain = ScriptedDrain([a_commit(7, {today(): 3})])
        table = table_asset(self.stream, drain=drain, audit=lambda *_, **__: an_audit(complete=True))
        condition = on_new_upstream_data()

        @dg.asset(key=SILVER, deps=[table_key(self.stream)], automation_condition=condition)
        def silver() -> None: ...

        return dg.Definitions(assets=[table, silver], resources={"spark": SparkResource()})


def today() -> date:
    return datetime.now(UTC).date()


def latest(instance: DagsterInstance, stream: Stream, name: CheckName) -> dg.AssetCheckEvaluation | None:
    """What the UI shows of a check."""
    key = check_key(stream, name)
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).get(key)
    return record.event.dagster_event.asset_check_evaluation_data if record and record.event else None  # type: ignore[union-attr]


def test_an_error_of_a_check_that_blocks_keeps_the_downstream_from_being_built(
    instance: DagsterInstance, table: TableByHand
) -> None:
    table.drain(100, dead_letters=90)
    stream = orders(checks=Checks(blocking=("dead_letter_rate",)))

    result, requested = Built(instance, stream).drain("dead_letter_rate", "table_health")

    assert not result.success and not requested
    found = {e.check_name: e.passed for e in result.get_asset_check_evaluations()}
    assert found == {"dead_letter_rate": False, "table_health": True}, "those behind it are made as well"
    record = instance.get_run_record_by_id(result.run_id)
    assert record is not None and record.dagster_run.tags["dagster/will_retry"] == "false"


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
    monkeypatch.setattr(subject, "look", lambda stream, lake: replace(a_backlog(stream, 0), refusal=UNREACHABLE))
    stream = orders(checks=Checks(blocking=("backlog_after_drain",)))

    result, _ = Built(instance, stream).drain("backlog_after_drain")

    assert not result.success
    record = instance.get_run_record_by_id(result.run_id)
    assert record is not None and record.dagster_run.tags["dagster/will_retry"] == "true"


def test_a_sensor_asks_for_the_checks_that_block_and_need_no_spark() -> None:
    blocking: tuple[CheckName, ...] = ("every_offset_accounted_for", "dead_letter_rate", "positions_never_go_back")
    stream = orders(checks=Checks(blocking=blocking))
    sensor = lag_sensor("main", [stream], look=lambda streams, *, lake: [a_backlog(stream, 5000, lag=90.0)])
    table = table_asset(stream, drain=ScriptedDrain(), audit=lambda *_, **__: an_audit(complete=True))
    defs = dg.Definitions(assets=[table], sensors=[sensor], resources={"spark": SparkResource()})
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance, definitions=defs, sensor_name="lag_main")
        (request,) = defs.get_repository_def().get_sensor_def("lag_main").evaluate_tick(context).run_requests or []

    wanted = {check_key(stream, "dead_letter_rate"), check_key(stream, "positions_never_go_back")}
    assert set(request.asset_check_keys or ()) == wanted


def test_the_check_job_shows_its_findings_at_the_tables_and_claims_no_pool(
    instance: DagsterInstance, table: TableByHand
) -> None:
    """A pool of a stream that it claimed would keep the stream from being drained meanwhile."""
    table.commit(data_file(1, OLD, rows=7), ago=timedelta(0))
    stream = orders(status="retired")  # nobody asks a broker that is not there
    asset = table_asset(stream, drain=ScriptedDrain(), audit=lambda *_, **__: an_audit(complete=True))
    defs = dg.Definitions(assets=[asset], jobs=[table_check_job([stream])], resources={"spark": SparkResource()})
    job = defs.resolve_job_def("check_tables")

    result = job.execute_in_process(instance=instance)

    assert result.success, "a warning fails nothing"
    dates, letters = latest(instance, stream, "dates_in_window"), latest(instance, stream, "dead_letter_rate")
    assert dates is not None and (dates.passed, dates.metadata["rows_outside"].value) == (False, 7)
    assert letters is not None and letters.passed
    assert latest(instance, stream, "every_offset_accounted_for") is None, "it was not asked for"
    created = instance.create_run_for_job(job)
    assert created.run_op_concurrency is None or not created.run_op_concurrency.all_pools


def test_the_check_job_fails_when_a_check_finds_an_error(instance: DagsterInstance, table: TableByHand) -> None:
    table.drain(100, dead_letters=90)
    job = table_check_job([orders(status="retired")])

    result = job.execute_in_process(instance=instance, raise_on_error=False)

    assert not result.success
    (event,) = [e for e in result.all_events if e.event_type_value == "STEP_FAILURE"]
    data = event.step_failure_data.user_failure_data
    assert data is not None
    assert (data.description or "").splitlines()[1].startswith("dead_letter_rate of bronze/orders: 90 of 200 messages")


def test_a_check_that_blocks_and_could_not_be_made_gives_no_verdict_and_fails_the_job(
    instance: DagsterInstance, table: TableByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = orders(checks=Checks(blocking=("backlog_after_drain",)))
    unreachable = replace(a_backlog(stream, 0), refusal=UNREACHABLE)
    monkeypatch.setattr(check_tables, "look_at", lambda streams, lake: [unreachable])

    result = table_check_job([stream]).execute_in_process(instance=instance, raise_on_error=False)

    assert not result.success
    assert latest(instance, stream, "backlog_after_drain") is None
    assert latest(instance, stream, "table_health") is not None


def test_cheap_checks_are_made_hourly_and_all_of_them_daily_without_anybody_starting_them() -> None:
    schedules = {s.name: s for s in check_schedules(table_check_job([orders()]))}

    assert {name: s.cron_schedule for name, s in schedules.items()} == {
        "cheap_checks": "7 * * * *",
        "all_checks": "37 2 * * *",
    }
    assert {s.default_status for s in schedules.values()} == {dg.DefaultScheduleStatus.RUNNING}
    with dg.build_schedule_context() as context:
        (request,) = schedules["all_checks"].evaluate_tick(context).run_requests or []
    config = request.run_config["ops"]["make_checks"]["config"]
    assert CheckTables(**config) == CheckTables(costly=True)


def test_what_the_hourly_job_makes_starts_no_spark(table: TableByHand, lake: str) -> None:
    retired = orders(status="retired")
    made = [name for _, name, _ in findings([retired], lake=lake, session=no_spark, costly=False)]

    assert made == [
        "positions_never_go_back",
        "dead_letter_rate",
        "dates_in_window",
        "table_health",
    ]


def test_no_check_that_judges_what_waits_stands_behind_one_that_reads_the_table(
    table: TableByHand, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the audit reads, what waits changes."""
    read_the_table = dict.fromkeys(COSTLY, lambda subject: Finding("passed", ""))
    for module in (check_tables, measures):  # what blocks is made by the one, the others by the other
        monkeypatch.setattr(module, "MEASURES", {**MEASURES, **read_the_table})
    monkeypatch.setattr(check_tables, "look_at", lambda streams, lake: [a_backlog(s, 0) for s in streams])
    streams = [orders(), replace(orders(), table="bronze/others")]

    made = [(s.name, name) for s, name, _ in findings(streams, lake=lake, session=no_spark, costly=True)]

    costly = [name in COSTLY for _, name in made]
    assert costly == sorted(costly), "costly checks of no stream before the others of another"
    assert sorted(made) == sorted((s.name, name) for s in streams for name in s.check_names), "each once"


def test_a_run_of_a_table_judges_what_waits_before_it_reads_the_table(
    instance: DagsterInstance, table: TableByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = [0]

    def audited(*_: object, **__: object) -> AuditReport:
        waits[0] = 7
        return an_audit(complete=True)

    monkeypatch.setattr(subject, "look", lambda stream, lake: a_backlog(stream, waits[0]))
    stream = orders()
    asset = table_asset(stream, drain=ScriptedDrain(), audit=audited)
    wanted: tuple[CheckName, ...] = ("every_offset_accounted_for", "backlog_after_drain")

    result = dg.materialize(
        [asset],
        selection=dg.AssetSelection.checks(*(check_key(stream, name) for name in wanted)),
        instance=instance,
        resources={"spark": SparkResource()},
    )

    numbers = {e.check_name: e.metadata for e in result.get_asset_check_evaluations()}
    assert numbers.keys() == set(wanted)
    assert numbers["backlog_after_drain"]["backlog"].value == 0


def test_a_drain_finds_a_place_beside_checks_that_read_tables_and_a_run_of_what_is_built_on_them(
    instance: DagsterInstance,
) -> None:
    """Procedure: daily checks and a downstream asset run; the checks of another day are queued, and then a drain."""
    job = table_check_job([orders()])
    schedules = {s.name: s for s in check_schedules(job)}
    with dg.build_schedule_context() as context:
        (daily,) = schedules["all_checks"].evaluate_tick(context).run_requests or []
    begun, queued = dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.QUEUED
    instance.create_run_for_job(
        job, run_config=daily.run_config, tags=daily.tags, status=begun, remote_job_origin=AN_ORIGIN
    )
    unfinished_run(instance, replace(orders(), table="silver/orders"))
    instance.create_run_for_job(
        job, run_config=daily.run_config, tags=daily.tags, status=queued, remote_job_origin=AN_ORIGIN
    )
    drain = unfinished_run(instance, orders(), status="QUEUED")

    daemon = QueuedRunCoordinatorDaemon(interval_seconds=1)
    chosen = daemon._get_runs_to_dequeue(instance, instance.get_concurrency_config(), fixed_iteration_time=None)

    assert [run.run_id for run in chosen] == [drain.run_id]


def test_the_daily_checks_begin_with_the_tables_that_were_read_the_longest_ago(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: nights that are ended at a table which takes longer than a run may; at first it is the third."""
    streams = [replace(orders(status="retired"), table=f"bronze/{name}") for name in ("a", "b", "large", "c")]
    read: list[str] = []

    def audited(subject: Subject) -> Finding:
        read.append(subject.stream.table[-1])
        if subject.stream.table == "bronze/large":
            raise KeyboardInterrupt
        return Finding("passed", "")

    def passed(subject: Subject) -> Finding:
        return Finding("passed", "")

    fast = {**dict.fromkeys(MEASURES, passed), "every_offset_accounted_for": audited}
    monkeypatch.setattr(check_tables, "MEASURES", fast)

    def night() -> str:
        read.clear()
        job, config = table_check_job(streams), dg.RunConfig({"make_checks": CheckTables(costly=True)})
        with suppress(KeyboardInterrupt):
            job.execute_in_process(config, instance=instance, tags={check_tables.COSTLY_TAG: "true"})
        return "".join(read)

    assert [night(), night(), night()] == ["abe", "cabe", "cabe"]


def no_spark() -> SparkSession:
    raise AssertionError("Spark was started")


def a_backlog(stream: Stream, offsets: int, *, lag: float | None = None) -> Backlog:
    partition = PartitionBacklog(100, 100 + offsets, 0, lag_seconds=lag)
    return Backlog(stream.name, {TopicPartition(stream.topic, 0): partition}, offsets, lag, None, 0)


def test_the_freshness_sensor_tells_of_a_change_at_once_and_of_the_same_only_hourly(instance: DagsterInstance) -> None:
    stream, lags = orders(freshness=LIMITS), [10.0, 12.0, 400.0, 410.0]

    def look(streams: Sequence[Stream], *, lake: str) -> list[Backlog]:
        return [a_backlog(stream, 5, lag=lags.pop(0))]

    sensor, cursor, told = freshness.freshness_sensor("main", [stream], look=look), None, []
    for _ in range(4):
        context = dg.build_sensor_context(instance, cursor=cursor)
        data = sensor.evaluate_tick(context)
        cursor = data.cursor
        for event in data.asset_events:
            instance.report_runless_asset_event(event)
        told.append(len(data.asset_events))

    assert told == [1, 0, 1, 0]
    shown = latest(instance, stream, "fresh")
    assert shown is not None and (shown.passed, shown.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert (data.skip_message or "").startswith("bronze/orders: the oldest of 5 offsets that wait is 410 s old")


def test_the_freshness_sensor_tells_of_so_many_at_once_and_of_what_does_not_pass_first(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freshness, "TOLD_PER_TICK", 2)
    streams = [replace(orders(freshness=LIMITS), table=f"bronze/{name}") for name in "abc"]

    def look(streams: Sequence[Stream], *, lake: str) -> list[Backlog]:
        return [a_backlog(s, 5, lag=400.0 if s.table == "bronze/c" else 1.0) for s in streams]

    sensor, cursor, told = freshness.freshness_sensor("main", streams, look=look), None, []
    for _ in range(3):
        data = sensor.evaluate_tick(dg.build_sensor_context(instance, cursor=cursor))
        cursor = data.cursor
        told.append([event.asset_key.path[-1] for event in data.asset_events])

    assert told == [["c", "a"], ["b"], []]


@pytest.mark.parametrize(("refusal", "checks_made"), [(UNREACHABLE, 0), (LOST, 5)])
def test_a_drain_that_is_refused_fails_the_gate_with_its_reason(
    table: TableByHand,
    instance: DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    refusal: KdiError,
    checks_made: int,
) -> None:
    monkeypatch.setattr(gate, "drain", ScriptedDrain(ending=refusal))
    monkeypatch.setattr(subject, "look", lambda stream, lake: a_backlog(stream, 0))

    refused = gate.through_gate(orders(), instance, drains=True, costly=False)
    checked = gate.through_gate(orders(), instance, drains=False, costly=False)

    assert not refused.passed and refused.failure == str(refusal)
    assert len(refused.outcomes) == checks_made
    assert checked.passed and [o.level for o in checked.outcomes] == ["passed"] * 5


def test_a_check_that_blocks_fails_the_gate_as_a_check(
    table: TableByHand, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.drain(100, dead_letters=90)
    monkeypatch.setattr(subject, "look", lambda stream, lake: a_backlog(stream, 0))
    stream = orders(checks=Checks(blocking=("dead_letter_rate",)))

    stopped = gate.through_gate(stream, instance, drains=False, costly=False)

    assert not stopped.passed and stopped.failure == ""
    assert [(o.check, o.blocking) for o in stopped.outcomes if o.level == "error"] == [("dead_letter_rate", True)]


@pytest.mark.parametrize(
    ("named", "drained"),
    [
        ([], ["bronze/runs"]),
        (["rests", "ended"], ["bronze/rests"]),
        (["runs", "--no-drain"], []),
    ],
)
def test_the_gate_drains_a_paused_stream_only_if_it_is_named_and_a_retired_one_never(
    tmp_path: Path, lake: str, monkeypatch: pytest.MonkeyPatch, named: list[str], drained: list[str]
) -> None:
    drain = ScriptedDrain()
    monkeypatch.setattr(gate, "drain", drain)
    monkeypatch.setattr(subject, "look", lambda stream, lake: a_backlog(stream, 0))
    monkeypatch.setenv("KDI_KAFKA", "127.0.0.1:1")
    for table, status in {"runs": "active", "rests": "paused", "ended": "retired"}.items():
        (tmp_path / "documents" / table).mkdir(parents=True)
        (tmp_path / "documents" / table / "defs.yaml").write_text(DOCUMENT.format(table=table, status=status))

    answer = CliRunner().invoke(app, ["check-assets", "--cheap", "--defs", str(tmp_path / "documents"), *named])

    assert answer.exit_code == 0, answer.output
    assert drain.streams == drained
    assert len(answer.stdout.splitlines()) > 4, "the checks of the others are made all the same"


@pytest.mark.parametrize("cursor", ["not json", "[1]", '{"bronze/orders": "passed"}'])
def test_a_cursor_that_cannot_be_read_costs_the_freshness_sensor_no_tick(
    instance: DagsterInstance, cursor: str
) -> None:
    stream = orders(freshness=LIMITS)
    waits = a_backlog(stream, 5, lag=10.0)
    sensor = freshness.freshness_sensor("main", [stream], look=lambda streams, *, lake: [waits])

    data = sensor.evaluate_tick(dg.build_sensor_context(instance, cursor=cursor))

    assert len(data.asset_events) == 1


def test_brokers_that_never_answer_cost_the_freshness_of_their_own_streams_alone(instance: DagsterInstance) -> None:
    mute = KafkaCluster("mute", "127.0.0.1:1")
    silent = replace(orders(freshness=LIMITS), table="bronze/silent", cluster=mute)

    def look(streams: Sequence[Stream], *, lake: str) -> list[Backlog]:
        if silent in streams:
            raise TimeoutError("as when Dagster ends a tick that takes too long")
        return [a_backlog(s, 5, lag=10.0) for s in streams]

    told: list[str] = []
    for sensor in freshness.freshness_sensors([silent, orders(freshness=LIMITS)], look=look):
        with suppress(TimeoutError):
            data = sensor.evaluate_tick(dg.build_sensor_context(instance))
            told += [event.asset_key.path[-1] for event in data.asset_events]

    assert told == ["orders"]


def test_there_is_no_freshness_sensor_where_no_stream_has_limits() -> None:
    assert freshness.freshness_sensors([orders(), orders(freshness=LIMITS, status="retired")]) == []


def test_dagsters_own_policy_has_the_limits_of_the_document() -> None:
    stream = orders(freshness=LIMITS)

    (spec,) = table_asset(stream, drain=ScriptedDrain(), audit=lambda *_, **__: an_audit(complete=True)).specs

    window = dg.FreshnessPolicy.time_window(fail_window=timedelta(minutes=30), warn_window=timedelta(minutes=5))
    assert spec.freshness_policy == window


@pytest.mark.parametrize("status", ["paused", "retired"])
def test_a_stream_that_nothing_drains_has_no_policy(status: str) -> None:
    assert freshness_policy(orders(freshness=LIMITS, status=status)) is None
