"""What a drain says, and leaves behind, when YARN or HDFS fails it, or when Spark's settings are wrong for YARN."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from kdi_assets.delta.errors import StorageUnanswered
from kdi_assets.documents.model.stream import Cluster, Stream
from kdi_assets.errors import Transient
from kdi_assets.operate.doctor.finding import Verdict
from kdi_assets.operate.doctor.storage import storage
from kdi_assets.operate.doctor.yarn_files import yarn_files
from kdi_assets.runtime.errors import ApplicationEnded, YarnDidNotStart, YarnNeedsOtherSettings, YarnRefused
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.drain import drain
from kdi_assets.streams.drain.report import DrainReport
from kdi_assets.streams.spark_errors import ReadOrWriteFailed
from tests.conftest import TopicFactory
from tests.driven import web_requests
from tests.faults.systems.cluster_driver import ClusterDriver, DrivenByCluster, drain_with_signal, no_session
from tests.faults.systems.test_yarn import ON_YARN, drain_impatiently, hadoop, lake  # noqa: F401
from tests.hadoop.mini_cluster import MiniCluster, tell
from tests.kafka_log import Publisher
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ON_THEIR_WAY = "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"
"""States of applications that have not ended."""
On = Callable[..., DrivenByCluster]


@pytest.fixture
def on_yarn(
    hadoop: MiniCluster,  # noqa: F811
    settings: Settings,
    topic: TopicFactory,
    cluster: Cluster,
    lake: str,  # noqa: F811
) -> Iterator[On]:
    """Makes a stream that is drained by a driver of its own, with these settings of Spark."""
    drivers: list[ClusterDriver] = []

    def make(*, at: MiniCluster = hadoop, **config: str) -> DrivenByCluster:
        root = lake.replace(hadoop.hdfs, at.hdfs)
        there = replace(settings, spark_master="yarn", lake=root)
        environment = {"HADOOP_CONF_DIR": str(at.configuration)}
        drivers.append(driver := ClusterDriver(there, config={**ON_YARN, **config}, environment=environment))
        stream, publisher = web_requests(topic(4), cluster), Publisher(cluster.bootstrap_servers)
        return DrivenByCluster(stream, root, publisher, no_session, drives=lambda: driver)

    yield make
    for driver in drivers:
        driver.stop()


def start_and_hold(web: DrivenByCluster, hadoop: MiniCluster) -> psutil.Process:  # noqa: F811
    """Start a drain whose first executor is stopped (SIGSTOP), so that the drain does not end by itself."""
    wait_until(lambda: len(hadoop.executors()) >= 2, seconds=120)
    held = hadoop.executors()[0]
    web.driver.start(drain_with_signal, web.stream, lake=web.lake, process=held.pid, number=signal.SIGSTOP)
    wait_until(lambda: held.status() == psutil.STATUS_STOPPED)
    return held


def test_an_application_that_yarn_ends_under_a_drain_is_an_error_with_yarns_words_and_the_next_drain_starts_another(
    on_yarn: On,
    hadoop: MiniCluster,  # noqa: F811
) -> None:
    """Purpose: Spark itself says "SparkContext was shut down", and every later drain of the process would fail.
    Procedure: in turn, in the middle of a drain: `yarn application -kill`; the application's master is killed
    (SIGKILL); again, by which the next application has lost both masters that YARN allows. Drain after each.
    Pass: killed and failed: the error names the application, its end and YARN's reason, and no version is made; the
    drain whose application lost one master ends well; every offset exactly once.
    """
    web = on_yarn()
    web.produce(20)
    web.drain()
    begun = web.version()

    web.produce(200, seed=2)
    start_and_hold(web, hadoop)
    (killed,) = hadoop.applications("RUNNING")
    hadoop.kill_application(killed)
    with pytest.raises(ApplicationEnded, match=f"(?s){killed} ended on yarn: KILLED: .*killed by user.*-applicationId"):
        web.driver.result()
    assert web.version() == begun
    web.drain()
    (failing,) = hadoop.applications("RUNNING")

    web.produce(200, seed=3)
    start_and_hold(web, hadoop)
    hadoop.application_masters()[0].kill()
    assert len(web.driver.result().commits) == 1
    begun = web.version()
    web.produce(200, seed=4)
    start_and_hold(web, hadoop)
    hadoop.application_masters()[0].kill()
    with pytest.raises(
        ApplicationEnded, match=f"{failing} ended on yarn: FAILED: .* failed 2 times due to AM Container"
    ):
        web.driver.result()
    assert web.version() == begun
    produced = web.produce(10, seed=5)
    web.drain()

    assert killed != failing != hadoop.applications(ON_THEIR_WAY)[0]
    web.assert_each_offset_once(produced)


@pytest.mark.parametrize(
    ("config", "said", "needs"),
    [
        ({"spark.yarn.queue": "nowhere"}, "unknown queue: nowhere", "spark.yarn.queue names a queue"),
        (
            {"spark.yarn.dist.archives": "hdfs:///venv.tar.gz#kdi"},
            "File does not exist: hdfs://.*/venv.tar.gz",
            "/venv.tar.gz is there, or spark.yarn.dist.archives names another",
        ),
        (
            {"spark.yarn.jars": "local:/no/jars/*"},
            "application_.* failed 2 times .*: Error: Could not find or load main class .*ExecutorLauncher",
            "spark.yarn.jars or spark.yarn.archive has Spark's jars",
        ),
        (
            {"spark.yarn.appMasterEnv.JAVA_HOME": "/no/java"},
            "application_.* failed 2 times .*/no/java/bin/java: No such file or directory",
            "spark.yarn.appMasterEnv.JAVA_HOME",
        ),
    ],
    ids=["queue", "file on HDFS", "jars", "java"],
)
def test_settings_with_which_spark_cannot_start_are_refused_for_good_with_the_containers_own_words(
    on_yarn: On,
    hadoop: MiniCluster,  # noqa: F811
    config: dict[str, str],
    said: str,
    needs: str,
) -> None:
    """Purpose: a retry of a run cannot help, and the reason is in the output of a container that has ended.
    Pass: an error that no retry follows says what YARN or the container said, and which setting is wrong; no
    application and no file of it is left.
    """
    web = on_yarn(**config)
    web.send(b"{}")

    with pytest.raises(YarnNeedsOtherSettings) as refused:
        web.drain()

    happened, _, run = refused.value.message_parts()
    assert re.search(said, happened), happened
    assert needs in run
    assert hadoop.applications(ON_THEIR_WAY) == []
    assert not web.data_files()


def test_a_container_larger_than_any_machine_that_runs_is_refused_and_a_retry_can_help(
    on_yarn: On,
    hadoop: MiniCluster,  # noqa: F811
) -> None:
    web = on_yarn(**{"spark.executor.memory": "9g"})
    web.send(b"{}")

    with pytest.raises(YarnRefused, match=r"Required executor memory \(9216 MB\).*that the running machines offer"):
        web.drain()

    assert hadoop.applications(ON_THEIR_WAY) == []
    assert not web.data_files()


def drain_telling(
    stream: Stream,
    *,
    lake: str,  # noqa: F811
    session: Callable[[], SparkSession],
    point: str,
    folder: Path,
    command: str,
) -> DrainReport:
    """Drain; at a point, let the cluster of a folder carry out a command."""

    def at(reached: str) -> None:
        if reached == point:
            tell(folder, command)

    return drain(stream, lake=lake, session=session, at=at)


@pytest.mark.parametrize(
    ("fails", "mended", "said", "point"),
    [
        ("enter safe mode", "leave safe mode", "(?i)safe mode", "before reading"),
        ("stop namenode", "start namenode", "(?i)connection refused|end of file", "files written"),
    ],
)
def test_an_hdfs_that_does_not_take_files_is_named_and_the_next_drain_commits(
    on_yarn: On,
    hadoop: MiniCluster,  # noqa: F811
    fails: str,
    mended: str,
    said: str,
    point: str,
) -> None:
    """Procedure: HDFS fails in the middle of a drain, before it reads or before its commit; drain again while it fails,
    by the same driver and by one that must start; drain once it is back.
    Pass: errors that a retry can help, which name what failed, and the first does not say whether the commit landed;
    every offset exactly once; no application waits.
    """
    web = on_yarn()
    web.produce(20)
    web.drain()
    begun = web.version()
    produced = web.produce(100, seed=2)
    other = replace(web, drives=on_yarn().drives)
    try:
        with pytest.raises(ReadOrWriteFailed, match=said):
            web.there(drain_telling, point=point, folder=hadoop.folder, command=fails)
        for each in (web, other):
            with pytest.raises(Transient, match=said):
                each.drain()
        with pytest.raises(StorageUnanswered, match=said):
            list(storage(web.lake))
    finally:
        tell(hadoop.folder, mended)
    assert web.version() == begun
    web.drain()

    web.assert_each_offset_once(produced)
    assert hadoop.waiting_applications() == []


def test_a_drain_ends_without_a_resource_manager_and_a_driver_that_must_start_waits_for_it_within_a_bound(
    on_yarn: On, settings: Settings, tmp_path: Path
) -> None:
    """Procedure: the ResourceManager stops in the middle of a drain; then a driver begins, with a patience of seconds.
    Pass: the drain commits, since its containers run on; the driver gives up, and says that nothing answers.
    """
    (tmp_path / "hadoop").mkdir()
    own = MiniCluster(tmp_path / "hadoop", settings)
    try:
        web = on_yarn(at=own)
        produced = web.produce(200)
        web.driver.call(no_rows)
        held = start_and_hold(web, own)
        tell(own.folder, "stop resourcemanager")
        held.send_signal(signal.SIGCONT)
        assert len(web.driver.result().commits) == 1
        web.assert_each_offset_once(produced)

        late = replace(web, drives=on_yarn(at=own).drives)
        web.produce(10, seed=2)
        with pytest.raises(YarnDidNotStart, match="within 20 s: the ResourceManager does not answer"):
            late.there(drain_impatiently)
    finally:
        own.stop()


def no_rows(*, session: Callable[[], SparkSession]) -> int:
    """Let the driver start."""
    return session().range(0).count()


@pytest.mark.parametrize(("name", "verdict"), [("there.zip", Verdict.OK), ("nowhere.zip", Verdict.WRONG)])
def test_the_doctor_looks_for_the_files_on_hdfs_that_sparks_settings_name(
    hadoop: MiniCluster,  # noqa: F811
    tmp_path: Path,
    name: str,
    verdict: Verdict,
) -> None:
    (tmp_path / "there.zip").touch()
    if verdict is Verdict.OK:
        hadoop.put(tmp_path / "there.zip")
    (tmp_path / "spark-defaults.conf").write_text(f"spark.yarn.archive hdfs:///{name}\n")

    found = list(yarn_files({"HADOOP_CONF_DIR": str(hadoop.configuration), "SPARK_CONF_DIR": str(tmp_path)}))

    assert [finding.verdict for finding in found] == [verdict], found
    assert verdict is Verdict.OK or f"spark.yarn.archive names {hadoop.hdfs}/{name}" in str(found[0].trouble)
