"""What is new in a table that keeps its dates for some time: nothing that happens to dates that it keeps no longer."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from kdi_assets.delta.log import TableLog
from kdi_assets.delta.markers import days_of, kept_from, kept_from_id
from kdi_assets.follow.refine.entry import RefineEntry, parse_refine_entry, refine_entry_to_json
from kdi_assets.follow.refine.kept_dates import dates_of
from kdi_assets.follow.upstream import UpstreamChanges, changes_since

D1, D2, D3 = (date(2026, 1, day) for day in (1, 2, 3))


class Table:
    """A table by date, with rows of three dates in version 0."""

    def __init__(self, folder: Path, *, text: bool = False) -> None:
        self.uri, self.text = f"{folder}/bronze/events", text
        self.append(D1, D2, D3)

    def append(self, *dates: date | str) -> None:
        rows = pa.table({"id": list(range(len(dates))), "date": [str(day) if self.text else day for day in dates]})
        write_deltalake(self.uri, rows, partition_by=["date"], mode="append")

    def expire(self, first: date) -> None:
        table = DeltaTable(self.uri)
        kept = [Transaction(kept_from_id(str(table.metadata().id)), days_of(first))]
        table.delete(f"date < '{first}'", commit_properties=CommitProperties(app_transactions=kept))

    def since(self, version: int, *, kept: date | None = None, all_dates: bool = False) -> UpstreamChanges:
        return changes_since(TableLog.existing(self.uri), version, kept=kept, all_dates=all_dates)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def test_rows_that_left_are_nothing_new_and_a_copy_of_the_table_is_told_of_them(table: Table) -> None:
    table.expire(D2)

    assert kept_from(TableLog.existing(table.uri)) == D2
    assert table.since(0).kind == "nothing"
    copy = table.since(0, all_dates=True)
    assert (copy.kind, copy.dates, copy.begins) == ("changed", frozenset({D1}), 1)


def test_dates_as_text_are_the_same_dates_and_other_text_is_none(tmp_path: Path) -> None:
    """Purpose: a table that another system made, and that was taken over, has its dates as text.
    Procedure: rows that leave, late rows and new ones; rows whose text is not a day.
    """
    table = Table(tmp_path, text=True)
    table.expire(D2)
    assert table.since(0).kind == "nothing"
    assert table.since(0, all_dates=True).dates == frozenset({D1})

    table.append(D1, D3)
    found = table.since(0)
    assert (found.kind, found.dates, found.rows_passed_over) == ("appended", frozenset({D3}), 1)
    assert dates_of(TableLog.existing(table.uri)) == {D1, D2, D3}

    table.append("20 Jan")
    assert (table.since(2).kind, table.since(2).dates) == ("appended", None)
    assert dates_of(TableLog.existing(table.uri)) == {D1, D2, D3}


def test_late_rows_are_passed_over_and_counted_and_others_beside_them_are_new(table: Table) -> None:
    table.expire(D2)
    table.append(D1)
    table.append(D1, D1, D3)

    found = table.since(0)

    assert (found.kind, found.dates, found.begins) == ("appended", frozenset({D3}), 3)
    assert found.rows_passed_over == 3
    assert len(found.files) == 1


def test_a_restore_that_brings_dates_back_is_nothing_new(table: Table) -> None:
    table.expire(D3)
    DeltaTable(table.uri).restore(0)

    found = table.since(0)

    assert (found.kind, found.rows_passed_over, kept_from(TableLog.existing(table.uri))) == ("nothing", 0, D3)


def test_a_table_that_keeps_less_than_the_table_upstream_passes_over_more(table: Table) -> None:
    table.expire(D2)
    table.append(D2, D3)

    assert table.since(0, kept=D3).dates == frozenset({D3})
    assert table.since(0, kept=D1).dates == frozenset({D2, D3})


def test_dates_are_not_passed_over_in_a_table_of_the_same_place(table: Table) -> None:
    """Purpose: what a table keeps is bound to its id; another one that takes its place keeps all."""
    table.expire(D3)
    write_deltalake(table.uri, pa.table({"id": [7], "date": [D1]}), partition_by=["date"], mode="overwrite")
    assert table.since(0).dates == frozenset({D3}), "an overwrite leaves the id: only the kept date changed"

    other = Table(Path(table.uri) / "other")

    assert kept_from(TableLog.existing(other.uri)) is None


def test_the_entry_of_an_expiry_is_read_as_it_was_written() -> None:
    entry = RefineEntry("silver/t", "a", "expire", rows_removed=3, removed_by_date={D1: 3}, kept_from=D2, version=4)

    assert parse_refine_entry(refine_entry_to_json(entry), 4) == entry
