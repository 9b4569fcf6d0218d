"""A log that is damaged or unreachable, and what helps; and one that is read in pieces."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kdi_assets.components.column_facts import date_facts
from kdi_assets.delta.column_types import type_text
from kdi_assets.delta.errors import CommitUnreadable, StorageFailed, TableUnreadable
from kdi_assets.delta.log import TableLog
from kdi_assets.sensors import table_log
from kdi_assets.sensors.table_log import NewEntries, read_new_entries
from kdi_assets.streams.drain.dead_letters import check_letters_intact
from kdi_assets.streams.drain.errors import DeadLettersReplaced
from kdi_assets.streams.ledger.archive import Archive, open_archive
from kdi_assets.streams.ledger.entry import DeadLettersAt
from tests.table_by_hand import TOPIC, TableByHand, data_file, orders


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
def test_storage_that_does_not_answer_is_a_transient_error_with_its_cause(
    log: Path, step: Callable[[TableLog, Archive], object]
) -> None:
    table, archive = TableLog.existing(str(log.parent)), Archive(str(log.parent), "any table")
    log.rename(log.with_name("away"))
    log.symlink_to(log.name)

    with pytest.raises(StorageFailed) as failed:
        step(table, archive)

    first = str(failed.value).splitlines()[0]
    assert "Too many levels of symbolic links" in first
    assert "\x1b" not in first


@pytest.mark.scenario("storage fails, throttles, is slow")
def test_files_that_the_storage_refuses_do_not_count_as_removed(log: Path) -> None:
    table = TableLog.existing(str(log.parent))
    assert table.has_change_files(1)
    for file in (commit(log, 2), *log.parent.glob("*.parquet")):
        file.unlink()
        file.symlink_to(file.name)

    with pytest.raises(StorageFailed):
        table.commit(2)
    with pytest.raises(StorageFailed):
        table.has_change_files(1)

    commit(log, 2).unlink()
    with pytest.raises(CommitUnreadable) as gone:
        table.commit(2)
    assert gone.value.gone


@pytest.mark.scenario("checkpoint or commit file corrupted")
def test_an_empty_commit_is_refused_only_after_the_newest_checkpoint(log: Path) -> None:
    DeltaTable(log.parent).create_checkpoint()
    shutil.copy(commit(log, 3), commit(log, 4))
    commit(log, 2).write_bytes(b"")

    TableLog.existing(str(log.parent)).refuse_empty_commits()  # the checkpoint covers it
    commit(log, 4).write_bytes(b"")

    with pytest.raises(TableUnreadable, match="commit 4 is an empty file"):
        TableLog.existing(str(log.parent)).refuse_empty_commits()


@pytest.mark.scenario("checkpoint or commit file corrupted")
def test_a_damaged_checkpoint_can_be_removed_only_if_all_commits_are_there(log: Path) -> None:
    DeltaTable(log.parent).create_checkpoint()
    (log / f"{3:020}.checkpoint.parquet").write_bytes(b"no parquet")

    with pytest.raises(TableUnreadable, match=f"rm .*/_last_checkpoint .*/{3:020}.checkpoint"):
        TableLog.open(str(log.parent))
    commit(log, 1).unlink()

    with pytest.raises(TableUnreadable, match="storage's older versions"):
        TableLog.open(str(log.parent))


@pytest.mark.scenario("checkpoint or commit file corrupted")
def test_a_damaged_checkpoint_can_be_removed_if_an_older_one_has_the_older_commits(log: Path) -> None:
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

    check_letters_intact(orders(), lake, counts_on)
    (Path(uri) / "_delta_log" / f"{1:020}.json").unlink()

    with pytest.raises(
        DeadLettersReplaced, match="changed by commit 1, which cannot be read.*\n.*\n.*adopt-dead-letters   .accepts"
    ):
        check_letters_intact(orders(), lake, counts_on)


OLD, OLDER = date(2021, 3, 4), date(2021, 3, 3)


@pytest.fixture
def table(lake: str) -> TableByHand:
    return TableByHand(lake)


def read(table: TableByHand, known: NewEntries | None = None) -> tuple[NewEntries, list[int]]:
    """Continue from a piece, or from the beginning; and the versions of the entries found."""
    since = (known.table_id, known.through) if known else ("", -1)
    piece = read_new_entries(str(table.log.parent), TOPIC, table_id=since[0], since=since[1])
    assert piece is not None
    return piece, [entry.version for entry in piece.entries]


def test_a_piece_holds_the_entries_of_this_ledger_and_ends_where_the_log_does(table: TableByHand) -> None:
    table.drain()
    table.commit(ago=timedelta())
    table.drain(app_id="another")
    table.drain()

    piece, versions = read(table)
    behind, nothing = read(table, piece)

    assert (versions, piece.through, nothing, behind.through) == ([1, 4], 4, [], 4)


def test_a_long_log_is_read_in_pieces(table: TableByHand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_log, "COMMITS_PER_TICK", 3)
    for _ in range(6):
        table.drain()

    first, versions = read(table)
    second, others = read(table, first)

    assert (versions, others, read(table, second)[1]) == ([1, 2], [3, 4, 5], [6])


def test_a_cleaned_log_is_read_from_its_oldest_commit(table: TableByHand) -> None:
    table.drain()
    table.drain()
    table.clean()
    table.drain()

    assert read(table)[1] == [2, 3]


def test_a_commit_that_cannot_be_read_behind_one_that_can_is_waited_for(table: TableByHand) -> None:
    for _ in range(3):
        table.drain()
    DeltaTable(table.log.parent).create_checkpoint()
    hidden = table.file(2).rename(table.log / "hidden")

    before, versions = read(table)
    hidden.rename(table.file(2))

    assert (versions, before.through) == ([1], 1)
    assert read(table, before)[1] == [2, 3]


@pytest.mark.parametrize("text", [None, "this is no commit"])
def test_without_a_table_or_a_readable_log_there_is_no_piece(lake: str, text: str | None) -> None:
    if text is not None:
        TableByHand(lake).file(0).write_text(text)

    assert read_new_entries(orders().table_uri(lake), TOPIC, table_id="", since=-1) is None


def test_rows_of_a_date_are_counted_without_reading_them(table: TableByHand) -> None:
    table.commit(data_file(1, OLD, rows=3), ago=timedelta())
    table.commit(data_file(2, OLD, rows=4), ago=timedelta())

    facts = date_facts(DeltaTable(table.log.parent), [OLD, OLDER])

    assert facts == {OLD: {"dagster/partition_row_count": 7, "files": 2}}


def test_types_are_shown_as_spark_writes_them() -> None:
    place = {"type": "struct", "fields": [{"name": "lat", "type": "double"}, {"name": "zip", "type": "integer"}]}

    assert type_text({"type": "array", "elementType": place}) == "array<struct<lat: double, zip: int>>"
    assert type_text({"type": "map", "keyType": "string", "valueType": "long"}) == "map<string, bigint>"
    assert type_text("decimal(10,2)") == "decimal(10,2)"
