"""Reading a table's log for the reconcile: a piece at a time, from where the last one ended."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from kdi_assets.components.column_facts import date_facts, type_text
from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.stream import TopicPartition
from sensors import table_log
from sensors.table_log import Piece, read_piece

OLD, OLDER = date(2021, 3, 4), date(2021, 3, 3)


def commit(uri: str, *, app_id: str | None = "orders", rows: int = 1) -> None:
    """Append rows of one date; with a ledger entry, unless there is no ``app_id``."""
    table = pa.table({"id": list(range(rows)), "date": [OLD] * rows})
    written = an_entry(app_id).to_json() if app_id else ""
    properties = CommitProperties(custom_metadata={"userMetadata": written})
    write_deltalake(uri, table, mode="append", partition_by=["date"], commit_properties=properties)


def an_entry(app_id: str) -> LedgerEntry:
    return LedgerEntry(
        version=-1,
        kind="drain",
        app_id=app_id,
        attempt_id="a",
        topic="orders",
        topic_id="t",
        table_id="u",
        positions={TopicPartition("orders", 0): 1},
    )


def read(uri: str, known: Piece | None = None) -> Piece:
    """Read on from a piece, or from the beginning."""
    since = (known.table_id, known.through) if known else ("", -1)
    piece = read_piece(uri, "orders", table_id=since[0], since=since[1])
    assert piece is not None
    return piece


def versions(piece: Piece) -> list[int]:
    return [entry.version for entry in piece.entries]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "orders")


def test_a_piece_holds_the_entries_of_this_ledger_and_ends_where_the_log_does(uri: str) -> None:
    for app_id in ("orders", None, "another", "orders"):
        commit(uri, app_id=app_id)

    piece = read(uri)

    assert (versions(piece), piece.through) == ([0, 3], 3)
    assert (versions(read(uri, piece)), read(uri, piece).through) == ([], 3)


def test_a_long_log_is_read_a_piece_at_a_time(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_log, "COMMITS_PER_TICK", 3)
    for _ in range(7):
        commit(uri)

    pieces = [first := read(uri), second := read(uri, first), read(uri, second)]

    assert [versions(piece) for piece in pieces] == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_log_that_was_cleaned_up_is_read_from_where_it_begins(uri: str) -> None:
    for _ in range(5):
        commit(uri)
    DeltaTable(uri).create_checkpoint()
    for version in range(3):
        commit_file(uri, version).unlink()

    assert versions(read(uri)) == [3, 4]


def test_a_commit_that_cannot_be_read_behind_one_that_can_is_waited_for(uri: str) -> None:
    for _ in range(4):
        commit(uri)
    DeltaTable(uri).create_checkpoint()
    hidden = commit_file(uri, 2).rename(Path(uri) / "hidden")

    before = read(uri)
    hidden.rename(commit_file(uri, 2))

    assert (versions(before), before.through) == ([0, 1], 1)
    assert versions(read(uri, before)) == [2, 3]


@pytest.mark.parametrize("text", [None, "this is no commit"])
def test_without_a_table_or_a_readable_log_there_is_no_piece(uri: str, text: str | None) -> None:
    if text is not None:
        commit_file(uri, 0).parent.mkdir(parents=True)
        commit_file(uri, 0).write_text(text)

    assert read_piece(uri, "orders", table_id="", since=-1) is None


def test_rows_of_a_date_are_counted_without_reading_them(uri: str) -> None:
    commit(uri, rows=3)
    commit(uri, rows=4)

    assert date_facts(DeltaTable(uri), [OLD, OLDER]) == {OLD: {"dagster/partition_row_count": 7, "files": 2}}


def test_types_are_shown_as_spark_writes_them() -> None:
    place = {"type": "struct", "fields": [{"name": "lat", "type": "double"}, {"name": "zip", "type": "integer"}]}

    assert type_text({"type": "array", "elementType": place}) == "array<struct<lat: double, zip: int>>"
    assert type_text({"type": "map", "keyType": "string", "valueType": "long"}) == "map<string, bigint>"
    assert type_text("decimal(10,2)") == "decimal(10,2)"


def commit_file(uri: str, version: int) -> Path:
    return Path(uri) / "_delta_log" / f"{version:020}.json"
