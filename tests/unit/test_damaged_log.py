"""What is said of a log that is damaged or cannot be reached, and what helps; without a JVM."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kdi_assets.ledger.archive import Archive, open_archive
from kdi_assets.ledger.damage import StorageFailed, TableUnreadable
from kdi_assets.ledger.log import CommitUnreadable, TableLog
from kdi_assets.stream import KafkaCluster, Stream
from kdi_assets.upkeep.log import _checkpoint, _remove_expired

STREAM = Stream("orders", "bronze/orders", "id bigint", "current_date()", KafkaCluster("main", "nowhere:1"))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of a table of four commits."""
    for row in range(4):
        write_deltalake(tmp_path / "table", pa.table({"a": [row]}), mode="append")
    return tmp_path / "table" / "_delta_log"


def commit(log: Path, version: int) -> Path:
    return log / f"{version:020}.json"


@pytest.mark.scenario("storage fails, throttles, is slow")
def test_storage_that_does_not_answer_is_worth_a_retry_and_its_cause_is_in_the_first_line(log: Path) -> None:
    log.rename(log.with_name("away"))
    log.symlink_to(log.name)

    with pytest.raises(StorageFailed) as failed:
        TableLog.open(str(log.parent))

    first = str(failed.value).splitlines()[0]
    assert "Too many levels of symbolic links" in first
    assert "\x1b" not in first


@pytest.mark.scenario("storage fails, throttles, is slow")
def test_a_commit_that_storage_does_not_hand_out_is_not_taken_for_one_that_is_gone(log: Path) -> None:
    table = TableLog.existing(str(log.parent))
    commit(log, 2).unlink()
    commit(log, 2).symlink_to(commit(log, 2).name)

    with pytest.raises(StorageFailed):
        table.commit(2)

    commit(log, 2).unlink()
    with pytest.raises(CommitUnreadable) as gone:
        table.commit(2)
    assert gone.value.gone


def fail(log: Path) -> None:
    """Let every access to the log fail, and not for want of a file."""
    log.rename(log.with_name("away"))
    log.symlink_to(log.name)


@pytest.mark.scenario("storage fails, throttles, is slow")
def test_storage_that_fails_while_the_log_is_listed_or_searched_is_worth_a_retry(log: Path) -> None:
    table = TableLog.existing(str(log.parent))
    fail(log)

    with pytest.raises(StorageFailed):
        table.commit_files()
    with pytest.raises(StorageFailed):
        table.version_at(datetime.now(UTC))


@pytest.mark.scenario("storage fails, throttles, is slow")
def test_files_that_the_storage_does_not_tell_of_are_not_taken_for_gone(log: Path) -> None:
    table = TableLog.existing(str(log.parent))
    assert table.has_changes_of(0)
    for part in log.parent.glob("*.parquet"):
        part.unlink()
        part.symlink_to(part.name)

    with pytest.raises(StorageFailed):
        table.has_changes_of(0)


@pytest.mark.scenario("storage fails, throttles, is slow")
def test_storage_that_fails_under_the_archive_is_worth_a_retry(log: Path) -> None:
    archive = Archive(str(log.parent), "any table")
    fail(log)

    with pytest.raises(StorageFailed):
        open_archive(str(log.parent))
    with pytest.raises(StorageFailed):
        archive.commit(0)


@pytest.mark.scenario("storage fails, throttles, is slow")
@pytest.mark.parametrize("step", [lambda uri: _checkpoint(STREAM, uri), lambda uri: _remove_expired(uri, 3)])
def test_storage_that_fails_under_a_clean_up_is_worth_a_retry(log: Path, step: Callable[[str], None]) -> None:
    fail(log)

    with pytest.raises(StorageFailed):
        step(str(log.parent))


@pytest.mark.scenario("checkpoint or commit file corrupted")
def test_an_empty_commit_is_refused_only_where_readers_go_by_commits(log: Path) -> None:
    DeltaTable(log.parent).create_checkpoint()
    write_deltalake(log.parent, pa.table({"a": [4]}), mode="append")
    commit(log, 2).write_bytes(b"")

    TableLog.existing(str(log.parent)).refuse_torn()  # the checkpoint covers it
    commit(log, 4).write_bytes(b"")

    with pytest.raises(TableUnreadable, match="commit 4 is an empty file"):
        TableLog.existing(str(log.parent)).refuse_torn()


@pytest.mark.scenario("checkpoint or commit file corrupted")
def test_a_damaged_checkpoint_is_spared_only_by_commits_that_are_all_there(log: Path) -> None:
    DeltaTable(log.parent).create_checkpoint()
    (log / f"{3:020}.checkpoint.parquet").write_bytes(b"no parquet")

    with pytest.raises(TableUnreadable, match=f"rm .*/_last_checkpoint .*/{3:020}.checkpoint"):
        TableLog.open(str(log.parent))
    commit(log, 1).unlink()

    with pytest.raises(TableUnreadable, match="storage's versions"):
        TableLog.open(str(log.parent))


@pytest.mark.scenario("checkpoint or commit file corrupted")
def test_the_checkpoint_before_a_damaged_one_spares_the_commits_before_it(log: Path) -> None:
    DeltaTable(log.parent, version=2).create_checkpoint()
    DeltaTable(log.parent).create_checkpoint()
    for version in range(2):
        commit(log, version).unlink()
    (log / f"{3:020}.checkpoint.parquet").write_bytes(b"no parquet")

    with pytest.raises(TableUnreadable) as damaged:
        TableLog.open(str(log.parent))
    assert damaged.value.spare == ("_last_checkpoint", f"{3:020}.checkpoint.*")
    (log / "_last_checkpoint").unlink()
    (log / f"{3:020}.checkpoint.parquet").unlink()

    assert DeltaTable(log.parent).to_pyarrow_table().num_rows == 4
