"""Drains on a real YARN, with tables on a real HDFS: Hadoop's servers in one JVM, executors in its containers."""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from pyarrow.fs import FileSelector

from kdi_assets.delta.errors import StorageRefused
from kdi_assets.delta.storage import table_file_system
from kdi_assets.operate.doctor.engine import engine as examined_engine
from kdi_assets.operate.doctor.finding import Verdict
from kdi_assets.operate.doctor.storage import storage
from kdi_assets.runtime import yarn
from kdi_assets.runtime.errors import LakeOfOtherFileSystem, YarnDidNotStart
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.drain import drain
from kdi_assets.streams.drain.report import DrainReport
from tests.deployment.standalone import SPARK_HOME
from tests.faults.systems.cluster_driver import CONFIG, DrivenByCluster, seen_by_executors
from tests.faults.systems.engine import Engine
from tests.faults.systems.engine_contract import *  # noqa: F403
from tests.hadoop.mini_cluster import NARROW_QUEUE, MiniCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ON_YARN = {
    **CONFIG,
    # Containers are processes of this machine, so nothing of Spark is uploaded when a driver starts.
    "spark.yarn.jars": f"local:{SPARK_HOME}/jars/*",
    "spark.yarn.am.memory": "512m",
    "spark.executor.memory": "640m",
    "spark.executor.instances": "2",
    "spark.default.parallelism": "4",
    # As docs/clusters.md names them; Spark makes the secret.
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
}
WORKER_PACKAGES = ("google", "jsonschema_rs", "numpy", "numpy.libs", "ptars", "pyarrow")
"""What Python workers import."""


class OnYarn(Engine):
    """Drivers in client mode, which find YARN by ``HADOOP_CONF_DIR``; the Python of executors is an archive on HDFS."""

    def __init__(self, hadoop: MiniCluster, settings: Settings, packed: Path) -> None:
        self._hadoop, self._archive = hadoop, hadoop.put(packed)
        there = replace(settings, spark_master="yarn", lake=f"{hadoop.hdfs}/lake")
        configuration = {"HADOOP_CONF_DIR": str(hadoop.configuration)}
        super().__init__(there, {**configuration, "PYSPARK_PYTHON": "./kdi/bin/python"})

    def config(self) -> dict[str, str]:
        return {**ON_YARN, "spark.yarn.dist.archives": f"{self._archive}#kdi"}

    def executors(self) -> list[int]:
        return [executor.pid for executor in self._hadoop.executors()]

    def end_executor(self, process: int, how: str) -> None:
        psutil.Process(process).kill()


@pytest.fixture(scope="module")
def hadoop(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniCluster]:
    """A ResourceManager, a NodeManager, a NameNode and a DataNode."""
    cluster = MiniCluster(tmp_path_factory.mktemp("hadoop"), settings)
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def engine(hadoop: MiniCluster, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnYarn]:
    """YARN, with room for the executors of two drivers."""
    engine = OnYarn(hadoop, settings, packed_python(tmp_path_factory.mktemp("python")))
    yield engine
    engine.stop_driver()


@pytest.fixture
def lake(hadoop: MiniCluster, tmp_path: Path) -> str:
    """The root of the tables of one test, on HDFS."""
    return f"{hadoop.hdfs}/{tmp_path.name}/lake"


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


def test_python_workers_run_the_environment_of_an_archive(engine: OnYarn) -> None:
    """Purpose: machines of a YARN cluster have no packages of ours; ``spark.yarn.dist.archives`` brings them.
    Pass: the workers' Python is that of the archive in each container.
    """
    seen = engine.driver().call(seen_by_executors, [])

    assert {each.python for each in seen} == {f"{each.folder}/kdi" for each in seen}
    assert all("/container_" in each.folder for each in seen)


def test_a_queue_without_room_is_an_error_within_a_bound_and_leaves_no_application(
    by_engine: Callable[..., DrivenByCluster], engine: OnYarn, hadoop: MiniCluster
) -> None:
    """Purpose: Spark itself waits for YARN without an end, and its log lines are below the level that is shown.
    Procedure: a driver in a queue in which no application fits, with a patience of some seconds.
    Pass: an error that names the queue and what YARN said; nothing waits in YARN; nothing is on HDFS.
    """
    with engine.other_driver({"spark.yarn.queue": NARROW_QUEUE}) as impatient:
        web = by_engine(1, driver=impatient)
        web.send(b"{}")
        with pytest.raises(YarnDidNotStart, match=f"(?s){NARROW_QUEUE} within 20 s: application_.* is ACCEPTED: .*AM"):
            web.there(drain_impatiently)

    assert hadoop.waiting_applications() == []
    assert not web.data_files()


def drain_impatiently(stream: Any, *, lake: str, session: Callable[[], SparkSession]) -> DrainReport:
    """Drain; wait for YARN only some seconds."""
    vars(yarn).update(PATIENCE_SECONDS=20.0, LOG_SECONDS=5.0)
    return drain(stream, lake=lake, session=session)


def test_a_path_that_hadoop_takes_for_hdfs_is_refused_and_a_uri_of_the_folder_drains(
    by_engine: Callable[..., DrivenByCluster], engine: OnYarn, tmp_path: Path
) -> None:
    """Purpose: with Hadoop's configuration Spark looks for a path on HDFS, and Python on this disk.
    Procedure: drain with the lake as a path, and as the URI of the folder.
    Pass: the first is refused, and nothing was written; the second drains every message.
    """
    path, web = str(tmp_path / "lake"), by_engine(lake=f"file://{tmp_path}/shared")
    produced = web.produce(100, bad=0.1)

    with engine.other_driver(lake=path) as confused, pytest.raises(LakeOfOtherFileSystem, match="hdfs://"):
        replace(web, lake=path, drives=lambda: confused).drain()
    web.drain()

    assert not (tmp_path / "lake").exists()
    web.assert_each_offset_once(produced)


@pytest.mark.parametrize(("queue", "verdict"), [(NARROW_QUEUE, Verdict.OK), ("nowhere", Verdict.WRONG)])
def test_the_doctor_knows_the_queues_by_the_files_that_spark_reads(
    hadoop: MiniCluster, tmp_path: Path, queue: str, verdict: Verdict
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"spark.yarn.queue {queue}\n")
    environment = {"HADOOP_CONF_DIR": str(hadoop.configuration), "SPARK_CONF_DIR": str(tmp_path)}

    (found,) = examined_engine("yarn", environment)

    assert found.verdict is verdict, found
    assert {"default", NARROW_QUEUE} <= set(found.facts["queues"])  # type: ignore[call-overload]


def test_the_doctor_writes_to_a_lake_on_hdfs_and_leaves_nothing_there(
    lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (written,) = storage(lake)
    left = table_file_system(lake).get_file_info(FileSelector("", recursive=True, allow_not_found=True))
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    with pytest.raises(StorageRefused, match="(?i)permission denied"):
        list(storage(lake))

    assert (written.verdict, left) == (Verdict.OK, [])
