"""The scheduled upkeep: what one run does to the tables of a group, and what it shows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kdi_assets.components.names import table_key
from kdi_assets.documents.model.upkeep import Upkeep
from kdi_assets.sensors.upkeep import POOL, upkeep_jobs, upkeep_schedules
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream
from tests.refined import Lakeside, refined_table
from tests.table_by_hand import orders

pytestmark = pytest.mark.usefixtures("lake_in_environment")

SOON = Upkeep(small_files=2)
SILVER = refined_table(**{"table": "silver/copy", "from": "bronze/events", "upkeep": {"small_files": 2}})


def transactions(web: DrivenStream) -> dict[str, int | None]:
    table = DeltaTable(web.uri)
    ids = [f"{web.stream.app_id}-{p}" for p in range(web.partitions())]
    return {name: table.transaction_version(name) for name in (*ids, f"{web.stream.app_id}/version")}


def scheduled(job: dg.JobDefinition, name: str) -> dict[str, Any]:
    """The run configuration that the schedule asks for."""
    (schedule,) = (s for s in upkeep_schedules([job]) if s.name == name)
    with dg.build_schedule_context() as context:
        (request,) = schedule.evaluate_tick(context).run_requests or []
    return dict(request.run_config)


@pytest.mark.core
@pytest.mark.usefixtures("one_jvm")
def test_a_scheduled_run_compacts_a_table_and_no_position_row_or_proof_changes(
    instance: DagsterInstance, driven: DrivenFactory
) -> None:
    """Purpose: upkeep must be harmless to drains.
    Procedure: three drains, then the run that the hourly schedule asks for, then a drain without and one with messages.
    Pass: fewer files; transaction ids as before; the plan finds nothing new; the audit is complete, another reader
    finds every message once, and the run shows files and bytes before and after.
    """
    web = driven(partitions=2, upkeep=SOON)
    web.drain_rounds(3, 20)
    before, ids = DeltaTable(web.uri).file_uris(), transactions(web)
    (job,) = upkeep_jobs([web.stream])

    done = job.execute_in_process(run_config=scheduled(job, "upkeep_bronze_compaction"), instance=instance)
    after, left = DeltaTable(web.uri).file_uris(), transactions(web)
    idle = web.drain()
    produced = web.produce(10, seed=9)
    web.drain()

    assert done.success
    assert (len(before), len(after)) == (3 * len(after), len(after))
    assert (left, idle.commits) == (ids, ())
    assert web.audit().complete
    web.assert_each_offset_once(produced)
    told = instance.fetch_observations(dg.AssetRecordsFilter(table_key(web.stream)), limit=1).records[0]
    shown: dict[str, Any] = {name: value.value for name, value in told.asset_observation.metadata.items()}  # type: ignore[union-attr]
    assert (shown["files_before"], shown["files_after"]) == (len(before), len(after))
    assert shown["bytes_before"] > shown["bytes_after"] > 0


@pytest.mark.usefixtures("one_jvm")
def test_a_scheduled_run_compacts_refined_tables_and_shows_it(
    instance: DagsterInstance, spark: SparkSession, lake: str
) -> None:
    lakeside = Lakeside(spark, lake)
    for n in range(3):
        lakeside.append([(n, "a", n, "i", date(2026, 1, 1))])
        lakeside.refine(SILVER)
    (job,) = upkeep_jobs([SILVER])

    done = job.execute_in_process(run_config=scheduled(job, "upkeep_silver_compaction"), instance=instance)

    assert done.success
    shown = instance.fetch_observations(dg.AssetRecordsFilter(table_key(SILVER)), limit=1).records[0].asset_observation
    assert shown is not None
    assert (shown.metadata["files_before"].value, shown.metadata["files_after"].value) == (3, 1)
    lakeside.assert_as_computed_at_once(SILVER)


@pytest.mark.usefixtures("one_jvm")
def test_the_nightly_run_removes_dates_that_are_kept_no_longer_and_shows_it_at_each_date(
    instance: DagsterInstance, driven: DrivenFactory
) -> None:
    web = driven(partitions=1, record_ddl="id int, day string", date_expression="to_date(day)", columns={})
    today = datetime.now(UTC).date()
    old = today - timedelta(days=11)
    web.send(*(f'{{"id": {n}, "day": "{day}"}}' for n, day in enumerate([old, old, today])))
    web.drain()
    web.stream = replace(web.stream, keep_days=10)
    (job,) = upkeep_jobs([web.stream])

    hourly = job.execute_in_process(run_config=scheduled(job, "upkeep_bronze_compaction"), instance=instance)
    kept = len(web.rows())
    nightly = job.execute_in_process(run_config=scheduled(job, "upkeep_bronze_nightly"), instance=instance)

    assert hourly.success and nightly.success
    assert (kept, [row["date"] for row in web.rows()]) == (3, [today])
    assert web.audit().kept_no_longer == 2
    of_date = dg.AssetRecordsFilter(table_key(web.stream), asset_partitions=[str(old)])
    (shown,) = instance.fetch_observations(of_date, limit=9).records
    assert shown.asset_observation is not None
    told = {name: value.value for name, value in shown.asset_observation.metadata.items()}
    kept_from = today - timedelta(days=10)
    assert told == {"kept_no_longer": f"dates before {kept_from}", "rows_removed": 2, "delta_version": web.version()}


def test_a_nightly_run_does_not_trust_a_clock_that_is_far_ahead_and_fails(
    instance: DagsterInstance, driven: DrivenFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: a clock that is wrong once must not end all rows; and what waits for too long is shown as a failure."""
    web = driven(partitions=1, record_ddl="id int, day string", date_expression="to_date(day)", columns={})
    today = datetime.now(UTC).date()
    web.send(f'{{"id": 1, "day": "{today}"}}')
    web.drain()
    version, ahead = web.version(), today + timedelta(days=31)
    web.stream = replace(web.stream, keep_days=10)
    (job,) = upkeep_jobs([web.stream])

    class Ahead(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(days=31)

    monkeypatch.setattr("kdi_assets.sensors.upkeep.datetime", Ahead)
    nightly = scheduled(job, "upkeep_bronze_nightly")
    done = job.execute_in_process(run_config=nightly, instance=instance, raise_on_error=False)

    (failed,) = [event for event in done.all_node_events if event.is_step_failure]
    why = f"the clock of this machine says {ahead}, and the newest commit of the table is of {today}"
    assert why in str(failed.step_failure_data.user_failure_data)
    assert (len(web.rows()), web.version()) == (1, version)


def test_a_group_has_one_job_in_a_pool_of_its_own_and_gives_way_to_drains() -> None:
    bronze, other = orders(), orders(upkeep=Upkeep(scheduled=False))

    jobs, none = upkeep_jobs([bronze]), upkeep_jobs([other, orders(status="retired")])

    (job,) = jobs
    assert (job.name, none) == ("upkeep_bronze", [])
    assert job.graph.node_defs[0].pools == {POOL}
    assert int(job.tags["dagster/priority"]) < 0
    assert [j.name for j in upkeep_jobs([bronze, SILVER])] == ["upkeep_bronze", "upkeep_silver"]
    assert scheduled(job, "upkeep_bronze_nightly")["ops"]["upkeep_bronze_op"]["config"]["thorough"] is True
