"""Reading a table's log for the reconcile: a piece at a time, from where the last one ended."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from deltalake import DeltaTable

from kdi_assets.components.column_facts import date_facts, type_text
from sensors import table_log
from sensors.table_log import Piece, read_piece
from tests.table_by_hand import TOPIC, TableByHand, data_file, orders

OLD, OLDER = date(2021, 3, 4), date(2021, 3, 3)


@pytest.fixture
def table(lake: str) -> TableByHand:
    return TableByHand(lake)


def read(table: TableByHand, known: Piece | None = None) -> tuple[Piece, list[int]]:
    """Read on from a piece, or from the beginning; and the versions of the entries that were found."""
    since = (known.table_id, known.through) if known else ("", -1)
    piece = read_piece(str(table.log.parent), TOPIC, table_id=since[0], since=since[1])
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


def test_a_long_log_is_read_a_piece_at_a_time(table: TableByHand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_log, "COMMITS_PER_TICK", 3)
    for _ in range(6):
        table.drain()

    first, versions = read(table)
    second, others = read(table, first)

    assert (versions, others, read(table, second)[1]) == ([1, 2], [3, 4, 5], [6])


def test_a_log_that_was_cleaned_up_is_read_from_where_it_begins(table: TableByHand) -> None:
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

    assert read_piece(orders().table_uri(lake), TOPIC, table_id="", since=-1) is None


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
