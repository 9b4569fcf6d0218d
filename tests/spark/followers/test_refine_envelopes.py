"""Ready shapes of upserts: Debezium's envelope, and newest states with tombstones."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from kdi_assets.documents.loading.loader import load_folder
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.follow.refine.row_errors import NullKeys
from tests.documents import refined, written
from tests.refined import Lakeside

DAY = date(2026, 1, 1)
ROW = "struct<id: bigint, name: string, city: string, op: string>"
KAFKA = "kafka struct<partition: int, offset: bigint>"
ENVELOPE = f"before {ROW}, after {ROW}, op string, source struct<lsn: bigint>, {KAFKA}, date date"
STATE = f"id string, name string, tombstone boolean, {KAFKA}, date date"
Row = tuple[Any, ...]


def customers(folder: Path, mode: str, more: str = "") -> RefinedTableSpec:
    """The table of a document that a person would write."""
    more = f", partition_by: null, mode: {{upsert: {{keys: [id], {mode}}}}}{more}"
    written(folder, a=refined("silver/customers", upstream="bronze/changes", more=more))
    return load_folder(folder).refined["silver/customers"]


def change(offset: int, op: str, before: Row | None, after: Row | None, *, lsn: int | None = None) -> Row:
    """A change of customers, who have a column that is called op as well."""
    return (before, after, op, (offset if lsn is None else lsn,), (0, offset), DAY)


ANN, MOVED, BOB, EVE = (
    (1, "Ann", "Rome", "x"),
    (1, "Ann", "Oslo", "x"),
    (2, "Bob", "Bonn", "y"),
    (3, "Eve", "Lima", "z"),
)
KEY_OF_BOB = (2, None, None, None)
FIRST = [change(0, "r", None, ANN), change(1, "c", None, BOB)]
MORE = [change(2, "u", ANN, MOVED), change(3, "d", KEY_OF_BOB, None), change(4, "c", None, EVE)]


def contents(lakeside: Lakeside, *columns: str) -> list[Row]:
    return sorted(tuple(dict(row)[c] for c in columns) for row in lakeside.rows("silver/customers").elements())


def test_debezium_changes_become_the_columns_of_after_and_op_d_deletes(lakeside: Lakeside, tmp_path: Path) -> None:
    table = customers(tmp_path, "envelope: debezium")

    for changes in (FIRST, MORE):
        lakeside.append(changes, "bronze/changes", ENVELOPE)
        lakeside.refine(table)
    after_the_delete = contents(lakeside, "id", "name", "city", "op")
    lakeside.append([change(5, "c", None, BOB)], "bronze/changes", ENVELOPE)
    lakeside.refine(table)

    assert after_the_delete == [MOVED, EVE]
    assert contents(lakeside, "id", "name", "city", "op", "sequence") == [(*MOVED, 2), (*BOB, 5), (*EVE, 4)]
    assert {name for row in lakeside.rows("silver/customers") for name, _ in row} == {
        *("id", "name", "city", "op"),
        *("sequence", "sequence_at", "carried"),
    }
    lakeside.assert_as_computed_at_once(table)


def test_debezium_changes_that_arrive_late_find_their_place_by_a_column_of_the_envelope(
    lakeside: Lakeside, tmp_path: Path
) -> None:
    """Purpose: the source's own order must hold, whatever the order of offsets, and a delete must not be undone.
    Procedure: with history, refine a delete and an update; then what happened before them.
    Pass: the history is that of the source's order.
    """
    table = customers(tmp_path, "envelope: debezium, sequence_by: source.lsn, scd_type: 2, column_list: [id, city]")
    newest = [change(0, "d", BOB, None, lsn=9), change(1, "u", ANN, MOVED, lsn=8)]
    late = [change(2, "c", None, ANN, lsn=1), change(3, "c", None, BOB, lsn=2)]

    for changes in (newest, late):
        lakeside.append(changes, "bronze/changes", ENVELOPE)
        lakeside.refine(table)

    history = [(1, "Oslo", 8, None), (1, "Rome", 1, 8), (2, "Bonn", 2, 9)]
    assert contents(lakeside, "id", "city", "valid_from", "valid_to") == history
    lakeside.assert_as_computed_at_once(table)


@pytest.mark.parametrize("op", ["u", None])
def test_an_update_that_changes_the_keys_ends_the_old_ones_with_and_without_an_op(
    lakeside: Lakeside, tmp_path: Path, op: str | None
) -> None:
    table = customers(tmp_path, "envelope: debezium", ", sql: \"SELECT * FROM changes WHERE coalesce(op, '') <> 't'\"")
    lakeside.append(FIRST, "bronze/changes", ENVELOPE)
    lakeside.refine(table)

    lakeside.append([(ANN, EVE, op, (2,), (0, 2), DAY), change(3, "t", None, None)], "bronze/changes", ENVELOPE)
    lakeside.refine(table)

    assert contents(lakeside, "id", "name", "city", "op") == [BOB, EVE]


@pytest.mark.parametrize("op", ["t", "m"])
def test_a_change_of_no_row_is_refused_until_sql_leaves_it_out(lakeside: Lakeside, tmp_path: Path, op: str) -> None:
    table = customers(tmp_path, "envelope: debezium")
    lakeside.append([*FIRST, change(2, op, None, None)], "bronze/changes", ENVELOPE)

    with pytest.raises(NullKeys, match="1 new rows have a null key") as refused:
        lakeside.refine(table)
    without = customers(tmp_path, "envelope: debezium", ", sql: 'SELECT * FROM changes WHERE after IS NOT NULL'")
    lakeside.refine(without)

    assert "truncation" in str(refused.value)
    assert contents(lakeside, "id", "name", "city", "op") == [ANN, BOB]


def test_a_tombstone_deletes_the_state_of_its_key(lakeside: Lakeside, tmp_path: Path) -> None:
    table = customers(tmp_path, "envelope: tombstones")
    states = [("a", "Ann", False, (0, 0), DAY), ("b", "Bob", False, (0, 1), DAY), ("a", "Anna", False, (0, 2), DAY)]

    lakeside.append(states, "bronze/changes", STATE)
    lakeside.refine(table)
    lakeside.append([("b", None, True, (0, 3), DAY), ("c", "Cy", False, (0, 4), DAY)], "bronze/changes", STATE)
    lakeside.refine(table)

    assert contents(lakeside, "id", "name", "sequence") == [("a", "Anna", 2), ("c", "Cy", 4)]
    assert "tombstone" not in {name for row in lakeside.rows("silver/customers") for name, _ in row}
    lakeside.assert_as_computed_at_once(table)
