"""Drains by a real Spark cluster, whose executors see nothing of the driver's disk but the lake."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kdi_assets.documents.model.message_rules import DeadLetterLimit
from kdi_assets.documents.model.stream import Cluster, OffsetRange
from kdi_assets.errors import Transient
from kdi_assets.messages.coordinates import digest_of
from kdi_assets.runtime.errors import LakeNotShared
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.drain import drain
from kdi_assets.streams.drain.report import DrainReport
from kdi_assets.streams.replay.replay_letters import replay_letters
from kdi_assets.streams.spark_errors import ReadOrWriteFailed, WorkerPythonUnfit
from kdi_assets.tools.local.s3_server import S3Server
from tests.conftest import CHECKOUT, TopicFactory, also_on_s3
from tests.deployment.standalone import Standalone
from tests.driven import AS_DECODED, web_requests
from tests.faults.conftest import DoomedFactory
from tests.faults.doomed_drain import MID_READ
from tests.faults.systems.cluster_driver import (
    CONFIG,
    ClusterDriver,
    DrivenByCluster,
    assert_killed_drivers_leave_nothing_half_done,
    drain_with_signal,
    judge_with_lost_executor,
    seen_by_executors,
)
from tests.faults.systems.in_python import IN_PYTHON, reading_of
from tests.kafka_log import Publisher
from tests.tables.dead_letters import RIGHT, WRONG
from tests.waiting import wait_until

scenario = pytest.mark.scenario
QUICK_DAEMONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@pytest.fixture(scope="module")
def standalone(
    settings: Settings, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Standalone]:
    """A master and two workers with one core each; the workers' machines have the credentials of S3."""
    keys = {name: value for name, value in s3_server.environment().items() if "KEY" in name}
    folder = tmp_path_factory.mktemp("standalone")
    cluster = Standalone(folder, home=settings.home, java_options=QUICK_DAEMONS, environment=keys)
    yield cluster
    cluster.stop()


@pytest.fixture
def lake(request: pytest.FixtureRequest, lake_in: str, tmp_path: Path) -> str:
    """The root of the tables of one test: a folder that the workers see, or a bucket."""
    if lake_in == "s3":
        return f"{request.getfixturevalue('bucket')}/lake"
    return str(tmp_path / "lake")


@pytest.fixture
def storage(s3_server: S3Server) -> dict[str, str]:
    """Variables of processes that read and write the lake."""
    return dict(s3_server.environment())


def data_files(web: DrivenByCluster, s3_server: S3Server) -> set[str]:
    """The files of the table's rows, whether a version names them or not."""
    if "://" not in web.lake:
        return {str(path) for path in Path(web.uri).rglob("part-*.parquet")}
    bucket, _, prefix = web.uri.removeprefix("s3://").partition("/")
    listed = s3_server.client().list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/").get("Contents", ())
    return {each["Key"] for each in listed if "/part-" in each["Key"]}


@pytest.fixture
def config(standalone: Standalone) -> dict[str, str]:
    """For a driver's JVM: its temporary files are where no executor sees them."""
    return {**CONFIG, "spark.local.dir": str(standalone.hidden)}


@pytest.fixture
def start_driver(
    standalone: Standalone, settings: Settings, lake: str, config: dict[str, str], storage: dict[str, str]
) -> Iterator[Callable[..., ClusterDriver]]:
    """Starts drivers of the cluster; only one at a time gets executors."""
    started: list[ClusterDriver] = []

    def start(*, lake: str = lake, **variables: str) -> ClusterDriver:
        there = replace(settings, spark_master=standalone.master, lake=lake)
        started.append(ClusterDriver(there, config=config, environment={**storage, **variables}))
        return started[-1]

    yield start
    for driver in started:
        driver.stop()


@pytest.fixture
def by_cluster(
    start_driver: Callable[..., ClusterDriver], topic: TopicFactory, cluster: Cluster, lake: str
) -> Callable[..., DrivenByCluster]:
    """Streams that the cluster drains, all by one driver; each has a log of its own of what was published."""
    drivers: list[ClusterDriver] = []

    def no_session() -> Any:
        raise AssertionError("the test process has no Spark")

    def make(partitions: int = 4, *, driver: ClusterDriver | None = None, **fields: Any) -> DrivenByCluster:
        if not drivers and driver is None:
            drivers.append(start_driver())
        stream = web_requests(topic(partitions), cluster, **fields)
        return DrivenByCluster(
            stream, lake, Publisher(cluster.bootstrap_servers), no_session, driver=driver or drivers[0]
        )

    return make


@also_on_s3
def test_a_cluster_drains_replays_and_audits_without_a_look_at_the_drivers_disk(
    by_cluster: Callable[..., DrivenByCluster], standalone: Standalone
) -> None:
    """Purpose: jars, kernel and settings reach executors on other machines by Spark alone.
    Procedure: on two executors whose disks hold neither our jars nor our package nor the driver's temporary files:
    drain good and bad messages in two rounds; replay the letters of a wrong document; audit; compare with Kafka.
    Pass: both executors worked and see nothing of these; every offset exactly once, byte for byte; audit and
    comparison are complete.
    """
    jars, scratch = CHECKOUT / ".kdi" / "jars" / "spark", standalone.hidden
    probe = scratch / "probe"
    probe.write_text("")
    web = by_cluster()
    wrong = by_cluster(columns=WRONG, dead_letter_limit=DeadLetterLimit(share=1.0))
    assert jars.is_dir() and wrong.driver

    wrong.produce(60)
    wrong.drain()
    seen = wrong.driver.call(seen_by_executors, [str(jars), str(probe)])
    produced = web.produce(400, bad=0.1, tombstones=0.02, seed=1)
    first = web.drain()
    produced = web.produce(400, bad=0.1, tombstones=0.02, seed=2)
    second = web.drain()
    right = replace(wrong, stream=replace(wrong.stream, columns=RIGHT))
    back = right.there(replay_letters)

    assert {found for _, found in seen} == {""}
    assert {Path(folder).parts[-4] for folder, _ in seen} == {"worker1", "worker2"}
    assert len(first.commits) == len(second.commits) == 1
    web.assert_each_offset_once(produced)
    assert back.messages == 60
    right.assert_each_offset_once(right.publisher.flush())
    assert (web.audit().complete, right.audit().complete) == (True, True)
    assert web.compare().agrees


def test_what_python_workers_decode_needs_nothing_of_this_package_on_the_executors(
    by_cluster: Callable[..., DrivenByCluster],
) -> None:
    """Purpose: Protobuf, JSON with a schema to validate, and Avro containers need Python on the executors.
    Procedure: executors with the packages of others and without ours; drain good and bad messages of each format.
    Pass: every offset exactly once, each bad message is a dead letter; the audit is complete.
    """
    for name, (format_, encode, bad) in IN_PYTHON.items():
        rows = {encode(row): row for row in ({"id": n, "note": f"Zürich {n}"} for n in range(300))}
        stream = by_cluster(**{**AS_DECODED, "format": format_})
        for n, value in enumerate([*rows, bad, bad]):
            stream.publisher.produce(stream.stream.topic, value, partition=n % 4)
        produced = stream.publisher.flush()

        stream.drain()

        stream.assert_each_offset_once(produced, reading=reading_of(rows))
        assert stream.letters("value") == [bad, bad], name
        assert stream.audit().complete, name


@also_on_s3
@scenario("a machine of the cluster dies")
def test_a_drain_goes_on_when_a_worker_is_killed_in_its_middle(
    by_cluster: Callable[..., DrivenByCluster], standalone: Standalone, s3_server: S3Server
) -> None:
    """Purpose: a machine of the cluster may go, with tasks that have begun and files that they have written.
    Procedure: an executor is stopped (SIGSTOP) when a plan is made, so that tasks begin there and do not end; when the
    other one has written a file, worker and executor are killed (SIGKILL); drain again, with more messages.
    Pass: the drain had not ended; it ends with its commit, or with a refusal that a retry can help; every offset
    exactly once; the audit is complete.
    """
    web = by_cluster()
    web.produce(100, bad=0.1)
    web.drain()
    assert web.driver
    victim, _ = standalone.await_executors(["worker1", "worker2"])
    web.produce(800, bad=0.1, tombstones=0.02, seed=2)
    before = data_files(web, s3_server)

    web.driver.start(drain_with_signal, web.stream, lake=web.lake, process=victim.pid, number=signal.SIGSTOP)
    wait_until(lambda: bool(data_files(web, s3_server) - before))
    busy = web.driver.is_busy()
    standalone.kill_worker("worker1")
    try:
        outcome: DrainReport | Transient = web.driver.result()
    except Transient as refused:
        outcome = refused
    standalone.add_worker("worker1")
    produced = web.produce(100, bad=0.1, seed=3)
    web.drain()

    assert busy and not victim.is_running()
    assert isinstance(outcome, ReadOrWriteFailed) or len(outcome.commits) == 1, outcome  # type: ignore[union-attr]
    web.assert_each_offset_once(produced)
    assert web.audit().complete


@scenario("a machine of the cluster dies")
def test_messages_of_tasks_that_run_again_count_once(
    by_cluster: Callable[..., DrivenByCluster], standalone: Standalone
) -> None:
    """Purpose: Spark reports the counts of a task of a shuffle again if it runs again, and drains that limit the size
    of files have a shuffle.
    Procedure: judge messages before a shuffle; kill (SIGKILL) an executor that holds data of the shuffle; read on.
    Pass: all rows are there, and the pass counted every message once.
    """
    web = by_cluster()
    web.produce(400)
    web.drain()
    executor, _ = standalone.await_executors(["worker1", "worker2"])

    rows, rows_again, counts = web.there(judge_with_lost_executor, executor=executor.pid)

    assert (rows, rows_again) == (400, 400)
    assert (counts.messages, counts.became_rows) == (400, 400)
    assert counts.digest == digest_of([OffsetRange(web.tp(partition), 0, 100) for partition in range(4)])


@also_on_s3
@scenario("killed after files are written", "killed between dead letters and commit", "killed during the commit")
def test_a_driver_of_a_cluster_that_is_killed_leaves_nothing_half_done(
    by_cluster: Callable[..., DrivenByCluster],
    doomed: DoomedFactory,
    standalone: Standalone,
    config: dict[str, str],
    storage: dict[str, str],
    start_driver: Callable[..., ClusterDriver],
) -> None:
    """Purpose: executors outlive their driver for a moment, and may still write files.
    Procedure: in turn: a drain's process is killed (SIGKILL) in the middle of the read (on S3 just after it) and
    between dead letters and commit, the JVM of one just after the commit; drain once more, with more messages, by
    another driver.
    Pass: the first two left no version, the third one; every offset exactly once; the audit is complete.
    """
    web = by_cluster()
    web.produce(100, bad=0.3)
    web.drain()
    web.produce(3000, bad=0.1, tombstones=0.02, seed=2)
    assert web.driver
    web.driver.stop()
    options = {"driver": "own", "home": CHECKOUT / ".kdi", "master": standalone.master, "config": config}
    options |= {"environment": storage}

    points = ("files written" if "://" in web.lake else MID_READ, "dead letters written")
    assert_killed_drivers_leave_nothing_half_done(web, doomed, points, options, next_driver=start_driver)


def test_a_lake_that_executors_do_not_see_is_refused_before_anything_is_written(
    start_driver: Callable[..., ClusterDriver], topic: TopicFactory, cluster: Cluster, standalone: Standalone
) -> None:
    """Purpose: each executor would write to its own disk, and the commit would name files that nobody finds."""
    unshared = standalone.hidden / "lake"
    stream = web_requests(topic(1), cluster)
    Publisher(cluster.bootstrap_servers).produce(stream.topic, b"{}", partition=0)

    with pytest.raises(LakeNotShared, match="does not see it: .*kdi-probe"):
        start_driver(lake=str(unshared)).call(drain, stream, lake=str(unshared))

    assert not list(unshared.rglob("*"))


@pytest.mark.parametrize("python", [str(Path(sys.base_prefix) / "bin" / "python3"), "/nowhere/python"])
def test_executors_without_the_python_that_a_format_needs_are_an_error_that_says_so(
    by_cluster: Callable[..., DrivenByCluster], start_driver: Callable[..., ClusterDriver], python: str
) -> None:
    """Purpose: a Python without our packages, or no Python, must not look like a broken message or a passing fault.
    Procedure: executors with that Python; drain Protobuf.
    Pass: a refusal that names PYSPARK_PYTHON, and nothing was committed; with the right Python, every message drains.
    """
    format_, encode, _ = IN_PYTHON["protobuf"]
    lacking = start_driver(PYSPARK_PYTHON=python)
    stream = by_cluster(driver=lacking, **{**AS_DECODED, "format": format_})
    stream.send(encode({"id": 1}))

    with pytest.raises(WorkerPythonUnfit, match="PYSPARK_PYTHON"):
        stream.drain()
    lacking.stop()
    stream.driver = start_driver()

    assert stream.drain().rows_added == 1
