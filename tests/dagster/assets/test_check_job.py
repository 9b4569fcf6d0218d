"""The job that runs the checks of all tables: what it shows, when, and in which order."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import date, timedelta

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon
from pyspark.sql import SparkSession

from kdi_assets.components.table_asset import table_asset
from kdi_assets.documents.model.stream import COSTLY, Checks, Stream
from kdi_assets.operate.monitoring.checks import all_checks
from kdi_assets.operate.monitoring.checks.all_checks import CHECKS
from kdi_assets.operate.monitoring.checks.finding import CheckResult
from kdi_assets.operate.monitoring.checks.subject import CheckSubject
from kdi_assets.resources.spark import SparkResource
from kdi_assets.sensors import check_tables
from kdi_assets.sensors.check_tables import CheckTables, check_schedules, run_checks, table_check_job
from tests.dagster.fakes import (
    AN_ORIGIN,
    UNREACHABLE,
    ScriptedDrain,
    a_backlog,
    audited,
    failure,
    latest_check,
    range_tags,
    unfinished_run,
    yesterday,
)
from tests.table_by_hand import TableByHand, data_file, orders

pytestmark = pytest.mark.usefixtures("lake_in_environment")

OLD = date(2001, 2, 3)


def no_spark() -> SparkSession:
    raise AssertionError("Spark was started")


def daily_request(stream: Stream) -> dg.RunRequest:
    """The request of the daily schedule."""
    (schedule,) = (s for s in check_schedules(table_check_job([stream])) if s.name == "all_checks")
    with dg.build_schedule_context() as context:
        (request,) = schedule.evaluate_tick(context).run_requests or []
    return request


def test_the_check_job_shows_its_findings_at_the_tables_and_claims_no_pool(
    instance: DagsterInstance, table: TableByHand
) -> None:
    """If it claimed a stream's pool, the stream could not be drained meanwhile."""
    table.commit(data_file(1, OLD, rows=7), ago=timedelta(0))
    stream = orders(status="retired")  # no broker is asked: there is none
    asset = table_asset(stream, drain=ScriptedDrain(), audit=audited(complete=True))
    defs = dg.Definitions(assets=[asset], jobs=[table_check_job([stream])], resources={"spark": SparkResource()})
    job = defs.resolve_job_def("check_tables")

    result = job.execute_in_process(instance=instance)

    assert result.success, "a warning fails nothing"
    dates = latest_check(instance, stream, "dates_in_window")
    letters = latest_check(instance, stream, "dead_letter_rate")
    assert dates is not None and (dates.passed, dates.metadata["rows_outside"].value) == (False, 7)
    assert letters is not None and letters.passed
    assert latest_check(instance, stream, "every_offset_accounted_for") is None, "it was not asked for"
    created = instance.create_run_for_job(job)
    assert created.run_op_concurrency is None or not created.run_op_concurrency.all_pools


def test_the_check_job_fails_when_a_check_finds_an_error(instance: DagsterInstance, table: TableByHand) -> None:
    table.drain(100, dead_letters=90)
    job = table_check_job([orders(status="retired")])

    result = job.execute_in_process(instance=instance, raise_on_error=False)

    assert not result.success
    description, _ = failure(result)
    assert description.splitlines()[1].startswith("dead_letter_rate of bronze/orders: 90 of 200 messages")


def test_a_check_that_blocks_and_could_not_be_made_gives_no_verdict_and_fails_the_job(
    instance: DagsterInstance, table: TableByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = orders(checks=Checks(blocking=("backlog_after_drain",)))
    unreachable = replace(a_backlog(stream, 0), refusal=UNREACHABLE)
    monkeypatch.setattr(check_tables, "read_backlogs", lambda streams, lake: [unreachable])

    result = table_check_job([stream]).execute_in_process(instance=instance, raise_on_error=False)

    assert not result.success
    assert latest_check(instance, stream, "backlog_after_drain") is None
    assert latest_check(instance, stream, "table_health") is not None


def test_cheap_checks_are_made_hourly_and_all_of_them_daily_without_anybody_starting_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KDI_AUTOMATION", "on")
    schedules = {s.name: s for s in check_schedules(table_check_job([orders()]))}

    assert {name: s.cron_schedule for name, s in schedules.items()} == {
        "cheap_checks": "7 * * * *",
        "all_checks": "37 2 * * *",
    }
    assert {s.default_status for s in schedules.values()} == {dg.DefaultScheduleStatus.RUNNING}
    config = daily_request(orders()).run_config["ops"]["make_checks"]["config"]
    assert CheckTables(**config) == CheckTables(costly=True)


def test_no_check_that_judges_what_waits_stands_behind_one_that_reads_the_table(
    table: TableByHand, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the audit reads, the backlog changes."""
    read_the_table = dict.fromkeys(COSTLY, lambda subject: CheckResult("passed", ""))
    monkeypatch.setattr(all_checks, "CHECKS", {**CHECKS, **read_the_table})
    monkeypatch.setattr(check_tables, "read_backlogs", lambda streams, lake: [a_backlog(s, 0) for s in streams])
    streams = [orders(), replace(orders(), table="bronze/others")]

    made = [(s.name, name) for s, name, _ in run_checks(streams, lake=lake, session=no_spark, costly=True)]

    costly = [name in COSTLY for _, name in made]
    assert costly == sorted(costly), "costly checks of no stream before the others of another"
    assert sorted(made) == sorted((s.name, name) for s in streams for name in s.check_names), "each once"


def test_a_drain_finds_a_place_beside_what_takes_hours_and_a_run_of_what_is_built_on_the_tables(
    instance: DagsterInstance,
) -> None:
    """Procedure: daily checks, a backfill and a downstream asset run; the checks of another day are queued, another
    backfill, and then a drain.
    """
    job, daily = table_check_job([orders()]), daily_request(orders())
    for status in (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.QUEUED):
        instance.create_run_for_job(
            job, run_config=daily.run_config, tags=daily.tags, status=status, remote_job_origin=AN_ORIGIN
        )
    unfinished_run(instance, replace(orders(), table="silver/orders"))
    # Only a few dates: Dagster plans an event for each of them.
    of_older_dates = {**range_tags(yesterday() - timedelta(days=2), yesterday()), "dagster/backfill": "some"}
    unfinished_run(instance, orders(), tags=of_older_dates)
    unfinished_run(instance, orders(), status="QUEUED", tags={**of_older_dates, "dagster/backfill": "other"})
    drain = unfinished_run(instance, orders(), status="QUEUED")

    daemon = QueuedRunCoordinatorDaemon(interval_seconds=1)
    chosen = daemon._get_runs_to_dequeue(instance, instance.get_concurrency_config(), fixed_iteration_time=None)

    assert [run.run_id for run in chosen] == [drain.run_id]


def test_the_daily_checks_begin_with_the_tables_that_were_read_the_longest_ago(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: nights that end at a table whose check takes longer than a run may; at first it is the third."""
    streams = [replace(orders(status="retired"), table=f"bronze/{name}") for name in ("a", "b", "large", "c")]
    read: list[str] = []

    def audit(subject: CheckSubject) -> CheckResult:
        read.append(subject.stream.table[-1])
        if subject.stream.table == "bronze/large":
            raise KeyboardInterrupt
        return CheckResult("passed", "")

    passed = dict.fromkeys(CHECKS, lambda subject: CheckResult("passed", ""))
    fast = {**passed, "every_offset_accounted_for": audit}
    monkeypatch.setattr(all_checks, "CHECKS", fast)

    def night() -> str:
        read.clear()
        job, config = table_check_job(streams), dg.RunConfig({"make_checks": CheckTables(costly=True)})
        with suppress(KeyboardInterrupt):
            job.execute_in_process(config, instance=instance, tags={check_tables.COSTLY_TAG: "true"})
        return "".join(read)

    assert [night(), night(), night()] == ["abe", "cabe", "cabe"]
