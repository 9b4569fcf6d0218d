"""One tick of the lag sensor against a real instance: what it requests, what it does not, what it says."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from threading import Timer
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance

from kdi_assets.components.names import table_key, topic_key
from kdi_assets.components.table_run import REQUESTED_TAG
from kdi_assets.documents.model.stream import DateWindow
from kdi_assets.errors import KdiError
from kdi_assets.messages.kafka.errors import TopicMissing
from kdi_assets.runtime.driver.control import only_driver
from kdi_assets.runtime.driver.drivers import driver_folder
from kdi_assets.sensors.observe import OBSERVE_SECONDS, Observations
from kdi_assets.sensors.requests import LANES
from tests.dagster.fakes import UNREACHABLE, a_stream, range_tags, today, unfinished_run
from tests.dagster.sensors.scripted_cluster import ORDERS, PAYMENTS, Cluster

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("lake_in_environment")]


def requested(data: dg.SensorExecutionData) -> list[list[str]]:
    """The tables of each run request."""
    return [[key.to_user_string() for key in r.asset_selection or ()] for r in data.run_requests or ()]


@pytest.fixture
def cluster(instance: DagsterInstance) -> Cluster:
    return Cluster(instance)


def test_a_tick_requests_exactly_the_lagging_streams_in_one_run_and_an_idle_one_says_why_not(cluster: Cluster) -> None:
    cluster.waiting = {"bronze/orders": 41, "bronze/clicks": 999}
    idle = cluster.tick()
    cluster.waiting = {"bronze/orders": 5000, "bronze/clicks": 10, "bronze/payments": 9000}

    (request,) = cluster.tick().run_requests or []

    assert requested(idle) == []
    assert idle.skip_message == "nothing due; largest backlog: bronze/clicks 999 offsets, 2 s"
    assert list(request.asset_selection or ()) == [table_key(PAYMENTS), table_key(ORDERS)]
    assert request.partition_key == datetime.now(UTC).date().isoformat()
    assert request.tags["kdi/streams"] == "bronze/payments,bronze/orders"
    assert request.tags["kdi/backlog"] == "14000"
    assert datetime.fromisoformat(request.tags[REQUESTED_TAG]).date().isoformat() == request.partition_key


def test_a_tick_requests_as_many_runs_as_drivers_can_take_if_runs_use_them(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDI_HOME", str(tmp_path))
    cluster.waiting = dict.fromkeys(("bronze/orders", "bronze/clicks", "bronze/payments"), 1_000_000)

    with only_driver(driver_folder(tmp_path, 1)), only_driver(driver_folder(tmp_path, 2)):
        monkeypatch.setenv("KDI_DRIVER", "own")
        own = cluster.tick()
        cluster.cursor = None
        monkeypatch.setenv("KDI_DRIVER", "shared")
        shared = cluster.tick()

    assert [len(requested(own)), len(requested(shared))] == [LANES, 3]


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (
            TopicMissing(cluster="main", topic="payments", bootstrap_servers="b:1"),
            "Kafka cluster main (b:1) has no topic 'payments'. The next tick asks again ",
        ),
        (UNREACHABLE, ""),
    ],
)
def test_a_broken_topic_or_broker_costs_its_own_line_and_not_the_tick_and_is_asked_again(
    cluster: Cluster, refusal: KdiError, said: str
) -> None:
    cluster.waiting = {"bronze/orders": 5000, "bronze/payments": 5000}
    cluster.refusals = {"bronze/payments": refusal}

    assert requested(cluster.tick()) == [["bronze/orders"]]

    cluster.waiting = {}
    reason = cluster.tick().skip_message or ""
    assert reason.splitlines()[1].startswith(f"bronze/payments: {said}")
    cluster.refusals, cluster.waiting = {}, {"bronze/payments": 5000}
    assert requested(cluster.tick()) == [["bronze/payments"]]


@pytest.mark.scenario("run queue lost, a run requested twice")
@pytest.mark.parametrize("status", ["NOT_STARTED", "CANCELING"])
@pytest.mark.parametrize("how", [{"selected": True}, {"selected": False}, {"letters": True}])
def test_a_stream_in_flight_is_left_out_however_its_run_was_started(
    cluster: Cluster, status: str, how: dict[str, Any]
) -> None:
    cluster.waiting = {"bronze/orders": 5000, "bronze/clicks": 5000}
    run = unfinished_run(cluster.instance, ORDERS, status=status, **how)

    assert requested(cluster.tick()) == [["bronze/clicks"]]
    cluster.waiting["bronze/clicks"] = 0
    said = cluster.tick().skip_message or ""
    assert f"in flight: bronze/orders 5,000 offsets, 2 s, run {run.run_id[:8]} for" in said


@pytest.mark.parametrize(("status", "drained"), [("QUEUED", True), ("STARTED", False)])
def test_a_backfill_that_waits_for_another_one_holds_no_drain_back(
    cluster: Cluster, status: str, drained: bool
) -> None:
    """A backfill of a year of another table may run before it, for hours."""
    cluster.waiting = {"bronze/orders": 5000}
    tags = {"dagster/backfill": "some", **range_tags(today(), today())}
    unfinished_run(cluster.instance, ORDERS, status=status, tags=tags)

    assert bool(requested(cluster.tick())) is drained


def test_a_tick_waits_for_a_run_to_end_and_requests_what_came_meanwhile(instance: DagsterInstance) -> None:
    """The next one begins up to five seconds later; without the wait that would be half of a message's latency."""
    cluster = Cluster(instance, waiting={"bronze/orders": 5000}, wait_seconds=60.0)
    run = unfinished_run(instance, ORDERS, status="STARTED", selected=True)
    ending = Timer(0.3, instance.report_run_canceled, [run])
    ending.start()

    assert requested(cluster.tick()) == [["bronze/orders"]]
    ending.join()


def test_a_tick_waits_no_longer_than_told_and_not_at_all_where_something_is_due(instance: DagsterInstance) -> None:
    cluster = Cluster(instance, waiting={"bronze/orders": 5000}, wait_seconds=1.2)
    unfinished_run(instance, ORDERS, status="STARTED", selected=True)

    assert "in flight: bronze/orders" in (cluster.tick().skip_message or "")
    impatient = Cluster(instance, waiting={"bronze/orders": 5000, "bronze/clicks": 5000}, wait_seconds=3600.0)
    assert requested(impatient.tick()) == [["bronze/clicks"]]


def test_streams_of_different_date_windows_share_a_run(cluster: Cluster) -> None:
    other = a_stream("bronze/late", date_window=DateWindow(start=date(2024, 1, 1)))
    cluster = Cluster(cluster.instance, (ORDERS, other))
    cluster.waiting = {"bronze/orders": 5000, "bronze/late": 7000}

    data = cluster.tick()

    assert requested(data) == [["bronze/late", "bronze/orders"]]
    (request,) = data.run_requests or []
    assert cluster.carry_out(request) == {"bronze/late", "bronze/orders"}


def test_a_stream_whose_dates_do_not_include_today_is_said_and_does_not_fail_the_tick(cluster: Cluster) -> None:
    begins = today() + timedelta(days=30)
    early = a_stream("bronze/early", date_window=DateWindow(start=begins))
    cluster = Cluster(cluster.instance, (ORDERS, early))
    cluster.waiting = {"bronze/early": 7000}

    data = cluster.tick()
    cluster.waiting["bronze/orders"] = 5000

    assert f"bronze/early: its date window begins on {begins}" in (data.skip_message or "")
    assert requested(cluster.tick()) == [["bronze/orders"]]


def test_a_topic_that_changed_is_observed_once_for_all_its_readers(cluster: Cluster) -> None:
    second = a_stream("bronze/orders_again", topic="orders")
    cluster = Cluster(cluster.instance, (ORDERS, second))
    cluster.waiting = {"bronze/orders": 50, "bronze/orders_again": 50}

    (observation,) = cluster.tick().asset_events

    assert isinstance(observation, dg.AssetObservation)
    assert observation.asset_key == topic_key(ORDERS.kafka, "orders")
    assert observation.metadata["end_offsets"].value == {"orders/0": 50}
    assert observation.metadata["backlog of bronze/orders_again"].value == 50


def test_a_topic_is_observed_on_change_and_not_at_every_tick(cluster: Cluster) -> None:
    observations, streams = Observations(), {s.name: s for s in cluster.streams}

    def told(at: float, **waiting: int) -> list[str]:
        cluster.waiting = {f"bronze/{name}": offsets for name, offsets in waiting.items()}
        events = observations.due(cluster.look(cluster.streams, lake=""), streams, now=at)
        return [event.asset_key.path[-1] for event in events]

    first, soon = told(1000.0, orders=1), told(1005.0, orders=2)
    later, unchanged = told(1000.0 + OBSERVE_SECONDS, orders=2), told(1000.0 + 9 * OBSERVE_SECONDS, orders=2)

    assert (first, soon, later, unchanged) == (["orders", "clicks", "payments"], [], ["orders"], [])
