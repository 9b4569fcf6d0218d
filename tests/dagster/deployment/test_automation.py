"""Sensors and schedules are on only where the deployment says so, and the UI says why they are off."""

from __future__ import annotations

import logging
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster._core.test_utils import create_test_daemon_workspace_context
from dagster._daemon.sensor import execute_sensor_iteration

from demo.parts import BIN
from kdi_assets.components.names import table_key
from kdi_assets.definitions import defs
from kdi_assets.documents.loading.loader import read_streams
from kdi_assets.runtime.processes import Child
from kdi_assets.sensors.default_status import OFF
from kdi_assets.sensors.new_topics import new_topic_sensors
from kdi_assets.tools.local.broker import free_port
from tests.conftest import CHECKOUT
from tests.documents import CLUSTER, TOPIC_TABLES, stream, written
from tests.faults.systems.dagster_site import LOCATION, code_server, listens
from tests.table_by_hand import TOPIC, TableByHand, orders
from tests.waiting import wait_until

PATTERN = f"""{TOPIC_TABLES}
attributes: {{name: s, topics: {{pattern: 's.*'}}, table: 'bronze/{{topic}}', schema: id bigint, date: current_date()}}
"""
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


@pytest.mark.parametrize(("automation", "status"), [("off", STOPPED), ("on", ON)])
def test_the_sensor_of_new_topics_is_on_where_the_others_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, automation: str, status: set[object]
) -> None:
    folder = written(tmp_path, kafka=CLUSTER, shop=PATTERN)
    monkeypatch.setenv("KDI_AUTOMATION", automation)

    (sensor,) = new_topic_sensors(folder, read_streams(folder))

    assert sensor.default_status in status
    assert (sensor.description or "").startswith(OFF) == (automation == "off")


def test_a_code_location_does_not_load_with_a_value_that_is_neither_on_nor_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDI_AUTOMATION", "true")

    with pytest.raises(ValueError, match="KDI_AUTOMATION is 'true'; it takes on or off"):
        defs()


@pytest.mark.parametrize("automation", ["off", "on"])
def test_a_second_instance_on_the_lake_logs_no_event_and_has_no_tick_unless_it_is_on(
    instance: DagsterInstance, lake: str, tmp_path: Path, automation: str
) -> None:
    """Dagster's own daemon over a code server. The table has a commit without an event, which a sensor would log."""
    TableByHand(lake).drain()
    cluster = 'type: kdi_assets.components.KafkaCluster\nattributes: {name: main, bootstrap_servers: "127.0.0.1:1"}\n'
    document = stream("bronze/orders").replace("topic: t,", f"topic: {TOPIC},")
    folder = written(tmp_path / "defs", kafka=cluster, orders=document)
    port = free_port()
    variables = {"KDI_DEFS": str(folder), "KDI_LAKE": lake, "KDI_AUTOMATION": automation, "PYTHONPATH": str(CHECKOUT)}
    command: list[str | Path] = [BIN / "dagster", "api", "grpc", "-m", "kdi_assets.definitions"]
    command += ["-p", str(port), "--location-name", LOCATION]

    server = Child(command, environment=variables, log=tmp_path / "code server")
    try:
        wait_until(lambda: listens(port) or server.exit_code() is not None, seconds=120)
        with create_test_daemon_workspace_context(code_server(port), instance) as workspace:
            list(execute_sensor_iteration(workspace, logging.getLogger("ticks"), None, None))
    finally:
        server.stop()

    logged = instance.fetch_materializations(table_key(orders()), limit=10).records
    states = instance.all_instigator_state()
    ticks = [tick for state in states for tick in instance.get_ticks(state.instigator_origin_id, state.selector_id)]
    assert (len(logged), bool(ticks)) == ((1, True) if automation == "on" else (0, False))
    assert instance.get_runs_count() == 0
