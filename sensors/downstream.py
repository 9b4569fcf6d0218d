"""The sensor that requests what users build on the tables; never the tables themselves."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import dagster as dg
from dagster._core.definitions.sensor_definition import SensorType

from kdi_assets.downstream import BlockingCheckFailed
from kdi_assets.errors import Terminal

NAME = "downstream"
TICK_SECONDS = 5


@dataclass(eq=False, kw_only=True)
class SensorCannotEvaluate(Terminal):
    """Another sensor targets assets whose condition Dagster evaluates in the code location alone."""

    sensor: str
    assets: tuple[str, ...]

    def parts(self) -> tuple[str, str, str]:
        return (
            f"the sensor {self.sensor} targets {', '.join(self.assets)}, whose condition is on_new_upstream_data(); it "
            "would skip them at every tick, without a word.",
            "nothing was loaded, so nothing was requested.",
            f"dagster definitions validate, after giving {self.sensor} use_user_code_server=True, or targets without "
            f"these: the sensor {NAME} then takes them.",
        )


def downstream_sensors(defs: dg.Definitions) -> list[dg.SensorDefinition]:
    """The sensor for the assets of ``defs`` that run by ``on_new_upstream_data()``; none where no asset does.

    Assets with other conditions stay with Dagster's default sensor, and what a sensor of the user's own targets stays
    with that: no two may evaluate one asset.

    Raises:
        SensorCannotEvaluate: A sensor of the user's own targets such an asset, and cannot evaluate its condition.
    """
    targets = _carriers(defs) - _targeted_by_others(defs)
    return [_sensor(sorted(targets))] if targets else []


def _sensor(targets: list[dg.AssetKey]) -> dg.SensorDefinition:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # the evaluation in the code location
        return dg.AutomationConditionSensorDefinition(
            name=NAME,
            target=dg.AssetSelection.assets(*targets),
            minimum_interval_seconds=TICK_SECONDS,
            default_status=dg.DefaultSensorStatus.RUNNING,
            emit_backfills=False,  # a backfill starts up to half a minute later
            use_user_code_server=True,  # nobody else evaluates a condition that Dagster does not know
            run_tags={"dagster/priority": "-1"},  # many late dates are many runs, and drains go first
            description="Requests assets with on_new_upstream_data(): every date whose upstream got new data.",
        )


def _carriers(defs: dg.Definitions) -> set[dg.AssetKey]:
    assets = (asset for asset in defs.assets or () if isinstance(asset, dg.AssetsDefinition))
    specs = (spec for asset in assets for spec in asset.specs)
    return {spec.key for spec in specs if spec.automation_condition and _is_ours(spec.automation_condition)}


def _is_ours(condition: dg.AutomationCondition[dg.AssetKey]) -> bool:
    """Whether it holds what Dagster's default sensor cannot evaluate, however users combined it with others."""
    return isinstance(condition, BlockingCheckFailed) or any(_is_ours(child) for child in condition.children)


def _targeted_by_others(defs: dg.Definitions) -> set[dg.AssetKey]:
    targeted: set[dg.AssetKey] = set()
    for sensor in _automation_sensors(defs):
        keys = sensor.asset_selection.resolve(defs.resolve_asset_graph()) & _carriers(defs)
        if keys and sensor.sensor_type is not SensorType.AUTOMATION:
            raise SensorCannotEvaluate(sensor=sensor.name, assets=tuple(sorted(k.to_user_string() for k in keys)))
        targeted |= keys
    return targeted


def _automation_sensors(defs: dg.Definitions) -> Iterator[dg.AutomationConditionSensorDefinition]:
    return (s for s in defs.sensors or () if isinstance(s, dg.AutomationConditionSensorDefinition))
