"""A tick of ``lag_…`` or ``follow`` that finds nothing goes on looking, where a deployment's dagster.yaml lets it."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg
import pytest
from dagster import DagsterInstance

from kdi_assets.components.names import table_key
from kdi_assets.documents.model.stream import Stream
from kdi_assets.operate.monitoring.backlog import Backlog
from kdi_assets.sensors import waiting
from tests.dagster.follow_ticks import Sensor
from tests.dagster.refined_world import SILVER
from tests.dagster.sensors.scripted_cluster import ORDERS, Cluster

pytestmark = pytest.mark.usefixtures("lake_in_environment", "after_another_tick")


@pytest.fixture
def after_another_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dg.SensorEvaluationContext, "last_tick_completion_time", 1.0)
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.01)


class Arriving(Cluster):
    """Messages arrive before the third look."""

    looks = 0

    def look(self, streams: Sequence[Stream], *, lake: str) -> list[Backlog]:
        self.looks += 1
        self.waiting = {ORDERS.name: 5000} if self.looks == 3 else {}
        return super().look(streams, lake=lake)


def test_a_tick_of_lag_requests_what_arrives_while_it_waits(deployed: DagsterInstance) -> None:
    cluster = Arriving(deployed)
    assert cluster.tick().asset_events, "observations of the topics: a tick that logs something ends"
    cluster.looks = 0

    (request,) = cluster.tick().run_requests or []

    assert (request.asset_selection, cluster.looks) == ([table_key(ORDERS)], 3)


def test_a_tick_of_follow_requests_what_is_committed_while_it_waits(deployed: DagsterInstance) -> None:
    sensor = Sensor(deployed, tables=(SILVER,))
    sensor.during = lambda *_: sensor.behind.update({SILVER.name} if sensor.reads == 2 else ())

    (request,) = sensor.tick()

    assert (request.asset_selection, sensor.reads) == ([table_key(SILVER)], 3)
