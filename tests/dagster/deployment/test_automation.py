"""Sensors and schedules are on only where the deployment says so, and the UI says why they are off."""

from __future__ import annotations

import dagster as dg
import pytest

from kdi_assets.definitions import defs
from kdi_assets.sensors.default_status import OFF

ON = {dg.DefaultSensorStatus.RUNNING, dg.DefaultScheduleStatus.RUNNING}
STOPPED = {dg.DefaultSensorStatus.STOPPED, dg.DefaultScheduleStatus.STOPPED}


def switches() -> dict[str, dg.SensorDefinition | dg.ScheduleDefinition]:
    """All sensors and schedules of the checkout's code location, by name."""
    repository = defs().get_repository_def()
    sensors = {sensor.name: sensor for sensor in repository.sensor_defs}
    return {**sensors, **{schedule.name: schedule for schedule in repository.schedule_defs}}


@pytest.mark.parametrize("variable", [None, "", "off"])
def test_where_nobody_says_so_every_sensor_and_schedule_is_off_and_says_why(
    monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    monkeypatch.delenv("KDI_AUTOMATION", raising=False)
    if variable is not None:
        monkeypatch.setenv("KDI_AUTOMATION", variable)

    found = switches()

    assert {"lag_main", "freshness_main", "follow", "downstream_alerts", "cheap_checks"} <= found.keys()
    assert {one.default_status for one in found.values()} == STOPPED
    assert [name for name, one in found.items() if not (one.description or "").startswith(OFF)] == []


def test_where_the_deployment_says_so_every_sensor_and_schedule_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDI_AUTOMATION", "on")

    found = switches()

    assert {one.default_status for one in found.values()} == ON
    assert [name for name, one in found.items() if "KDI_AUTOMATION" in (one.description or "")] == []


def test_a_code_location_does_not_load_with_a_value_that_is_neither_on_nor_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDI_AUTOMATION", "true")

    with pytest.raises(ValueError, match="KDI_AUTOMATION is 'true'; it takes on or off"):
        defs()
