"""A commit in a folder: one hard link to a complete file."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from py4j.protocol import Py4JJavaError

from kdi_assets.delta.transaction import delta_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORE = "kdi.storage.LinkLogStore"
COMMIT = "00000000000000000001.json"


class Log:
    """Writes and reads the commits of a log by our log store, as Delta does."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._jvm = cast("Any", spark._jvm)
        self._configuration = spark.sparkContext._jsc.hadoopConfiguration()
        self._store = getattr(self._jvm, STORE)(self._configuration)
        self._path = self._jvm.org.apache.hadoop.fs.Path(f"file:{folder}/{COMMIT}")
        self.folder = folder

    def write(self, *lines: str, overwrite: bool = False) -> None:
        """Write the commit; raises the store's error."""
        actions = self._jvm.java.util.ArrayList()
        for line in lines:
            actions.add(line)
        self._store.write(self._path, actions.iterator(), overwrite, self._configuration)

    def refusal(self, *lines: str) -> str:
        """The error of a write that must fail."""
        with pytest.raises(Py4JJavaError) as refused:
            self.write(*lines)
        return str(refused.value.java_exception.toString())

    def read(self) -> list[str]:
        """The commit's lines, as Delta reads them."""
        lines = self._store.read(self._path, self._configuration)
        try:
            return [str(lines.next()) for _ in iter(lines.hasNext, False)]
        finally:
            lines.close()

    def files(self) -> list[str]:
        """Names in the folder."""
        return sorted(os.listdir(self.folder))


@pytest.fixture
def log(spark: SparkSession, tmp_path: Path) -> Log:
    """An empty log."""
    return Log(spark, tmp_path)


def test_a_session_commits_to_a_folder_by_our_log_store(spark: SparkSession, tmp_path: Path) -> None:
    for uri in (str(tmp_path / "table"), f"file:{tmp_path}/table", f"file://{tmp_path}/table"):
        log = delta_log(spark, uri)

        assert STORE in str(log.store().getDelegate(log.logPath()).logStoreImpl().getClass().getName())


def test_a_version_is_written_once_and_its_content_stays(log: Log) -> None:
    log.write("mine", "too")

    assert "FileAlreadyExistsException" in log.refusal("another")
    assert log.read() == ["mine", "too"]
    assert log.files() == [COMMIT]
    assert (log.folder / COMMIT).stat().st_mode & 0o777 == 0o644  # as Hadoop's, whatever the process' own mask is


def test_of_threads_that_write_one_version_at_once_one_wins(log: Log) -> None:
    def write(number: int) -> bool:
        try:
            log.write(f"of {number}")
        except Py4JJavaError as refused:
            assert "FileAlreadyExistsException" in str(refused.java_exception.toString())
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        winners = [number for number, won in enumerate(threads.map(write, range(8))) if won]

    assert len(winners) == 1
    assert log.read() == [f"of {winners[0]}"]
    assert log.files() == [COMMIT]


def test_the_checksum_of_an_earlier_file_does_not_make_the_commit_unreadable(spark: SparkSession, log: Log) -> None:
    files = cast("Any", spark._jvm).org.apache.hadoop.fs.FileSystem.getLocal(log._configuration)
    with_checksum = files.create(log._path)
    with_checksum.writeBytes("of a log that was here before\n")
    with_checksum.close()
    assert f".{COMMIT}.crc" in log.files()
    (log.folder / COMMIT).unlink()

    log.write("mine")

    assert log.read() == ["mine"]
    assert log.files() == [COMMIT]


def test_what_a_killed_driver_left_is_no_commit_and_in_nobodys_way(spark: SparkSession, log: Log) -> None:
    (log.folder / f".{COMMIT}.a-uuid.tmp").write_text("half a li")

    log.write("mine")

    first = cast("Any", spark._jvm).org.apache.hadoop.fs.Path(f"file:{log.folder}/{0:020}.json")
    listed = log._store.listFrom(first, log._configuration)
    assert [listed.next().getPath().getName() for _ in iter(listed.hasNext, False)] == [COMMIT]
    assert log.read() == ["mine"]


def test_a_file_that_may_be_replaced_is_replaced_whole(log: Log) -> None:
    log.write("old", overwrite=True)
    log.write("new", overwrite=True)

    assert log.read() == ["new"]


def test_without_the_logs_folder_nothing_is_made(spark: SparkSession, tmp_path: Path) -> None:
    log = Log(spark, tmp_path / "dropped")

    assert "FileNotFoundException" in log.refusal("mine")
    assert not log.folder.exists()
