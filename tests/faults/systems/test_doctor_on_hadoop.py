"""`kdi doctor` on a real ResourceManager and a real NameNode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow.fs import FileSelector

from kdi_assets.delta.errors import StorageRefused
from kdi_assets.delta.storage import table_file_system
from kdi_assets.operate.doctor.engine import engine
from kdi_assets.operate.doctor.finding import Verdict
from kdi_assets.operate.doctor.storage import storage
from kdi_assets.settings import Settings
from tests.hadoop.mini_cluster import NARROW_QUEUE, MiniCluster


@pytest.fixture(scope="module")
def hadoop(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniCluster]:
    """A ResourceManager, a NodeManager, a NameNode and a DataNode."""
    cluster = MiniCluster(tmp_path_factory.mktemp("hadoop"), settings)
    yield cluster
    cluster.stop()


@pytest.mark.parametrize(("queue", "verdict"), [(NARROW_QUEUE, Verdict.OK), ("nowhere", Verdict.WRONG)])
def test_the_queues_of_a_real_yarn_are_known_by_the_files_that_spark_reads(
    hadoop: MiniCluster, tmp_path: Path, queue: str, verdict: Verdict
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"spark.yarn.queue {queue}\n")
    environment = {"HADOOP_CONF_DIR": str(hadoop.configuration), "SPARK_CONF_DIR": str(tmp_path)}

    (found,) = engine("yarn", environment)

    assert found.verdict is verdict, found
    assert {"default", NARROW_QUEUE} <= set(found.facts["queues"])  # type: ignore[call-overload]


def test_a_lake_on_hdfs_is_written_and_nothing_stays_there(
    hadoop: MiniCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = f"{hadoop.hdfs}/{tmp_path.name}/lake"

    (written,) = storage(lake)
    left = table_file_system(lake).get_file_info(FileSelector("", recursive=True, allow_not_found=True))
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    with pytest.raises(StorageRefused, match="(?i)permission denied"):
        list(storage(lake))

    assert (written.verdict, left) == (Verdict.OK, [])
