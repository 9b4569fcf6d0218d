"""kill -9 of a whole Dagster run; of a drain alone, at every point, in `test_signals.py`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from kdi_assets.components.assets import stream_definitions
from kdi_assets.components.names import table_key
from kdi_assets.drain.look import look_at
from resources.spark import SparkResource
from sensors.lag import lag_sensor
from tests.conftest import CHECKOUT, DrivenFactory
from tests.driven import DrivenStream
from tests.faults.doomed_run import EVENT_NOT_LOGGED

AFTER_THE_COMMIT = pytest.mark.scenario("killed after the commit, before Dagster's event")


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("dead letters written", marks=pytest.mark.scenario("killed between dead letters and commit")),
        pytest.param("commit sent", marks=AFTER_THE_COMMIT),
        pytest.param(EVENT_NOT_LOGGED, marks=AFTER_THE_COMMIT),
    ],
)
def test_a_killed_run_loses_and_doubles_nothing_and_dagster_shows_every_date(
    driven: DrivenFactory, warm_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Purpose: a run may die anywhere; order and ledger alone keep table, dead letters and Dagster together.
    Procedure: produce good and malformed messages of three dates; a run in a process of its own is killed (SIGKILL) at
    the point; drain once more; let the sensor tick once.
    Pass: every produced offset is exactly once in the table or in the dead letters that count, byte for byte; Dagster
    shows each date of the table as materialized; the run did die by the signal.
    """
    web = driven(partitions=2)
    produced = web.produce(300, bad=0.1, tombstones=0.01)
    home = tmp_path / "dagster"
    home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.setenv("KDI_LAKE", web.lake)

    killed = _doomed_run(web, point, home=warm_home, dagster_home=home)
    web.drain()

    assert killed == -signal.SIGKILL
    web.assert_each_offset_once(produced)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert _dates_after_a_tick(web, instance) == {row["date"].isoformat() for row in web.found().rows}
    assert web.found().ghosts == []  # the tick removed what the dead try had left
    web.assert_each_offset_once(produced)


def _doomed_run(web: DrivenStream, point: str, *, home: Path, dagster_home: Path) -> int:
    environment = {**os.environ, "KDI_HOME": str(home), "KDI_LAKE": web.lake, "DAGSTER_HOME": str(dagster_home)}
    (dagster_home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    arguments = [web.stream.topic, web.stream.cluster.bootstrap_servers, point]
    command = [sys.executable, "-m", "tests.faults.doomed_run", *arguments]
    return subprocess.run(command, cwd=CHECKOUT, env=environment, timeout=180, check=False).returncode


def _dates_after_a_tick(web: DrivenStream, instance: dg.DagsterInstance) -> set[str]:
    """The dates that Dagster shows once the sensor has compared its events with the table's log."""
    # The run that was killed cannot say that it ended: Dagster's monitoring does that, which does not run here.
    for run in instance.get_runs():
        instance.report_run_failed(run)
    sensor = lag_sensor("main", [web.stream], look=look_at)
    table = stream_definitions(web.stream)
    defs = dg.Definitions.merge(table, dg.Definitions(sensors=[sensor], resources={"spark": SparkResource()}))
    context = dg.build_sensor_context(instance, definitions=defs, sensor_name=sensor.name)
    for event in defs.get_repository_def().get_sensor_def(sensor.name).evaluate_tick(context).asset_events:
        instance.report_runless_asset_event(event)
    return instance.get_materialized_partitions(table_key(web.stream))
