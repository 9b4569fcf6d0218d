"""Ticks of the lag sensor, and what becomes of their requests: a queue that is lost, brokers that never answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster._grpc.client import DEFAULT_SENSOR_GRPC_TIMEOUT
from pyspark.sql import SparkSession

from kdi_assets.components.assets import stream_definitions
from kdi_assets.components.names import table_key
from kdi_assets.drain.look import look_at
from kdi_assets.settings import Settings
from kdi_assets.sources import kafka
from kdi_assets.stream import DrainWhen, KafkaCluster
from resources.spark import SparkResource
from sensors.lag import lag_sensor
from sensors.memory import Memories, read_cursor, write_cursor
from sensors.policy import FIRST_WAIT_SECONDS
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream
from tests.faults.dagster_site import INSTANCE, dates_of

scenario = pytest.mark.scenario


@dataclass
class Location:
    """A code location in the test's own process."""

    instance: DagsterInstance
    webs: dict[str, DrivenStream]
    cursor: str | None = None

    def definitions(self) -> dg.Definitions:
        tables = [stream_definitions(web.stream) for web in self.webs.values()]
        sensors = [lag_sensor(cluster, [web.stream], look=look_at) for cluster, web in self.webs.items()]
        return dg.Definitions.merge(
            *tables,
            dg.Definitions(sensors=sensors, resources={"spark": SparkResource()}, executor=dg.in_process_executor),
        )

    def tick(self, cluster: str = "main", *, cursor: str | None = None) -> dg.SensorExecutionData:
        defs = self.definitions()
        context = dg.build_sensor_context(
            self.instance, cursor=cursor or self.cursor, definitions=defs, sensor_name=f"lag_{cluster}"
        )
        data = defs.get_repository_def().get_sensor_def(f"lag_{cluster}").evaluate_tick(context)
        for event in data.asset_events:
            self.instance.report_runless_asset_event(event)
        self.cursor = data.cursor
        return data

    def queue(self, request: dg.RunRequest) -> dg.DagsterRun:
        """The run of a request, as it waits to be launched."""
        return self.instance.create_run_for_job(
            self.definitions().resolve_implicit_global_asset_job_def(),
            status=dg.DagsterRunStatus.NOT_STARTED,
            asset_selection=frozenset(request.asset_selection or ()),
            tags={**request.tags, "dagster/partition": request.partition_key or ""},
        )

    def carry_out(self, request: dg.RunRequest) -> bool:
        """A run of the request; whether it succeeded."""
        assets = [a for a in self.definitions().assets or () if isinstance(a, dg.AssetsDefinition)]
        return dg.materialize(
            assets,
            selection=dg.AssetSelection.assets(*request.asset_selection or ()).without_checks(),
            resources={"spark": SparkResource()},
            instance=self.instance,
            partition_key=request.partition_key,
            tags=dict(request.tags),
        ).success


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    home = tmp_path / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text(INSTANCE)
    with DagsterInstance.from_config(str(home)) as instance:
        yield instance


@pytest.fixture
def in_own_jvm(spark: SparkSession, settings: Settings, lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in the test's process work in its JVM, on its lake."""
    for name, value in (("KDI_HOME", str(settings.home)), ("KDI_DRIVER", "own"), ("KDI_LAKE", lake)):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("KDI_SPARK_MASTER", raising=False)


@scenario("run queue lost, a run requested twice")
@scenario("the same range run twice")
@pytest.mark.usefixtures("in_own_jvm")
def test_a_lost_queue_is_requested_again_and_a_request_carried_out_again_finds_nothing(
    driven: DrivenFactory, instance: DagsterInstance
) -> None:
    """Purpose: queued runs may be deleted with Dagster's database, and come back with its copy.
    Procedure: a tick requests a run, which is queued; the daemon forgets its cursor and ticks again; the queued run is
    deleted; it ticks again, at once and after the first wait; the request is carried out, and the lost one behind it.
    Pass: no second request while the first is queued, or right after it; then one; the second run of the same range
    ends well and commits nothing; every offset exactly once.
    """
    web = driven(partitions=2, drain_when=DrainWhen(backlog_messages=1, lag_seconds=3600))
    produced = web.produce(60, bad=0.1)
    location = Location(instance, {"main": web})

    (lost,) = location.tick().run_requests or []
    cursor = location.cursor
    queued = location.queue(lost)
    while_queued = location.tick(cursor="{}").run_requests
    instance.delete_run(queued.run_id)
    at_once = location.tick(cursor=cursor)
    (again,) = location.tick(cursor=later(at_once.cursor, FIRST_WAIT_SECONDS)).run_requests or []
    ended = [location.carry_out(again), location.carry_out(lost)]

    assert (while_queued, at_once.run_requests) == ([], [])
    assert "the last run moved no position" in (at_once.skip_message or "")
    assert ended == [True, True]
    assert len(web.audit().notes) == 0 and web.drain().commits == ()
    assert instance.get_materialized_partitions(table_key(web.stream)) == dates_of(web)
    web.assert_each_offset_once(produced)


def later(cursor: str | None, seconds: float) -> str:
    """The cursor as it reads when so much time has passed."""
    kept = read_cursor(cursor)
    earlier = {s: replace(m, requested_at=m.requested_at - seconds - 1) for s, m in kept.streams.items()}
    return write_cursor(Memories(earlier))


@scenario("sensor daemon crashes, ticks are slow")
@pytest.mark.usefixtures("in_own_jvm")
def test_brokers_that_take_connections_and_never_answer_cost_their_own_sensor_one_tick(
    driven: DrivenFactory, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: a tick that hung as long as its brokers do would be cut off by Dagster, and say nothing.
    Procedure: a cluster whose port takes connections and never answers, and one that works; both sensors tick.
    Pass: the first ends within its own limit, far below Dagster's, and says which cluster does not answer; the second
    requests its stream.
    """
    assert 3 * kafka.REQUEST_SECONDS < DEFAULT_SENSOR_GRPC_TIMEOUT
    monkeypatch.setattr(kafka, "REQUEST_SECONDS", 2.0)  # the limit itself would only be waited for
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        port = silent.getsockname()[1]
        mute = driven().with_definition(cluster=KafkaCluster(name="mute", bootstrap_servers=f"127.0.0.1:{port}"))
        location = Location(instance, {"mute": mute, "main": driven()})

        began = time.monotonic()
        said = location.tick("mute")
        seconds = time.monotonic() - began
        served = location.tick("main")

    assert seconds < 3 * kafka.REQUEST_SECONDS
    assert not said.run_requests and f"127.0.0.1:{port}" in (said.skip_message or "")
    assert len(served.run_requests or []) == 1
