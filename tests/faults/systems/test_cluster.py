"""Drains by a real Spark cluster, whose executors see nothing of the driver's disk but the lake."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kdi_assets.documents.model.stream import OffsetRange
from kdi_assets.messages.coordinates import digest_of
from kdi_assets.runtime.errors import LakeNotShared
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.drain import drain
from kdi_assets.streams.spark_errors import WorkerPythonUnfit
from kdi_assets.tools.local.s3_server import S3Server
from tests.conftest import CHECKOUT
from tests.deployment.standalone import Standalone
from tests.driven import AS_DECODED
from tests.faults.systems.cluster_driver import (
    CONFIG,
    DrivenByCluster,
    drain_with_signal,
    judge_with_lost_executor,
    seen_by_executors,
)
from tests.faults.systems.engine import ELASTIC, Engine
from tests.faults.systems.engine_contract import *  # noqa: F403
from tests.faults.systems.engine_contract import (
    test_a_cluster_drains_refines_serves_replays_and_audits,
    test_a_drain_goes_on_when_an_executor_ends_in_its_middle,
    test_a_driver_that_is_killed_leaves_nothing_half_done,
)
from tests.faults.systems.in_python import IN_PYTHON
from tests.waiting import wait_until

GRACEFUL = "spark.decommission.enabled"
STAYING = {**ELASTIC, "spark.dynamicAllocation.executorIdleTimeout": "600s"}
"""With dynamic allocation, and no executor leaves during a test because it has nothing to do."""
DAEMONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-D{GRACEFUL}=true")
ON_S3_TOO = (
    test_a_cluster_drains_refines_serves_replays_and_audits,
    test_a_drain_goes_on_when_an_executor_ends_in_its_middle,
    test_a_driver_that_is_killed_leaves_nothing_half_done,
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What depends on the storage is tested once more with tables in a bucket."""
    if metafunc.function in ON_S3_TOO:
        metafunc.parametrize("lake_in", ["folder", "s3"])


class OnStandalone(Engine):
    """A master and two workers with one core each.

    Drivers have temporary files where no executor sees them, and S3's client; the workers' machines have its
    credentials, and leave gracefully when they get SIGPWR.
    """

    room_for_several = False

    def __init__(self, folder: Path, settings: Settings, s3_server: S3Server) -> None:
        keys = {name: value for name, value in s3_server.environment().items() if "KEY" in name}
        self.cluster = Standalone(folder, home=settings.home, java_options=DAEMONS, environment=keys)
        there = replace(settings, spark_master=self.cluster.master, lake="s3://tests")
        super().__init__(there, s3_server.environment())

    def config(self) -> dict[str, str]:
        return {**CONFIG, "spark.local.dir": str(self.cluster.hidden), GRACEFUL: "true"}

    def executors(self) -> list[int]:
        return list(self.by_worker().values())

    def by_worker(self) -> dict[str, int]:
        """The process id of the executor of each worker that has one."""
        found = ((name, self.cluster.executor(name)) for name in self.cluster.workers)
        return {name: executor.pid for name, executor in found if executor}

    def end_executor(self, process: int, how: str) -> None:
        (name,) = (name for name, executor in self.by_worker().items() if executor == process)
        self.replace_worker(name)

    def replace_worker(self, name: str) -> None:
        """Kill a worker (SIGKILL), with its executor, and start another one."""
        self.cluster.kill_worker(name)
        self.cluster.add_worker(name)


@pytest.fixture(scope="module")
def engine(settings: Settings, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnStandalone]:
    """The cluster."""
    engine = OnStandalone(tmp_path_factory.mktemp("standalone"), settings, s3_server)
    yield engine
    engine.stop_driver()
    engine.cluster.stop()


@pytest.fixture
def lake(request: pytest.FixtureRequest, lake_in: str, tmp_path: Path) -> str:
    """The root of the tables of one test: a folder that the workers see, or a bucket."""
    if lake_in == "s3":
        return f"{request.getfixturevalue('bucket')}/lake"
    return str(tmp_path / "lake")


def test_executors_see_nothing_of_the_drivers_disk(engine: OnStandalone) -> None:
    """Purpose: otherwise these tests would not show what Spark alone brings to other machines.
    Procedure: look from Python on each executor for our jars, our package and the driver's temporary files.
    Pass: both workers have an executor, and none finds any of them.
    """
    jars, probe = CHECKOUT / ".kdi" / "jars" / "spark", engine.cluster.hidden / "probe"
    probe.write_text("")
    assert jars.is_dir()

    seen = engine.driver().call(seen_by_executors, [str(jars), str(probe)])

    assert {each.found for each in seen} == {""}
    assert {Path(each.folder).parts[-4] for each in seen} == {"worker1", "worker2"}


@pytest.mark.scenario("a machine of the cluster dies")
def test_messages_of_tasks_that_run_again_count_once(
    by_engine: Callable[..., DrivenByCluster], engine: OnStandalone
) -> None:
    """Purpose: Spark reports the counts of a task of a shuffle again if it runs again, and drains that limit the size
    of files have a shuffle.
    Procedure: judge messages before a shuffle; kill (SIGKILL) an executor that holds data of the shuffle; read on.
    Pass: all rows are there, and the pass counted every message once.
    """
    web = by_engine()
    web.produce(400)
    web.drain()
    executor, _ = engine.await_executors(2)

    rows, rows_again, counts = web.there(judge_with_lost_executor, executor=executor)

    assert (rows, rows_again) == (400, 400)
    assert (counts.messages, counts.became_rows) == (400, 400)
    assert counts.digest == digest_of([OffsetRange(web.tp(partition), 0, 100) for partition in range(4)])


@pytest.mark.scenario("a machine of the cluster dies")
@pytest.mark.parametrize("config", [{}, STAYING], ids=["static", "dynamic allocation"])
def test_a_drain_goes_on_when_a_machine_is_decommissioned_in_its_middle(
    by_engine: Callable[..., DrivenByCluster], engine: OnStandalone, config: dict[str, str]
) -> None:
    """Procedure: both workers have an executor; when a plan is made, one of the workers is told to go (SIGPWR), as
    before a spot instance is taken away; drain again, with more messages.
    Pass: the first drain ends with its commit; the executor has left by itself, and the machine gets no other; every
    offset exactly once.
    """
    with engine.other_driver(config) as driver:
        web = by_engine(driver=driver)
        web.produce(400, bad=0.1)
        driver.start(drain, web.stream, lake=web.lake)
        engine.await_executors(2)
        driver.result()
        leaving, staying = engine.by_worker()
        web.produce(800, bad=0.1, tombstones=0.02, seed=2)

        worker = engine.cluster.workers[leaving].pid
        report = web.there(drain_with_signal, process=worker, number=signal.SIGPWR)
        wait_until(lambda: engine.cluster.executor(leaving) is None)
        produced = web.produce(100, bad=0.1, seed=3)
        web.drain()
        held = list(engine.by_worker())
        still_there = engine.cluster.workers[leaving].exit_code() is None
        complete = web.audit().complete
    engine.replace_worker(leaving)

    assert still_there, "the executor ended with its worker"
    assert held == [staying]
    assert len(report.commits) == 1
    web.assert_each_offset_once(produced)
    assert complete


def test_a_lake_that_executors_do_not_see_is_refused_before_anything_is_written(
    by_engine: Callable[..., DrivenByCluster], engine: OnStandalone
) -> None:
    """Purpose: each executor would write to its own disk, and the commit would name files that nobody finds."""
    unshared = engine.cluster.hidden / "lake"

    with engine.other_driver(lake=str(unshared)) as driver:
        stream = by_engine(1, driver=driver, lake=str(unshared))
        stream.send(b"{}")
        with pytest.raises(LakeNotShared, match="does not see it: .*kdi-probe"):
            stream.drain()

    assert not list(unshared.rglob("*"))


@pytest.mark.parametrize("python", [str(Path(sys.base_prefix) / "bin" / "python3"), "/nowhere/python"])
def test_executors_without_the_python_that_a_format_needs_are_an_error_that_says_so(
    by_engine: Callable[..., DrivenByCluster], engine: OnStandalone, python: str
) -> None:
    """Purpose: a Python without our packages, or no Python, must not look like a broken message or a passing fault.
    Procedure: executors with that Python; drain Protobuf.
    Pass: a refusal that names PYSPARK_PYTHON, and nothing was committed; with the right Python, every message drains.
    """
    format_, encode, _ = IN_PYTHON["protobuf"]
    right = by_engine(**{**AS_DECODED, "format": format_})
    right.send(encode({"id": 1}))

    with (
        engine.other_driver(PYSPARK_PYTHON=python) as lacking,
        pytest.raises(WorkerPythonUnfit, match="PYSPARK_PYTHON"),
    ):
        replace(right, drives=lambda: lacking).drain()

    assert right.drain().rows_added == 1
