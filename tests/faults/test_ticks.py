"""Ticks of the lag sensor over brokers that take connections and never answer."""

from __future__ import annotations

import socket
import time

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster._grpc.client import DEFAULT_SENSOR_GRPC_TIMEOUT

from kdi_assets.components.assets import stream_definitions
from kdi_assets.drain.look import look_at
from kdi_assets.sources import kafka
from kdi_assets.stream import KafkaCluster, Stream
from resources.spark import SparkResource
from sensors.lag import lag_sensor
from tests.conftest import DrivenFactory


def tick(stream: Stream) -> dg.SensorExecutionData:
    """A tick of the sensor of the stream's cluster."""
    sensor = lag_sensor(stream.cluster.name, [stream], look=look_at)
    shared = dg.Definitions(sensors=[sensor], resources={"spark": SparkResource()})
    defs = dg.Definitions.merge(stream_definitions(stream), shared)
    with DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance, definitions=defs, sensor_name=sensor.name)
        return defs.get_repository_def().get_sensor_def(sensor.name).evaluate_tick(context)


@pytest.mark.scenario("sensor daemon crashes, ticks are slow")
def test_brokers_that_take_connections_and_never_answer_cost_their_own_sensor_one_tick(
    driven: DrivenFactory, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: a tick that hung as long as its brokers do would be cut off by Dagster, and say nothing.
    Procedure: a cluster whose port takes connections and never answers, and one that works; both sensors tick.
    Pass: the first ends within its own limit, far below Dagster's, and says which cluster does not answer; the second
    requests its stream.
    """
    monkeypatch.setenv("KDI_LAKE", lake)
    assert 3 * kafka.REQUEST_SECONDS < DEFAULT_SENSOR_GRPC_TIMEOUT
    monkeypatch.setattr(kafka, "REQUEST_SECONDS", 2.0)  # the limit itself would only be waited for
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        mute = driven().with_definition(cluster=KafkaCluster(name="mute", bootstrap_servers=address))

        began = time.monotonic()
        said = tick(mute.stream)
        seconds = time.monotonic() - began
        served = tick(driven().stream)

    assert seconds < 3 * kafka.REQUEST_SECONDS
    assert not said.run_requests and address in (said.skip_message or "")
    assert len(served.run_requests or []) == 1
