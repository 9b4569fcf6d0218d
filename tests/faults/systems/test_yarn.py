"""Drains on a real YARN, with tables on a real HDFS: Hadoop's servers in one JVM, executors in its containers."""

from __future__ import annotations

import os
import signal
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdi_assets.delta.storage import open_delta_table, table_file_system
from kdi_assets.documents.model.message_rules import DeadLetterLimit
from kdi_assets.documents.model.served_table import DuckDb, ServedTableSpec
from kdi_assets.documents.model.stream import Cluster
from kdi_assets.errors import KdiError, Transient
from kdi_assets.follow.refine.audit.audit import audit_refined
from kdi_assets.follow.refine.refine import refine
from kdi_assets.follow.serve.serve import serve
from kdi_assets.runtime import yarn
from kdi_assets.runtime.errors import LakeOfOtherFileSystem, YarnDidNotStart, YarnRefused
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.drain import drain
from kdi_assets.streams.drain.report import DrainReport
from kdi_assets.streams.replay.replay_letters import replay_letters
from tests.conftest import CHECKOUT, TopicFactory
from tests.deployment.standalone import SPARK_HOME
from tests.driven import AS_DECODED, web_requests
from tests.faults.conftest import DoomedFactory
from tests.faults.race import drain_at_once
from tests.faults.systems.cluster_driver import (
    CONFIG,
    ClusterDriver,
    DrivenByCluster,
    assert_killed_drivers_leave_nothing_half_done,
    drain_with_signal,
)
from tests.faults.systems.in_python import IN_PYTHON, reading_of
from tests.hadoop.mini_cluster import NARROW_QUEUE, MiniCluster
from tests.kafka_log import Publisher
from tests.refined import refined_table
from tests.tables.dead_letters import RIGHT, WRONG
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

scenario = pytest.mark.scenario
ON_YARN = {
    **CONFIG,
    # Containers are processes of this machine, so nothing of Spark is uploaded when a driver starts.
    "spark.yarn.jars": f"local:{SPARK_HOME}/jars/*",
    "spark.yarn.am.memory": "512m",
    "spark.executor.memory": "640m",
    "spark.executor.instances": "2",
    "spark.default.parallelism": "4",
}
WORKER_PACKAGES = ("google", "numpy", "numpy.libs", "ptars", "pyarrow")
"""What Python workers import to decode Protobuf."""


@pytest.fixture(scope="module")
def hadoop(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniCluster]:
    """A ResourceManager, a NodeManager, a NameNode and a DataNode."""
    cluster = MiniCluster(tmp_path_factory.mktemp("hadoop"), settings)
    yield cluster
    cluster.stop()


@pytest.fixture
def lake(hadoop: MiniCluster, tmp_path: Path) -> str:
    """The root of the tables of one test, on HDFS."""
    return f"{hadoop.hdfs}/{tmp_path.name}/lake"


@pytest.fixture(scope="module")
def make_driver(hadoop: MiniCluster, settings: Settings) -> Callable[..., ClusterDriver]:
    """Makes drivers in client mode, which find YARN by ``HADOOP_CONF_DIR``."""

    def make(lake: str, config: dict[str, str] | None = None, **variables: str) -> ClusterDriver:
        there = replace(settings, spark_master="yarn", lake=lake)
        environment = {"HADOOP_CONF_DIR": str(hadoop.configuration), **variables}
        return ClusterDriver(there, config={**ON_YARN, **(config or {})}, environment=environment)

    return make


@pytest.fixture(scope="module")
def driver(
    hadoop: MiniCluster, make_driver: Callable[..., ClusterDriver], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterDriver]:
    """The driver of most tests; its executors have the Python of an archive on HDFS."""
    archive = hadoop.put(packed_python(tmp_path_factory.mktemp("python")))
    found = make_driver(
        f"{hadoop.hdfs}/lake", {"spark.yarn.dist.archives": f"{archive}#kdi"}, PYSPARK_PYTHON="./kdi/bin/python"
    )
    yield found
    found.stop()


def packed_python(folder: Path) -> Path:
    """A virtual environment of this Python, packed as ``venv-pack`` does it."""
    site, base = Path(sys.prefix) / "lib" / f"python3.{sys.version_info.minor}" / "site-packages", Path(sys.base_prefix)
    (folder / "pyvenv.cfg").write_text(f"home = {base / 'bin'}\n")
    (folder / "python").symlink_to(base / "bin" / f"python3.{sys.version_info.minor}")
    packed = folder / "venv.tar"
    with tarfile.open(packed, "w") as archive:
        archive.add(folder / "pyvenv.cfg", "pyvenv.cfg")
        archive.add(folder / "python", "bin/python")
        for package in WORKER_PACKAGES:
            archive.add(site / package, f"lib/{site.parent.name}/site-packages/{package}", filter=_without_tests)
    return packed


def _without_tests(file: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if Path(file.name).name in ("tests", "include", "__pycache__") else file


@pytest.fixture
def on_yarn(driver: ClusterDriver, topic: TopicFactory, cluster: Cluster, lake: str) -> Callable[..., DrivenByCluster]:
    """Streams that YARN's executors drain, by one driver."""

    def make(partitions: int = 4, *, lake: str = lake, **fields: Any) -> DrivenByCluster:
        stream = web_requests(topic(partitions), cluster, **fields)
        return DrivenByCluster(stream, lake, Publisher(cluster.bootstrap_servers), no_session, driver=driver)

    return make


def no_session() -> Any:
    """In place of a session: only the driver has one."""
    raise AssertionError("the test process has no Spark")


def python_of_executors(*, session: Callable[[], SparkSession]) -> set[tuple[str, str]]:
    """The working folders of executors, and their workers' environment of Python."""
    import sys

    def look(_: int) -> tuple[str, str]:
        return os.getcwd(), sys.prefix

    return set(session().sparkContext.parallelize(range(8), 8).map(look).collect())


def run_sql(statement: str, *, session: Callable[[], SparkSession]) -> None:
    """Run one statement in the driver."""
    session().sql(statement).collect()


def race(stream: Any, *, lake: str, session: Callable[[], SparkSession]) -> Sequence[DrainReport | KdiError]:
    """Two drains of the stream in two sessions; both have planned before one reads."""
    return drain_at_once(_Raced(lake, session), [stream, stream])


class _Raced:
    def __init__(self, lake: str, session: Callable[[], SparkSession]) -> None:
        self.lake, self.session = lake, session


def test_yarn_drains_refines_serves_replays_and_audits_tables_on_hdfs(
    on_yarn: Callable[..., DrivenByCluster], driver: ClusterDriver, hadoop: MiniCluster, tmp_path: Path
) -> None:
    """Purpose: jars, kernel and settings reach YARN's containers, and all that reads a log without a JVM reads HDFS.
    Procedure: drain good and bad messages in two rounds; refine after each, and serve from a file of DuckDB; replay
    the letters of a wrong document; audit streams and the refined table; compare with Kafka.
    Pass: two executors worked; every offset exactly once, byte for byte; the refined table is its recomputation, and
    the file has all of its rows.
    """
    web = on_yarn()
    wrong = on_yarn(columns=WRONG, dead_letter_limit=DeadLetterLimit(share=1.0))
    hosts = refined_table(
        **{
            "table": "gold/hosts",
            "from": web.stream.table,
            "mode": {"aggregate": {"by": ["date", "host"], "measures": {"n": "count"}}},
        }
    )
    copy = ServedTableSpec(table=hosts.table, into=DuckDb(file="hosts.duckdb", table="hosts"), keys=("date", "host"))

    web.produce(400, bad=0.1, tombstones=0.02, seed=1)
    first = web.drain()
    driver.call(refine, hosts, lake=web.lake)
    produced = web.produce(400, bad=0.1, tombstones=0.02, seed=2)
    second = web.drain()
    driver.call(refine, hosts, lake=web.lake)
    served = serve(copy, lake=web.lake, session=no_session, home=tmp_path)
    wrong.produce(60)
    wrong.drain()
    right = replace(wrong, stream=replace(wrong.stream, columns=RIGHT))
    back = right.there(replay_letters)

    assert len(hadoop.executors()) == 2
    assert len(first.commits) == len(second.commits) == 1
    web.assert_each_offset_once(produced)
    assert back.messages == 60
    right.assert_each_offset_once(right.publisher.flush())
    assert (web.audit().complete, right.audit().complete) == (True, True)
    assert driver.call(audit_refined, hosts, lake=web.lake, everything=True).equal
    assert served.upserted == len(open_delta_table(f"{web.lake}/{hosts.table}").to_pyarrow_table()) > 0
    assert web.compare().agrees


def test_python_workers_run_the_environment_of_an_archive(
    on_yarn: Callable[..., DrivenByCluster], driver: ClusterDriver
) -> None:
    """Purpose: machines of a YARN cluster have no packages of ours; ``spark.yarn.dist.archives`` brings them.
    Procedure: an environment packed on HDFS, and PYSPARK_PYTHON in it; drain Protobuf that Python workers decode.
    Pass: the workers' Python is that of the archive in each container; every message drains.
    """
    format_, encode, bad = IN_PYTHON["protobuf"]
    rows = {encode(row): row for row in ({"id": n, "note": f"Zürich {n}"} for n in range(300))}
    stream = on_yarn(**{**AS_DECODED, "format": format_})
    for n, value in enumerate([*rows, bad]):
        stream.publisher.produce(stream.stream.topic, value, partition=n % 4)
    produced = stream.publisher.flush()

    stream.drain()
    found = driver.call(python_of_executors)

    assert {python for _, python in found} == {f"{folder}/kdi" for folder, _ in found}
    assert all("/container_" in folder for folder, _ in found)
    stream.assert_each_offset_once(produced, reading=reading_of(rows))
    assert stream.letters("value") == [bad]


@scenario("RESTORE and time travel")
def test_a_restore_on_hdfs_is_answered_by_the_next_drain(
    on_yarn: Callable[..., DrivenByCluster], driver: ClusterDriver
) -> None:
    """Purpose: positions follow a RESTORE, which is read from the log by delta-rs, here on HDFS.
    Procedure: two drains; RESTORE to the first; drain.
    Pass: every offset exactly once, and the audit is complete.
    """
    web = on_yarn()
    web.produce(200, bad=0.1, seed=1)
    web.drain()
    before = web.version()
    produced = web.produce(200, bad=0.1, seed=2)
    web.drain()

    driver.call(run_sql, f"RESTORE TABLE delta.`{web.uri}` TO VERSION AS OF {before}")
    web.drain()

    web.assert_each_offset_once(produced)
    assert web.audit().complete


@scenario("two drivers at once")
def test_one_of_two_drains_at_once_wins_on_hdfs(on_yarn: Callable[..., DrivenByCluster]) -> None:
    """Purpose: Delta's log store of HDFS renames without overwriting, so a version has one commit.
    Procedure: two drains of one stream plan on the same version, then both read and commit; three times.
    Pass: one commit for each round; every offset exactly once.
    """
    web = on_yarn(2)
    produced = web.produce(20)
    web.drain()

    for seed in range(1, 4):
        version = web.version()
        produced = web.produce(100, bad=0.1, seed=seed)
        raced = web.there(race)
        commits = sum(len(report.commits) for report in raced if isinstance(report, DrainReport))
        assert (commits, web.version()) == (1, version + 1), raced

    web.assert_each_offset_once(produced)
    assert web.audit().complete


@scenario("a machine of the cluster dies")
def test_a_drain_goes_on_when_a_container_is_killed_in_its_middle(
    on_yarn: Callable[..., DrivenByCluster], hadoop: MiniCluster
) -> None:
    """Purpose: YARN may end containers at any time, and starts others.
    Procedure: an executor is stopped (SIGSTOP) when a plan is made, so that its tasks begin and do not end; when the
    other one has written a file, it is killed (SIGKILL); drain again, with more messages.
    Pass: the drain had not ended; it ends with its commit, or with a refusal that a retry can help; every offset
    exactly once; the audit is complete.
    """
    web = on_yarn()
    web.produce(100, bad=0.1)
    web.drain()
    assert web.driver
    victim = hadoop.await_executors(2)[0]
    web.produce(800, bad=0.1, tombstones=0.02, seed=2)
    before = data_files(web)

    web.driver.start(drain_with_signal, web.stream, lake=web.lake, process=victim.pid, number=signal.SIGSTOP)
    wait_until(lambda: bool(data_files(web) - before), seconds=60)
    busy = web.driver.is_busy()
    victim.kill()
    try:
        outcome: DrainReport | Transient = web.driver.result()
    except Transient as refused:
        outcome = refused
    produced = web.produce(100, bad=0.1, seed=3)
    web.drain()

    assert busy and not victim.is_running()
    assert isinstance(outcome, Transient) or len(outcome.commits) == 1, outcome
    web.assert_each_offset_once(produced)
    assert web.audit().complete


def data_files(web: DrivenByCluster) -> set[str]:
    """The files of the table's rows on HDFS, whether a version names them or not; also those under way."""
    from pyarrow.fs import FileSelector

    listed = table_file_system(web.uri).get_file_info(FileSelector("", recursive=True))
    return {info.path for info in listed if Path(info.path).name.startswith("part-")}


@scenario("killed after files are written", "killed between dead letters and commit", "killed during the commit")
def test_a_driver_on_yarn_that_is_killed_leaves_nothing_half_done(
    on_yarn: Callable[..., DrivenByCluster], doomed: DoomedFactory, hadoop: MiniCluster
) -> None:
    """Purpose: an application outlives its driver for a moment, and its executors may still write files.
    Procedure: in turn: a drain's process is killed (SIGKILL) between dead letters and commit, the JVM of one just
    after the commit; drain once more, with more messages, by another driver.
    Pass: the first left no version, the second one; every offset exactly once; the audit is complete.
    """
    web = on_yarn()
    web.produce(100, bad=0.3)
    web.drain()
    web.produce(400, bad=0.1, tombstones=0.02, seed=2)
    options = {
        "driver": "own",
        "home": CHECKOUT / ".kdi",
        "master": "yarn",
        "config": {**ON_YARN, "spark.executor.instances": "1"},
    }
    options |= {"environment": {"HADOOP_CONF_DIR": str(hadoop.configuration)}}

    assert_killed_drivers_leave_nothing_half_done(web, doomed, ["dead letters written"], options)


def test_a_queue_without_room_is_an_error_within_a_bound_and_leaves_no_application(
    make_driver: Callable[..., ClusterDriver], hadoop: MiniCluster, topic: TopicFactory, cluster: Cluster, lake: str
) -> None:
    """Purpose: Spark itself waits for YARN without an end, and its log lines are below the level that is shown.
    Procedure: a driver in a queue in which no application fits, with a patience of some seconds; one in a queue that
    does not exist.
    Pass: errors that name the queue and what YARN said; nothing of the first waits in YARN; nothing is on HDFS.
    """
    stream = web_requests(topic(1), cluster)
    Publisher(cluster.bootstrap_servers).produce(stream.topic, b"{}", partition=0)
    impatient = make_driver(lake, {"spark.yarn.queue": NARROW_QUEUE})

    try:
        with pytest.raises(YarnDidNotStart, match=f"(?s){NARROW_QUEUE} within 20 s: application_.* is ACCEPTED: .*AM"):
            impatient.call(drain_impatiently, stream, lake=lake)
    finally:
        impatient.stop()
    lost = make_driver(lake, {"spark.yarn.queue": "nowhere"})
    try:
        with pytest.raises(YarnRefused, match="queue nowhere: .*nowhere"):
            lost.call(drain, stream, lake=lake)
    finally:
        lost.stop()

    assert hadoop.waiting_applications() == []
    assert not data_files(DrivenByCluster(stream, lake, Publisher(cluster.bootstrap_servers), no_session))


def drain_impatiently(stream: Any, *, lake: str, session: Callable[[], SparkSession]) -> DrainReport:
    """Drain; wait for YARN only some seconds."""
    vars(yarn).update(PATIENCE_SECONDS=20.0, LOG_SECONDS=5.0)
    return drain(stream, lake=lake, session=session)


def test_a_path_that_hadoop_takes_for_hdfs_is_refused_and_a_uri_of_the_folder_drains(
    make_driver: Callable[..., ClusterDriver],
    on_yarn: Callable[..., DrivenByCluster],
    topic: TopicFactory,
    cluster: Cluster,
    tmp_path: Path,
) -> None:
    """Purpose: with Hadoop's configuration Spark looks for a path on HDFS, and Python on this disk.
    Procedure: drain with the lake as a path, and as the URI of the folder.
    Pass: the first is refused, and nothing was written; the second drains every message.
    """
    stream = web_requests(topic(1), cluster)
    Publisher(cluster.bootstrap_servers).produce(stream.topic, b"{}", partition=0)
    confused = make_driver(str(tmp_path / "lake"))

    try:
        with pytest.raises(LakeOfOtherFileSystem, match="hdfs://"):
            confused.call(drain, stream, lake=str(tmp_path / "lake"))
    finally:
        confused.stop()
    web = on_yarn(lake=f"file://{tmp_path}/shared")
    produced = web.produce(100, bad=0.1)
    web.drain()

    assert not (tmp_path / "lake").exists()
    web.assert_each_offset_once(produced)
