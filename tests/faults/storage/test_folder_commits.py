"""A commit in a folder: one hard link to a complete file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdi_assets.delta.transaction import delta_log
from tests.faults.storage.log_writer import LogWriter
from tests.storage.small_disk import small_disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORE = "kdi.storage.LinkLogStore"
COMMIT = "00000000000000000001.json"


class Log(LogWriter):
    """A log in a folder, and what Delta reads of it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, STORE, f"file:{folder}/{COMMIT}")
        self.folder = folder

    def read(self) -> list[str]:
        """The commit's lines, as Delta reads them."""
        lines = self.store.read(self.path, self.configuration)
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
    (winner,) = log.winners()

    assert log.read() == [winner]
    assert log.files() == [COMMIT]


def test_the_checksum_of_an_earlier_file_does_not_make_the_commit_unreadable(spark: SparkSession, log: Log) -> None:
    files = log.jvm.org.apache.hadoop.fs.FileSystem.getLocal(log.configuration)
    with_checksum = files.create(log.path)
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

    first = log.jvm.org.apache.hadoop.fs.Path(f"file:{log.folder}/{0:020}.json")
    listed = log.store.listFrom(first, log.configuration)
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


def test_a_disk_without_room_for_the_link_is_an_error_and_not_taken_for_one_without_links(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Purpose: Delta's way, for disks without links, does not exclude a second driver.
    Procedure: a disk with inodes for two files (a link takes one on a tmpfs) and another file on it; commit; once
    more without that file.
    Pass: the first is an error that says it, and leaves neither the version nor any other file.
    """
    with small_disk(tmp_path, "nr_inodes=3") as disk:
        log, other = Log(spark, disk), disk / "other"
        other.write_text("")

        refused, left = log.refusal("mine"), log.files()
        other.unlink()
        log.write("mine")

        assert "No space left on device" in refused
        assert left == ["other"]
        assert (log.read(), log.files()) == (["mine"], [COMMIT])


def test_a_full_disk_leaves_neither_the_version_nor_half_a_file(spark: SparkSession, tmp_path: Path) -> None:
    with small_disk(tmp_path, "size=64k") as disk:
        log = Log(spark, disk)

        assert "No space left on device" in log.refusal("much " * 20_000)
        assert log.files() == []
        log.write("little")
        assert log.files() == [COMMIT]
