"""The sensor that requests what users build on the tables; never the tables themselves."""

from __future__ import annotations

import dagster as dg

from kdi_assets.downstream import LABEL

NAME = "downstream"
TICK_SECONDS = 5


def downstream_sensors(defs: dg.Definitions) -> list[dg.SensorDefinition]:
    """The sensor for the assets of ``defs`` that run by ``on_new_upstream_data()``; none where no asset does.

    Assets with other conditions stay with Dagster's default sensor, and what a sensor of the user's own targets stays
    with that: no two may evaluate one asset.
    """
    targets = _carriers(defs) - _targeted_by_others(defs)
    return [_sensor(sorted(targets))] if targets else []


def _sensor(targets: list[dg.AssetKey]) -> dg.SensorDefinition:
    # Evaluated by the daemon. With `use_user_code_server`, a daemon that dies while it submits runs loses the cursor,
    # and with it every update that was not requested yet.
    return dg.AutomationConditionSensorDefinition(
        name=NAME,
        target=dg.AssetSelection.assets(*targets),
        minimum_interval_seconds=TICK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        emit_backfills=False,  # a backfill starts up to half a minute later
        run_tags={"dagster/priority": "-1"},  # many late dates are many runs, and drains go first
        description="Requests assets with on_new_upstream_data(): every date whose upstream got new data.",
    )


def _carriers(defs: dg.Definitions) -> set[dg.AssetKey]:
    assets = (asset for asset in defs.assets or () if isinstance(asset, dg.AssetsDefinition))
    specs = (spec for asset in assets for spec in asset.specs)
    return {spec.key for spec in specs if spec.automation_condition and _is_ours(spec.automation_condition)}


def _is_ours(condition: dg.AutomationCondition[dg.AssetKey]) -> bool:
    """Whether ``on_new_upstream_data()`` is in it, however users combined it with others."""
    return condition.get_label() == LABEL or any(_is_ours(child) for child in condition.children)


def _targeted_by_others(defs: dg.Definitions) -> set[dg.AssetKey]:
    sensors = [s for s in defs.sensors or () if isinstance(s, dg.AutomationConditionSensorDefinition)]
    return {key for sensor in sensors for key in sensor.asset_selection.resolve(defs.resolve_asset_graph())}
