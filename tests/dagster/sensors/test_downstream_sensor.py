"""The sensor of downstream assets: which assets it targets, and which it leaves to other sensors."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
from dagster import AutomationCondition

from kdi_assets.components.table_asset import table_asset
from kdi_assets.definitions import defs
from kdi_assets.downstream import on_new_upstream_data
from kdi_assets.resources.spark import SparkResource
from kdi_assets.sensors.downstream import NAME, downstream_sensors
from tests.dagster.built_on_bronze import BRONZE, SILVER, Condition, silver_on
from tests.dagster.fakes import ScriptedDrain, no_audit

CHECKOUT = Path(__file__).parents[3]
EAGER = AutomationCondition.eager()


def location(condition: Condition, *sensors: dg.SensorDefinition) -> dg.Definitions:
    """Bronze and silver, a report with Dagster's own condition, sensors of the user's and ours."""
    table = table_asset(BRONZE, drain=ScriptedDrain(), audit=no_audit)

    @dg.asset(deps=[SILVER], automation_condition=EAGER)
    def report() -> None: ...

    users = dg.Definitions(
        assets=[table, silver_on(BRONZE, condition), report], sensors=sensors, resources={"spark": SparkResource()}
    )
    return dg.Definitions.merge(users, dg.Definitions(sensors=downstream_sensors(users)))


def evaluated(defs: dg.Definitions) -> dict[str, set[str]]:
    """The assets with a condition that each sensor of the location evaluates, including Dagster's default one."""
    repository = defs.get_repository_def()
    graph = repository.asset_graph
    return {
        sensor.name: {
            key.to_user_string()
            for key in sensor.asset_selection.resolve(graph)
            if graph.get(key).automation_condition is not None
        }
        for sensor in repository.sensor_defs
        if isinstance(sensor, dg.AutomationConditionSensorDefinition)
    }


@pytest.mark.parametrize(
    "condition",
    [
        on_new_upstream_data(),
        on_new_upstream_data() & ~AutomationCondition.any_deps_in_progress(),
        ~on_new_upstream_data(),
    ],
)
def test_each_asset_is_evaluated_by_one_sensor_and_ours_targets_no_table(condition: Condition) -> None:
    here = location(condition)

    ours = here.get_repository_def().get_sensor_def(NAME)
    assert ours.asset_selection is not None
    assert ours.asset_selection.resolve(here.resolve_asset_graph()) == {SILVER}
    assert evaluated(here) == {NAME: {"silver/requests"}, "default_automation_condition_sensor": {"report"}}


def test_there_is_no_sensor_where_no_asset_has_the_condition() -> None:
    assert evaluated(location(EAGER)) == {"default_automation_condition_sensor": {"silver/requests", "report"}}


def test_what_a_sensor_of_the_users_own_evaluates_is_left_to_it() -> None:
    users = dg.AutomationConditionSensorDefinition("users", target=dg.AssetSelection.all())

    assert evaluated(location(on_new_upstream_data(), users)) == {"users": {"silver/requests", "report"}}


def test_the_example_is_a_folder_that_the_code_location_loads_with_its_sensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDI_DEFS", str(CHECKOUT / "examples" / "downstream"))

    example = defs()

    assert evaluated(example) == {NAME: {"silver/failed_requests"}}
    graph = example.resolve_asset_graph()
    assert [k.to_user_string() for k in graph.get(dg.AssetKey(["silver", "failed_requests"])).parent_keys] == [
        "bronze/web_requests"
    ]
    dg.Definitions.validate_loadable(example)
