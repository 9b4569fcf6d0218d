"""What Dagster's daemon does for automation conditions, once; in a process of its own it may be killed at a point."""

from __future__ import annotations

import signal
import warnings
from unittest.mock import patch

from dagster import DagsterInstance
from dagster._core.test_utils import create_test_daemon_workspace_context
from dagster._daemon.asset_daemon import AssetDaemon

from tests.faults.doomed_daemon import code_server

REQUESTS_NOTED, RUN_MADE = "RUN_REQUESTS_CREATED", "RUN_CREATED"
"""Dagster's own names: it has noted what is to run, and not yet that it saw the updates; the first run is made."""


def evaluate(dagster_home: str, port: int, point: str = "") -> None:
    """Evaluate every condition of the code server at the port, and submit what it requests; up to the point."""
    crash = {point: signal.SIGKILL} if point else {}
    with (
        warnings.catch_warnings(),
        # Now, also if the daemon that was killed ticked a moment ago.
        patch("dagster._daemon.asset_daemon.is_under_min_interval", return_value=False),
        DagsterInstance.from_config(dagster_home) as instance,
        create_test_daemon_workspace_context(code_server(port), instance) as workspace,
    ):
        warnings.simplefilter("ignore", DeprecationWarning)  # Dagster's own, which pytest would make an error of
        daemon = AssetDaemon(settings=instance.get_auto_materialize_settings(), pre_sensor_interval_seconds=5)
        daemon._run_iteration_impl(workspace, None, {}, crash)
