"""Drains by a Spark cluster that gives no executor, or loses all of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from kdi_assets.documents.model.stream import Cluster
from kdi_assets.follow.refine.row_counts import RowCounts
from kdi_assets.follow.refine.spark_errors import spark_failures
from kdi_assets.runtime import executors
from kdi_assets.runtime.errors import NoExecutors
from kdi_assets.settings import Settings
from tests.conftest import TopicFactory
from tests.deployment.standalone import Standalone
from tests.driven import web_requests
from tests.faults.systems.cluster_driver import (
    CONFIG,
    ClusterDriver,
    DrivenByCluster,
    drain_with_signal,
    no_session,
)
from tests.faults.systems.engine import ELASTIC
from tests.kafka_log import Publisher
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE, AGAIN = 10, 3
IN_VAIN = f"spark://.* gave Spark no executor within {PATIENCE} s: no worker is alive"


@pytest.fixture
def standalone(settings: Settings, tmp_path: Path) -> Iterator[Standalone]:
    """A master without workers."""
    folder = tmp_path / "standalone"
    folder.mkdir()
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    cluster = Standalone(folder, home=settings.home, workers=0, java_options=options)
    yield cluster
    cluster.stop()


@pytest.fixture
def impatient(
    standalone: Standalone, settings: Settings, topic: TopicFactory, cluster: Cluster, tmp_path: Path
) -> Iterator[Callable[..., DrivenByCluster]]:
    """Makes a stream that is drained by a driver which waits only for some seconds."""
    drivers: list[ClusterDriver] = []

    def make(**config: str) -> DrivenByCluster:
        lake = str(tmp_path / "lake")
        there = replace(settings, spark_master=standalone.master, lake=lake)
        config = {**CONFIG, "spark.local.dir": str(standalone.hidden), **config}
        drivers.append(ClusterDriver(there, config=config))
        drivers[-1].call(wait_only, PATIENCE, AGAIN)
        stream, publisher = web_requests(topic(4), cluster), Publisher(cluster.bootstrap_servers)
        return DrivenByCluster(stream, lake, publisher, no_session, drives=lambda: drivers[-1])

    yield make
    for driver in drivers:
        driver.stop()


def wait_only(seconds: int, again: int, *, session: Callable[[], SparkSession]) -> None:
    """Let sessions that are opened later wait only so long for an executor."""
    vars(executors).update(PATIENCE_SECONDS=seconds, SECONDS_AGAIN=again)


@pytest.mark.parametrize("config", [{}, ELASTIC], ids=["static", "dynamic allocation"])
def test_a_cluster_without_a_worker_is_an_error_within_a_bound_and_the_next_drain_goes_on_when_there_is_one(
    impatient: Callable[..., DrivenByCluster], standalone: Standalone, config: dict[str, str]
) -> None:
    """Purpose: without an executor, Spark's jobs wait for ever.
    Procedure: drain by a master without workers; add a worker and drain, with more patience; with dynamic allocation,
    once more after the driver gave its executor back.
    Pass: the first is an error that says what is missing, and leaves no file; the others commit every offset once.
    """
    web = impatient(**config)
    produced = web.produce(100)

    with pytest.raises(NoExecutors, match=IN_VAIN):
        web.drain()
    assert not [path for path in Path(web.lake).rglob("*") if path.is_file()]

    standalone.add_worker("worker1")
    web.driver.call(wait_only, 120, 120)
    web.drain()
    if config:
        wait_until(lambda: standalone.executor("worker1") is None, seconds=60)
        produced = web.produce(100, seed=2)
        web.drain()
    web.assert_each_offset_once(produced)


@pytest.mark.scenario("a machine of the cluster dies")
def test_a_drain_that_loses_all_executors_for_good_ends_and_its_driver_drains_on_when_there_is_one(
    impatient: Callable[..., DrivenByCluster], standalone: Standalone
) -> None:
    """Procedure: an executor is stopped (SIGSTOP) when a plan is made, so that its tasks do not end; when the other one
    has written a file, all workers and executors are killed (SIGKILL). Then add a worker, and drain by the same driver.
    Pass: the drain ends within the bound, with the error of the cluster, and without a version; the next one commits;
    every offset exactly once; the audit is complete.
    """
    for name in ("worker1", "worker2"):
        standalone.add_worker(name)
    web = impatient()
    web.produce(100)
    web.drain()
    version, before = web.version(), web.data_files()
    stopped, _ = (executor_on(standalone, name) for name in ("worker1", "worker2"))
    web.produce(800, bad=0.1, tombstones=0.02, seed=2)

    web.driver.start(drain_with_signal, web.stream, lake=web.lake, process=stopped.pid, number=signal.SIGSTOP)
    wait_until(lambda: bool(web.data_files() - before))
    for name in ("worker1", "worker2"):
        standalone.kill_worker(name)
    with pytest.raises(NoExecutors, match=IN_VAIN):
        web.driver.result()
    assert web.version() == version

    standalone.add_worker("worker1")
    web.driver.call(await_executors, 1)
    produced = web.produce(100, seed=3)
    web.drain()
    web.assert_each_offset_once(produced)
    assert web.audit().complete


def executor_on(standalone: Standalone, name: str) -> psutil.Process:
    """The executor of a worker, once it has one."""
    wait_until(lambda: standalone.executor(name) is not None, seconds=120)
    found = standalone.executor(name)
    assert found
    return found


def await_executors(number: int, *, session: Callable[[], SparkSession]) -> None:
    """Wait until so many executors have registered with the driver."""
    context: Any = session().sparkContext
    wait_until(lambda: context._jsc.sc().getExecutorIds().length() == number, seconds=60)


def test_each_job_waits_by_itself_and_those_after_one_in_vain_only_briefly(
    impatient: Callable[..., DrivenByCluster], standalone: Standalone
) -> None:
    """Purpose: runs share a driver; one that has just begun may get the machine that is starting, and a run of many
    streams must not wait for each of them.
    Procedure: a driver loses its only worker; two jobs, the second some seconds later; a third after both; then, with a
    worker, a fourth.
    Pass: the first two wait for the whole bound, each from its own beginning, the third briefly; the fourth runs.
    """
    standalone.add_worker("worker1")
    web = impatient()
    web.driver.call(rows_counted)
    standalone.kill_worker("worker1")

    both = web.driver.call(waits_of_two, apart=PATIENCE / 2)
    third = web.driver.call(wait_of_one)
    standalone.add_worker("worker1")
    web.driver.call(await_executors, 1)

    assert all(PATIENCE - 1 < waited < PATIENCE + 5 for waited in both), both
    assert AGAIN - 0.5 < third < PATIENCE - 1
    assert web.driver.call(rows_counted) == 10


def rows_counted(*, session: Callable[[], SparkSession]) -> int:
    """The result of a small job."""
    with spark_failures("silver/t", "counting rows"):
        return session().range(10, numPartitions=2).count()


def wait_of_one(*, session: Callable[[], SparkSession]) -> float:
    """How long a job waits until it is cancelled, in seconds."""
    began = time.monotonic()
    with pytest.raises(NoExecutors):
        rows_counted(session=session)
    return time.monotonic() - began


def waits_of_two(*, session: Callable[[], SparkSession], apart: float) -> list[float]:
    """The waits of two jobs at once, of which the second begins so many seconds later."""
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(wait_of_one, session=session)
        time.sleep(apart)
        second = threads.submit(wait_of_one, session=session)
        return [first.result(), second.result()]


def test_a_job_ends_even_if_the_cluster_cannot_be_asked_what_is_missing(
    impatient: Callable[..., DrivenByCluster], standalone: Standalone
) -> None:
    """Purpose: what fails while Kubernetes is asked about the pods would let the job wait for ever.
    Procedure: a driver loses its only worker; its context forgets its master, so that the question fails; a job.
    Pass: the job ends within the bound, with the error of the cluster.
    """
    standalone.add_worker("worker1")
    web = impatient()
    web.driver.call(rows_counted)
    standalone.kill_worker("worker1")

    web.driver.start(wait_of_one_without_master)

    wait_until(lambda: not web.driver.is_busy(), seconds=120)
    assert PATIENCE - 1 < web.driver.result() < PATIENCE + 5


def wait_of_one_without_master(*, session: Callable[[], SparkSession]) -> float:
    """As ``wait_of_one``, in a context that forgets its master."""
    context: Any = session().sparkContext
    context._jsc.sc().conf().remove("spark.master")
    return wait_of_one(session=session)


def test_rows_of_tasks_that_run_again_count_once(
    impatient: Callable[..., DrivenByCluster], standalone: Standalone
) -> None:
    """Purpose: a refinement counts rows before a shuffle; what an executor that is lost has kept of it is made again.
    Procedure: count rows before a shuffle, on one executor; once there is another one, kill (SIGKILL) the first, which
    holds data of the shuffle; read on.
    Pass: Spark's own count has some rows twice, so tasks did run again; ours has each once.
    """
    standalone.add_worker("worker1")
    web = impatient()
    web.driver.call(rows_counted)
    executor = executor_on(standalone, "worker1")

    web.driver.start(count_with_lost_executor, executor.pid)
    standalone.add_worker("worker2")
    rows, theirs, ours = web.driver.result()

    assert rows == (4_000, 4_000)
    assert theirs > 4_000
    assert ours == {0: 2_000, 1: 1_000}


def test_rows_of_tasks_that_run_again_in_their_stage_count_once(
    impatient: Callable[..., DrivenByCluster], standalone: Standalone
) -> None:
    """Purpose: then not even the number of the stage tells the second time from the first.
    Procedure: count rows before a shuffle, in tasks that take their time; when some of them have ended, kill (SIGKILL)
    their executor, in whose place the worker gets another one.
    Pass: Spark's own count has some rows twice, so tasks did run again; ours has each once.
    """
    standalone.add_worker("worker1")
    web = impatient()
    web.driver.call(rows_counted)

    executor = executor_on(standalone, "worker1")
    rows, theirs, ours = web.driver.call(count_with_executor_lost_in_the_middle, executor.pid)

    assert rows == 4_000
    assert theirs > 4_000
    assert ours == {0: 2_000, 1: 1_000}


def count_with_lost_executor(
    executor: int, *, session: Callable[[], SparkSession]
) -> tuple[tuple[int, int], int, dict[int, int]]:
    """Rows of both reads of a shuffle, with the loss in between; Spark's count, and ours by kind."""
    counting = Counting(session(), "CASE WHEN id % 2 = 0 THEN 0L WHEN id % 4 = 1 THEN 1L END")

    before = counting.shuffled.count()
    await_executors(2, session=session)
    os.kill(executor, signal.SIGKILL)
    after = counting.shuffled.count()

    return (before, after), counting.theirs(), counting.ours.by_kind()


def count_with_executor_lost_in_the_middle(
    executor: int, *, session: Callable[[], SparkSession]
) -> tuple[int, int, dict[int, int]]:
    """Rows of a shuffle, with the loss after two of its eight tasks; Spark's count, and ours by kind."""
    pause = "id % 500 = 0 AND reflect('java.lang.Thread', 'sleep', 500L) IS NULL"  # in each task once
    counting = Counting(session(), f"CASE WHEN {pause} THEN 2L WHEN id % 2 = 0 THEN 0L WHEN id % 4 = 1 THEN 1L END")
    status = session().sparkContext.statusTracker()

    def ended() -> int:
        stages = map(status.getStageInfo, status.getActiveStageIds())
        return sum(stage.numCompletedTasks for stage in stages if stage)

    with ThreadPoolExecutor(1) as threads:
        rows = threads.submit(counting.shuffled.count)
        wait_until(lambda: ended() >= 2)
        os.kill(executor, signal.SIGKILL)
        return rows.result(), counting.theirs(), counting.ours.by_kind()


class Counting:
    """Rows that are counted before a shuffle, by Spark and by us."""

    def __init__(self, spark: SparkSession, kind: str) -> None:
        from pyspark.sql import functions as F

        spark.conf.set("spark.sql.adaptive.enabled", "false")  # otherwise each read plans the shuffle again
        self.ours = RowCounts(spark)
        counted = self.ours.counting(spark.range(0, 4_000, 1, 8), kind)
        self._plan: Any = counted.observe("theirs", F.count("*").alias("rows")).repartition(4)._jdf.queryExecution()
        self.shuffled = self._plan.toRdd()

    def theirs(self) -> int:
        """Spark's count, once a job has ended."""
        return int(self._plan.observedMetrics().apply("theirs").getLong(0))
