"""Whether the sensors and schedules are on before anybody clicks: only where the deployment says ``KDI_AUTOMATION=on``.

Whoever loads the documents with the lake's address, to look or to try, would otherwise start a second scheduler of the
same tables. Off means Dagster's own STOPPED: no tick, no run, no event. A person may still switch one on in the UI.
"""

from __future__ import annotations

import dagster as dg

from kdi_assets.settings import Settings

OFF = (
    "Off here, because KDI_AUTOMATION is not `on` in the environment of this code location: one deployment of a lake "
    "has it on. To work here without it, switch this one on by hand (docs/environments.md). "
)


def sensor_status() -> dg.DefaultSensorStatus:
    """The status of a sensor that nobody has switched."""
    on = Settings.from_environment().automation
    return dg.DefaultSensorStatus.RUNNING if on else dg.DefaultSensorStatus.STOPPED


def schedule_status() -> dg.DefaultScheduleStatus:
    """The status of a schedule that nobody has switched."""
    on = Settings.from_environment().automation
    return dg.DefaultScheduleStatus.RUNNING if on else dg.DefaultScheduleStatus.STOPPED


def described(text: str) -> str:
    """The description of a sensor or schedule for the UI; it begins with the reason if the default is off."""
    return text if Settings.from_environment().automation else OFF + text
