"""What is said of a log that is damaged or cannot be reached, and what helps; without a JVM."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kdi_assets.drain.dead_letters import refuse_replaced
from kdi_assets.drain.refusals import DeadLettersReplaced
from kdi_assets.ledger.archive import Archive, open_archive
from kdi_assets.ledger.entry import DeadLettersAt
from kdi_assets.ledger.log import CommitUnreadable, TableLog
from kdi_assets.ledger.storage import StorageFailed, TableUnreadable
from tests.table_by_hand import TableByHand, data_file, orders


@pytest.fixture
def log(lake: str) -> Path:
    """The log of a table of four commits, of which three added a file."""
    table = TableByHand(lake)
    for number in range(3):
        table.commit(data_file(number, table.now.date(), rows=1), ago=timedelta())
        (table.log.parent / f"part-{number}.parquet").touch()
    return table.log


def commit(log: Path, version: int) -> Path:
    return log / f"{version:020}.json"


@pytest.mark.scenario("storage fails, throttles, is slow")
@pytest.mark.parametrize(
    "step",
    [
        lambda table, archive: TableLog.open(table.uri),
        lambda table, archive: table.commit_files(),
        lambda table, archive: table.version_at(datetime.now(UTC)),
        lambda table, archive: open_archive(table.uri),
        lambda table, archive: archive.commit(0),
    ],
)
def test_silent_storage_is_transient_with_its_cause(log: Path, step: Callable[[TableLog, Archive], object]) -> None:
    table, archive = TableLog.existing(str(log.parent)), Archive(str(log.parent), "any table")
    log.rename(log.with_name("away"))
    log.symlink_to(log.name)

    with pytest.raises(StorageFailed) as failed:
        step(table, archive)

    first = str(failed.value).splitlines()[0]
    assert "Too many levels of symbolic links" in first
    assert "\x1b" not in first


@pytest.mark.scenario("storage fails, throttles, is slow")
def test_files_that_storage_does_not_hand_out_are_not_taken_for_gone(log: Path) -> None:
    table = TableLog.existing(str(log.parent))
    assert table.has_changes_of(1)
    for file in (commit(log, 2), *log.parent.glob("*.parquet")):
        file.unlink()
        file.symlink_to(file.name)

    with pytest.raises(StorageFailed):
        table.commit(2)
    with pytest.raises(StorageFailed):
        table.has_changes_of(1)

    commit(log, 2).unlink()
    with pytest.raises(CommitUnreadable) as gone:
        table.commit(2)
    assert gone.value.gone


@pytest.mark.scenario("checkpoint or commit file corrupted")
def test_an_empty_commit_is_refused_only_where_readers_go_by_commits(log: Path) -> None:
    DeltaTable(log.parent).create_checkpoint()
    shutil.copy(commit(log, 3), commit(log, 4))
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

    assert len(DeltaTable(log.parent).file_uris()) == 3


def test_letters_behind_a_commit_that_cannot_be_read_may_be_gone_and_adopt_decides(lake: str) -> None:
    uri = orders().dead_letters_uri(lake)
    for offset in range(3):
        write_deltalake(uri, pa.table({"offset": [offset]}), mode="append")
    letters = DeltaTable(uri)
    letters.create_checkpoint()
    counts_on = DeadLettersAt(str(letters.metadata().id), 0)

    refuse_replaced(orders(), lake, counts_on)
    (Path(uri) / "_delta_log" / f"{1:020}.json").unlink()

    with pytest.raises(
        DeadLettersReplaced, match="changed by commit 1, which cannot be read.*\n.*\n.*adopt-dead-letters accepts"
    ):
        refuse_replaced(orders(), lake, counts_on)
