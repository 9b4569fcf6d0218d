"""The sensor of what is built on the tables under Dagster's daemon, which may die between decision and run."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterInstance

from kdi_assets.components.names import table_key
from kdi_assets.runtime.ports import free_port
from kdi_assets.runtime.processes import Child
from tests.conftest import CHECKOUT
from tests.dagster.built_on_bronze import BRONZE, SILVER
from tests.dagster.doomed_asset_daemon import REQUESTS_NOTED, RUN_MADE, evaluate
from tests.dagster.fakes import TODAY, YESTERDAY
from tests.faults.dagster_site import listens
from tests.faults.doomed_drain import in_a_process
from tests.waiting import wait_until

# Runs wait in the queue, which nobody works off.
INSTANCE = """
telemetry: {enabled: false}
run_coordinator: {module: dagster._core.run_coordinator, class: QueuedRunCoordinator}
"""


@dataclass
class Site:
    """An instance and a code server."""

    instance: DagsterInstance
    home: Path
    port: int

    def drained(self, *days: object) -> None:
        """What a drain tells of the dates it touched."""
        for day in days:
            self.instance.report_runless_asset_event(dg.AssetMaterialization(table_key(BRONZE), partition=str(day)))

    def tick(self) -> None:
        evaluate(str(self.home), self.port)

    def die_in_a_tick(self, point: str) -> None:
        """A daemon of its own, killed at the point."""
        ended = in_a_process("tests.dagster.doomed_asset_daemon", "evaluate", str(self.home), self.port, point)
        assert ended == -signal.SIGKILL

    def queued(self) -> list[str]:
        """The date of every run, in order."""
        runs = self.instance.get_runs()
        assert all(set(run.asset_selection or ()) == {SILVER} for run in runs)
        assert all(run.tags["dagster/priority"] == "-1" for run in runs), "behind the drains"
        return sorted(run.tags["dagster/partition"] for run in runs)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    home, port = tmp_path / "dagster", free_port()
    home.mkdir()
    (home / "dagster.yaml").write_text(INSTANCE)
    command = [str(Path(sys.executable).with_name("dagster")), "code-server", "start", "-p", str(port)]
    command += ["-m", "tests.dagster.silver_location", "-d", str(CHECKOUT)]
    server = Child(command, environment={"DAGSTER_HOME": str(home), "PYTHONPATH": str(CHECKOUT)}, log=tmp_path / "log")
    try:
        wait_until(lambda: listens(port) or server.exit_code() is not None, seconds=120)
        with DagsterInstance.from_config(str(home)) as instance:
            yield Site(instance, home, port)
    finally:
        server.stop()


def test_a_daemon_that_dies_before_it_launched_what_a_tick_requested_loses_no_date_and_doubles_none(site: Site) -> None:
    """Purpose: the tick that requests a date also forgets the update; both must hold together, or neither.
    Procedure: two dates are drained; the daemon is killed when it has noted what to run, and once more when one of the
    runs is there; it ticks again, and again after one more drain.
    Pass: a queued run for each of the two dates, and one more for the date that was drained again, when it is over.
    """
    site.tick()
    site.drained(YESTERDAY, TODAY)

    site.die_in_a_tick(REQUESTS_NOTED)
    site.die_in_a_tick(RUN_MADE)
    site.tick()
    after = site.queued()
    site.drained(TODAY)
    site.tick()
    while_queued = site.queued()
    for run in site.instance.get_runs():
        site.instance.report_run_canceled(run)
    site.tick()

    assert after == while_queued == [str(YESTERDAY), str(TODAY)]
    assert site.queued() == [str(YESTERDAY), str(TODAY), str(TODAY)]
