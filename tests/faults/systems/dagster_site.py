"""A Dagster instance, a code server with its own streams, and a warm driver for the runs: all real processes.

The daemon's work for sensors is done once, in a process that may be killed at Dagster's own points of a tick.
"""

from __future__ import annotations

import logging
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import dagster as dg
from confluent_kafka.admin import NewTopic
from dagster import DagsterInstance
from dagster._core.test_utils import create_test_daemon_workspace_context
from dagster._core.utils import make_new_run_id
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import GrpcServerTarget
from dagster._daemon.sensor import _submit_run_request, execute_sensor_iteration

from kdi_assets.components.names import identifier, table_key
from kdi_assets.documents.model.stream import Cluster
from kdi_assets.operate.monitoring.backlog_reader import read_backlog
from kdi_assets.runtime.processes import Child
from kdi_assets.sensors.policy import Due
from kdi_assets.sensors.requests import run_requests
from kdi_assets.tools.local.broker import free_port
from tests.conftest import CHECKOUT
from tests.driven import DrivenStream
from tests.faults.doomed_drain import in_a_process
from tests.faults.systems.held_location import Holds
from tests.faults.topics import admin
from tests.waiting import wait_until

TICK_MADE, RUNS_RESERVED, RUN_MADE, RUN_LAUNCHED = "TICK_HELD", "RUN_IDS_RESERVED", "RUN_CREATED", "RUN_LAUNCHED"
LOCATION = "held"
INSTANCE = """
telemetry: {enabled: false}
run_coordinator: {module: dagster._core.run_coordinator, class: DefaultRunCoordinator}
"""


def tick(dagster_home: str, port: int, sensor: str = "", point: str = "") -> None:
    """Evaluate every due sensor, and submit its requests; up to one of these points."""
    crash = {sensor: {point: signal.SIGKILL}} if sensor else None
    with (
        # Now, even if the daemon that was killed ticked less than five seconds ago.
        patch("dagster._daemon.sensor.is_under_min_interval", return_value=False),
        DagsterInstance.from_config(dagster_home) as instance,
        create_test_daemon_workspace_context(code_server(port), instance) as workspace,
    ):
        list(execute_sensor_iteration(workspace, logging.getLogger("ticks"), None, None, debug_crash_flags=crash))


def code_server(port: int) -> GrpcServerTarget:
    """The code server as a workspace names it."""
    return GrpcServerTarget(host="localhost", port=port, socket=None, location_name=LOCATION)


@dataclass
class Site:
    """A Dagster instance, a code server with a stream per test, and a warm driver for its runs."""

    home: Path
    lake: str
    kafka: str
    port: int
    holds: Holds
    instance: DagsterInstance
    workspace: WorkspaceProcessContext

    def topic(self, name: str) -> str:
        """A topic of this site; another site over the same broker has its own."""
        return f"{self.home.parent.name}_{name}"

    def launch(self, web: DrivenStream) -> str:
        """Execute the request that the stream's sensor would make; the run's id."""
        backlog = read_backlog(web.stream, self.lake)
        (request,) = run_requests([Due(backlog, "a test")], {backlog.stream: web.stream}, now=datetime.now(UTC))
        request = request.with_replaced_attrs(tags={**request.tags, "dagster/partition": request.partition_key or ""})
        location = self.workspace.create_request_context().get_code_location(LOCATION)
        (repository,) = location.get_repositories().values()
        sensor, run_id = repository.get_sensor(sensor_name(web)), make_new_run_id()
        launched = _submit_run_request(run_id, request, self.workspace, sensor, {}, logging.getLogger(), None)
        assert launched.error_info is None, launched.error_info
        return run_id

    def runs(self, web: DrivenStream) -> list[dg.DagsterRun]:
        """The runs of the stream's table."""
        return [r for r in self.instance.get_runs() if table_key(web.stream) in (r.asset_selection or ())]

    def ended(self, run_id: str) -> dg.DagsterRun:
        """The run, once its worker has reported its end."""
        wait_until(lambda: self._run(run_id).is_finished, seconds=180)
        return self._run(run_id)

    def daemon(self, *crash: str) -> int | None:
        """Let a daemon process tick once; its exit code."""
        return in_a_process(tick, str(self.home), self.port, *crash)

    def dates(self, web: DrivenStream) -> set[str]:
        return self.instance.get_materialized_partitions(table_key(web.stream))

    def _run(self, run_id: str) -> dg.DagsterRun:
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        return run


def sensor_name(web: DrivenStream) -> str:
    return f"lag_{identifier(web.stream.topic)}"


def dates_of(web: DrivenStream) -> set[str]:
    return {row["date"].isoformat() for row in web.found().rows}


@contextmanager
def open_site(folder: Path, names: Sequence[str], *, bootstrap_servers: str, driver_home: Path) -> Iterator[Site]:
    """Topics, a code server for them, and an instance; everything ends with the body."""
    home, holds, lake, port = folder / "dagster", folder / "holds", str(folder / "lake"), free_port()
    home.mkdir()
    holds.mkdir()
    (home / "dagster.yaml").write_text(INSTANCE)
    topics, client = [f"{folder.name}_{name}" for name in names], admin(Cluster("main", bootstrap_servers))
    for created in client.create_topics([NewTopic(t, num_partitions=2, replication_factor=1) for t in topics]).values():
        created.result(30)
    environment = {
        "DAGSTER_HOME": str(home),
        "KDI_HOME": str(driver_home),
        "KDI_DRIVER": "shared",
        "KDI_AUTOMATION": "on",
        "KDI_LAKE": lake,
        "KDI_KAFKA": bootstrap_servers,
        "KDI_TEST_TOPICS": ",".join(topics),
        "KDI_TEST_HOLD": str(holds),
        "PYTHONPATH": str(CHECKOUT),
    }
    command = [str(Path(sys.executable).with_name("dagster")), "code-server", "start", "-p", str(port)]
    command += ["-m", "tests.faults.systems.held_location", "-d", str(CHECKOUT)]
    with ExitStack() as stack:
        server = Child(command, environment=environment, log=folder / "code server")
        stack.callback(server.stop)
        wait_until(lambda: listens(port) or server.exit_code() is not None, seconds=120)
        instance = stack.enter_context(DagsterInstance.from_config(str(home)))
        workspace = stack.enter_context(create_test_daemon_workspace_context(code_server(port), instance))
        yield Site(home, lake, bootstrap_servers, port, Holds(holds), instance, workspace)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
