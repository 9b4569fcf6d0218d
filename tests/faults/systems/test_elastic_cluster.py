"""Drains by a Spark cluster whose executors come and go: dynamic allocation, and machines that announce their end."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kdi_assets.documents.model.stream import Cluster
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.drain import drain
from tests.conftest import TopicFactory
from tests.deployment.standalone import Standalone
from tests.driven import web_requests
from tests.faults.systems.cluster_driver import CONFIG, ClusterDriver, DrivenByCluster, drain_with_signal
from tests.kafka_log import Publisher
from tests.waiting import wait_until

GRACEFUL = "spark.decommission.enabled"
ELASTIC = {
    **CONFIG,
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
    GRACEFUL: "true",
}
"""What docs/clusters.md names, with times that a test can wait for."""
WORKERS = ("worker1", "worker2")


@pytest.fixture(scope="module")
def standalone(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master and two workers with one core each, which leave gracefully when they get SIGPWR."""
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-D{GRACEFUL}=true")
    cluster = Standalone(tmp_path_factory.mktemp("elastic"), home=settings.home, java_options=options)
    yield cluster
    cluster.stop()


@pytest.fixture
def web(
    standalone: Standalone, settings: Settings, topic: TopicFactory, cluster: Cluster, tmp_path: Path
) -> Iterator[DrivenByCluster]:
    """A stream that a driver of the cluster drains."""
    lake = str(tmp_path / "lake")
    there = replace(settings, spark_master=standalone.master, lake=lake)
    driver = ClusterDriver(there, config={**ELASTIC, "spark.local.dir": str(standalone.hidden)})

    def no_session() -> Any:
        raise AssertionError("the test process has no Spark")

    stream, publisher = web_requests(topic(4), cluster), Publisher(cluster.bootstrap_servers)
    yield DrivenByCluster(stream, lake, publisher, no_session, driver=driver)
    driver.stop()


def executors(standalone: Standalone) -> Callable[[], int]:
    """How many there are now."""
    return lambda: sum(standalone.executor(name) is not None for name in standalone.workers)


def test_executors_come_for_a_drain_and_leave_when_nothing_is_to_be_done(
    web: DrivenByCluster, standalone: Standalone
) -> None:
    """Procedure: twice: drain, and wait until the driver has given all executors back.
    Pass: an idle driver holds none, and the next drain ends, which it cannot without; every offset exactly once.
    """
    held = executors(standalone)
    web.produce(400, bad=0.1, seed=1)
    web.drain()

    wait_until(lambda: held() == 0, seconds=60)
    produced = web.produce(400, bad=0.1, tombstones=0.02, seed=2)
    report = web.drain()

    assert len(report.commits) == 1
    web.assert_each_offset_once(produced)
    assert web.audit().complete
    wait_until(lambda: held() == 0, seconds=60)


@pytest.mark.scenario("a machine of the cluster dies")
def test_a_drain_goes_on_when_a_machine_is_decommissioned_in_its_middle(
    web: DrivenByCluster, standalone: Standalone
) -> None:
    """Procedure: both workers have an executor; when a plan is made, one of the workers is told to go (SIGPWR), as
    before a spot instance is taken away; drain again, with more messages.
    Pass: the first drain ends with its commit; the executor has left by itself, and the machine
    gets no other; every offset exactly once.
    """
    web.produce(400, bad=0.1)
    assert web.driver
    web.driver.start(drain, web.stream, lake=web.lake)
    leaving, _ = standalone.await_executors(WORKERS)
    web.driver.result()
    web.produce(800, bad=0.1, tombstones=0.02, seed=2)

    worker = standalone.workers["worker1"].pid
    report = web.there(drain_with_signal, process=worker, number=signal.SIGPWR)
    wait_until(lambda: not leaving.is_running(), seconds=60)
    produced = web.produce(100, bad=0.1, seed=3)
    web.drain()
    held = [name for name in WORKERS if standalone.executor(name)]
    standalone.kill_worker("worker1")
    standalone.add_worker("worker1")

    assert held == ["worker2"]
    assert len(report.commits) == 1
    web.assert_each_offset_once(produced)
    assert web.audit().complete
