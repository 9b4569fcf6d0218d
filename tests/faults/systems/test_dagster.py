"""Drains when Dagster's processes crash, are slow, run twice or are replaced: daemon, code server, run.

All are real; Dagster's own crash points and holds force the failures.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster._grpc.client import DEFAULT_SENSOR_GRPC_TIMEOUT
from pyspark.sql import SparkSession

from kdi_assets.components.table_asset import stream_definitions
from kdi_assets.documents.model.stream import Cluster, Stream
from kdi_assets.messages.kafka import topic as kafka
from kdi_assets.messages.source import REQUEST_SECONDS
from kdi_assets.operate.monitoring.backlog_reader import read_backlogs
from kdi_assets.resources.spark import SparkResource
from kdi_assets.sensors.lag import lag_sensor
from kdi_assets.tools.local.broker import Broker
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream
from tests.faults.systems.dagster_site import (
    RUN_LAUNCHED,
    RUN_MADE,
    RUNS_RESERVED,
    TICK_MADE,
    Site,
    dates_of,
    open_site,
    sensor_name,
)
from tests.faults.systems.held_location import held_stream
from tests.faults.warm_driver import WarmDriver
from tests.kafka_log import Publisher
from tests.waiting import wait_until

scenario = pytest.mark.scenario
TOPICS = ("daemon", "twice", "reload", "terminate")


@pytest.fixture(scope="module")
def site(broker: Broker, local_driver: WarmDriver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One for the tests of this file; each has its own stream in it."""
    folder = tmp_path_factory.mktemp("site")
    kafka, home = broker.bootstrap_servers, local_driver.home
    with open_site(folder, TOPICS, bootstrap_servers=kafka, driver_home=home) as site:
        yield site


@pytest.fixture
def of_site(site: Site, producer: Publisher, spark: SparkSession) -> Callable[[str], DrivenStream]:
    """A stream of the site, by the last part of its name."""

    def find(name: str) -> DrivenStream:
        return DrivenStream(held_stream(site.topic(name), site.kafka), site.lake, producer, lambda: spark)

    return find


@scenario("sensor daemon crashes, ticks are slow", "run queue lost, a run requested twice")
def test_a_daemon_that_dies_at_every_step_of_a_tick_starts_the_run_once(
    site: Site, of_site: Callable[[str], DrivenStream]
) -> None:
    """Purpose: between a tick, its requests, its runs and its cursor a daemon may die; the next one reads what it left.
    Procedure: messages wait; a daemon is killed (SIGKILL) when the tick is made, another one when the ids of runs are
    reserved, the next when the run is made and not launched, the next when it is launched and the cursor not stored;
    then one ticks undisturbed until nothing is due.
    Pass: each died of the signal; one run was launched and succeeded; every offset exactly once; every date is shown.
    """
    web = of_site("daemon")
    produced = web.produce(60, bad=0.1)
    site.holds.watch(web.stream.topic)

    for point in (TICK_MADE, RUNS_RESERVED, RUN_MADE, RUN_LAUNCHED):
        assert site.daemon(sensor_name(web), point) == -signal.SIGKILL, point
    (run,) = site.runs(web)
    assert site.ended(run.run_id).is_success
    assert site.daemon() == 0

    assert len(site.runs(web)) == 1
    assert site.dates(web) == dates_of(web)
    web.assert_each_offset_once(produced)


@scenario("run queue lost, a run requested twice", "the same range run twice", "two drivers at once")
def test_a_request_that_is_run_twice_at_once_drains_once(site: Site, of_site: Callable[[str], DrivenStream]) -> None:
    """Purpose: the promise must not depend on Dagster's pools or queue.
    Procedure: the same request is launched twice, without pools; both workers are held after they have planned and
    before they read; both go on.
    Pass: both runs end well, or the loser says that another drain is active; one commit; every offset exactly once.
    """
    web = of_site("twice")
    produced = web.produce(60, bad=0.1)
    site.holds.hold(web.stream.topic, "before reading")

    runs = [site.launch(web), site.launch(web)]
    wait_until(lambda: site.holds.waiting(web.stream.topic, "before reading") == 2, seconds=120)
    site.holds.release(web.stream.topic, "before reading")
    ended = [site.ended(run_id) for run_id in runs]

    assert any(run.is_success for run in ended)
    for run in (r for r in ended if not r.is_success):
        failures = site.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
        assert "AnotherDrainActive" in str(failures)
    assert site.dates(web) == dates_of(web)
    web.assert_each_offset_once(produced)
    assert web.drain().commits == ()


@scenario("code location reloads during a run")
def test_a_run_goes_on_while_its_code_location_is_reloaded(site: Site, of_site: Callable[[str], DrivenStream]) -> None:
    """Purpose: a deployment replaces the code server under runs that it started.
    Procedure: a run is held between dead letters and commit; the location is reloaded, so that another process serves
    it; the run goes on; a second run is launched by the new server.
    Pass: both succeed, Dagster shows the dates of the table; every offset exactly once.
    """
    web = of_site("reload")
    web.produce(60, bad=0.1)
    site.holds.hold(web.stream.topic, "dead letters written")
    first = site.launch(web)
    wait_until(lambda: site.holds.waiting(web.stream.topic, "dead letters written") == 1, seconds=120)
    before = server_id(site)

    site.workspace.reload_code_location("held")
    after = server_id(site)
    site.holds.release(web.stream.topic, "dead letters written")
    outcomes = [site.ended(first).is_success]
    produced = web.produce(60, bad=0.1, seed=1)
    outcomes.append(site.ended(site.launch(web)).is_success)

    assert before != after
    assert outcomes == [True, True]
    assert site.dates(web) == dates_of(web)
    web.assert_each_offset_once(produced)


def server_id(site: Site) -> str:
    """The name of the process that serves the code."""
    location = site.workspace.create_request_context().get_code_location("held")
    return str(location.server_id)  # type: ignore[attr-defined]


@scenario("killed between dead letters and commit")
def test_a_terminated_run_ends_as_canceled_and_the_next_completes_it(
    site: Site, of_site: Callable[[str], DrivenStream], warm_driver: WarmDriver
) -> None:
    """Purpose: "Terminate" in the UI sends SIGTERM to the run worker, where Dagster handles it.
    Procedure: a run is held between dead letters and commit, and terminated there; another one is launched.
    Pass: the first ends as canceled, committed nothing and leaves nothing attached to the driver; the second succeeds;
    every offset exactly once.
    """
    web = of_site("terminate")
    produced = web.produce(60, bad=0.3)
    site.holds.hold(web.stream.topic, "dead letters written")
    first = site.launch(web)
    wait_until(lambda: site.holds.waiting(web.stream.topic, "dead letters written") == 1, seconds=120)

    assert site.instance.run_launcher.terminate(first)
    status = site.ended(first).status
    warm_driver.wait_until_nobody_is_attached()
    committed = web.found().rows
    site.holds.release(web.stream.topic, "dead letters written")
    second = site.ended(site.launch(web))

    assert (status, committed) == (dg.DagsterRunStatus.CANCELED, [])
    assert second.is_success
    assert len(web.found().ghosts) == len(web.found().dead_letters) > 0
    web.assert_each_offset_once(produced)


@scenario("sensor daemon crashes, ticks are slow")
def test_brokers_that_take_connections_and_never_answer_cost_their_own_sensor_one_tick(
    driven: DrivenFactory, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: Dagster would cut off a tick that hangs as long as its brokers do, and the tick would say nothing.
    Procedure: a cluster whose port accepts connections and never answers, and one that works; both sensors tick.
    Pass: the first ends within its own limit, far below Dagster's, and names the cluster that does not answer; the
    second requests its stream.
    """
    monkeypatch.setenv("KDI_LAKE", lake)
    assert 3 * REQUEST_SECONDS < DEFAULT_SENSOR_GRPC_TIMEOUT
    monkeypatch.setattr(kafka, "REQUEST_SECONDS", 2.0)  # a test of the limit would only wait for it
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        mute = driven().with_definition(cluster=Cluster(name="mute", bootstrap_servers=address))

        began = time.monotonic()
        said = tick(mute.stream)
        seconds = time.monotonic() - began
        served = tick(driven().stream)

    assert seconds < 3 * 2.0
    assert not said.run_requests and address in (said.skip_message or "")
    assert len(served.run_requests or []) == 1


def tick(stream: Stream) -> dg.SensorExecutionData:
    """A tick of the sensor of the stream's cluster."""
    sensor = lag_sensor(stream.cluster.name, [stream], read_backlogs=read_backlogs)
    shared = dg.Definitions(sensors=[sensor], resources={"spark": SparkResource()})
    defs = dg.Definitions.merge(stream_definitions(stream), shared)
    with DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance, definitions=defs, sensor_name=sensor.name)
        return defs.get_repository_def().get_sensor_def(sensor.name).evaluate_tick(context)
