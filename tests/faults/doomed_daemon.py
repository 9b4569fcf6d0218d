"""What Dagster's daemon does for sensors, once, in a process of its own, which may be killed at a point of it.

The points are Dagster's own: its daemon can be told to kill itself at them.
"""

from __future__ import annotations

import logging
import signal
from unittest.mock import patch

from dagster import DagsterInstance
from dagster._core.test_utils import create_test_daemon_workspace_context
from dagster._core.workspace.load_target import GrpcServerTarget
from dagster._daemon.sensor import execute_sensor_iteration

LOCATION = "held"

TICK_MADE, RUNS_RESERVED, RUN_MADE, RUN_LAUNCHED = "TICK_HELD", "RUN_IDS_RESERVED", "RUN_CREATED", "RUN_LAUNCHED"


def code_server(port: int) -> GrpcServerTarget:
    """The code server as a workspace names it."""
    return GrpcServerTarget(host="localhost", port=port, socket=None, location_name=LOCATION)


def tick(dagster_home: str, port: int, sensor: str = "", point: str = "") -> None:
    """Evaluate every sensor that is due, and submit what it requests; up to the point of one of them."""
    crash = {sensor: {point: signal.SIGKILL}} if sensor else None
    with (
        # Now, also if the daemon that was killed ticked less than five seconds ago.
        patch("dagster._daemon.sensor.is_under_min_interval", return_value=False),
        DagsterInstance.from_config(dagster_home) as instance,
        create_test_daemon_workspace_context(code_server(port), instance) as workspace,
    ):
        list(execute_sensor_iteration(workspace, logging.getLogger("ticks"), None, None, debug_crash_flags=crash))
