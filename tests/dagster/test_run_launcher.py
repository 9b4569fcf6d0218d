"""What the deployment's run launcher says of a run's process; that it is gone: `tests/faults/test_deployment.py`."""

from __future__ import annotations

import json

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster._core.launcher import WorkerStatus
from dagster._core.storage.tags import GRPC_INFO_TAG

from kdi_assets.runtime.ports import free_port
from resources.run_launcher import WatchedRunLauncher


@dg.job
def work() -> None:
    """A job without steps."""


@pytest.fixture
def launcher(instance: DagsterInstance) -> WatchedRunLauncher:
    launcher = WatchedRunLauncher()
    launcher.register_instance(instance)
    return launcher


def started(instance: DagsterInstance, **tags: str) -> dg.DagsterRun:
    return instance.create_run_for_job(work, status=dg.DagsterRunStatus.STARTED, tags=tags)


def test_a_run_of_the_command_line_is_left_alone(instance: DagsterInstance, launcher: WatchedRunLauncher) -> None:
    """It works in the process of the command, of which no code server knows."""
    assert launcher.check_run_worker_health(started(instance)).status is WorkerStatus.RUNNING


def test_a_run_is_not_given_up_while_its_code_server_does_not_answer(
    instance: DagsterInstance, launcher: WatchedRunLauncher
) -> None:
    server = json.dumps({"host": "127.0.0.1", "port": free_port()})

    health = launcher.check_run_worker_health(started(instance, **{GRPC_INFO_TAG: server}))

    assert (health.status, health.msg) == (WorkerStatus.RUNNING, "its code server does not answer")
