"""Events of refined tables: those that a crash left out are logged by the follow sensor, once."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterInstance
from deltalake import DeltaTable

from kdi_assets.components.names import table_key
from kdi_assets.downstream import on_new_upstream_data
from kdi_assets.resources.spark import SparkResource
from kdi_assets.sensors import table_log
from tests.dagster.fakes import events, materialize, today, yesterday
from tests.dagster.follow_ticks import Sensor
from tests.dagster.refined_world import GOLD, SILVER, ScriptedRefine, committed, refined_assets, run_refined

pytestmark = pytest.mark.usefixtures("lake_in_environment")
core = pytest.mark.core
OLD = date(2021, 3, 4)


@core
def test_a_commit_without_events_is_told_at_the_next_tick_and_once(
    sensor: Sensor, lake_in_environment: str, instance: DagsterInstance
) -> None:
    committed(lake_in_environment, SILVER, {OLD: 3, yesterday(): 2}, version=0)

    sensor.tick()
    told = events(instance, table_key(SILVER))
    sensor.tick()
    sensor.cursor = None  # lost: the events are there all the same
    sensor.tick()

    assert {day: (said["rows_added"], said["delta_version"]) for day, said in told.items()} == {
        OLD.isoformat(): (3, 0),
        yesterday().isoformat(): (2, 0),
    }
    assert told[OLD.isoformat()]["logged_by"] == "reconcile"
    assert len(instance.fetch_materializations(table_key(SILVER), limit=10).records) == 2


def test_a_commit_whose_run_logged_it_is_not_told_again(
    sensor: Sensor, lake_in_environment: str, instance: DagsterInstance
) -> None:
    run_refined(instance, ScriptedRefine({SILVER.name: {OLD: 3}}, version=0), SILVER)
    committed(lake_in_environment, SILVER, {OLD: 3}, version=0)

    sensor.tick()

    assert len(instance.fetch_materializations(table_key(SILVER), limit=10).records) == 1


def test_ticks_that_lose_their_cursor_compare_other_tables_each(
    sensor: Sensor, lake_in_environment: str, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster keeps no cursor of a tick that took a minute, as on object storage: the next one must not begin again."""
    committed(lake_in_environment, SILVER, {OLD: 1}, version=0)
    committed(lake_in_environment, GOLD, {OLD: 1}, version=0)
    monkeypatch.setattr(table_log, "RECONCILE_SECONDS", 0.0)

    logged = []
    for _ in range(2):
        sensor.tick()
        sensor.cursor = None
        logged.append({table.name for table in (SILVER, GOLD) if events(instance, table_key(table))})

    assert [len(tables) for tables in logged] == [1, 2]


def test_a_commit_that_is_torn_for_a_moment_is_logged_once_it_can_be_read(
    sensor: Sensor, lake_in_environment: str, instance: DagsterInstance
) -> None:
    uri = SILVER.table_uri(lake_in_environment)
    for version, day in enumerate((OLD, yesterday(), today())):
        committed(lake_in_environment, SILVER, {day: 1}, version=version)
    DeltaTable(uri).create_checkpoint()  # so that the table can be opened without the commit
    commit = Path(uri) / "_delta_log" / f"{1:020}.json"
    whole = commit.read_bytes()

    commit.write_bytes(b"")
    sensor.tick()
    before = set(events(instance, table_key(SILVER)))
    commit.write_bytes(whole)
    sensor.tick()

    assert before == {OLD.isoformat()}
    assert set(events(instance, table_key(SILVER))) == {day.isoformat() for day in (OLD, yesterday(), today())}


@core
def test_a_late_row_requests_its_date_of_an_asset_that_is_built_on_gold_and_no_other(instance: DagsterInstance) -> None:
    refine = ScriptedRefine({SILVER.name: {OLD: 1}, GOLD.name: {OLD: 1}})
    report = dg.AssetKey(["report"])

    @dg.asset(
        key=report,
        deps=[table_key(GOLD)],
        partitions_def=dg.DailyPartitionsDefinition("2020-01-01", end_offset=3),
        automation_condition=on_new_upstream_data(),
    )
    def built() -> None: ...

    assets = [*refined_assets(refine, SILVER, GOLD), built]
    defs = dg.Definitions(assets=assets, resources={"spark": SparkResource()})
    first = dg.evaluate_automation_conditions(defs, instance, dg.AssetSelection.all())
    materialize(instance, assets, table_key(SILVER), table_key(GOLD), day=today())

    second = dg.evaluate_automation_conditions(defs, instance, dg.AssetSelection.all(), cursor=first.cursor)

    assert set(second.get_requested_partitions(report)) == {OLD.isoformat()}
