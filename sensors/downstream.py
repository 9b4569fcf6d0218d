"""The sensor that requests the assets that users build on the tables, never the tables themselves."""

from __future__ import annotations

import dagster as dg

from kdi_assets.downstream import LABEL
from kdi_assets.sensors.default_status import described, sensor_status

NAME = "downstream"
TICK_SECONDS = 5


def downstream_sensors(defs: dg.Definitions) -> list[dg.SensorDefinition]:
    """The sensor for the assets of ``defs`` with ``on_new_upstream_data()``; an empty list if there is no such asset.

    Assets with other conditions stay with Dagster's default sensor, and assets that a user's sensor targets stay with
    that one: Dagster allows one sensor per asset.
    """
    targets = _with_our_condition(defs) - _targeted_by_others(defs)
    return [_sensor(sorted(targets))] if targets else []


def _sensor(targets: list[dg.AssetKey]) -> dg.SensorDefinition:
    # The daemon evaluates it. With `use_user_code_server`, a daemon that dies while it submits runs loses the cursor,
    # and with it every update that is not requested yet.
    return dg.AutomationConditionSensorDefinition(
        name=NAME,
        target=dg.AssetSelection.assets(*targets),
        minimum_interval_seconds=TICK_SECONDS,
        default_status=sensor_status(),
        emit_backfills=False,  # a backfill would start up to half a minute later
        run_tags={"dagster/priority": "-1"},  # drains go first: many late dates are many runs
        description=described("Requests assets with on_new_upstream_data(): every date whose upstream got new data."),
    )


def _with_our_condition(defs: dg.Definitions) -> set[dg.AssetKey]:
    assets = (asset for asset in defs.assets or () if isinstance(asset, dg.AssetsDefinition))
    specs = (spec for asset in assets for spec in asset.specs)
    return {spec.key for spec in specs if spec.automation_condition and _is_ours(spec.automation_condition)}


def _is_ours(condition: dg.AutomationCondition[dg.AssetKey]) -> bool:
    """Whether the condition contains ``on_new_upstream_data()``."""
    return condition.get_label() == LABEL or any(_is_ours(child) for child in condition.children)


def _targeted_by_others(defs: dg.Definitions) -> set[dg.AssetKey]:
    sensors = [s for s in defs.sensors or () if isinstance(s, dg.AutomationConditionSensorDefinition)]
    return {key for sensor in sensors for key in sensor.asset_selection.resolve(defs.resolve_asset_graph())}
