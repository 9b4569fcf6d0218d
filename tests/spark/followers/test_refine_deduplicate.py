"""Refined tables without duplicates: few new rows cost few rows, however many their dates have."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.follow.refine import inputs
from tests.refined import Lakeside, refined_table

D1, D2, D3 = date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 3)
FIRST = [(1, "a", 10, "i", D1), (2, "b", 20, "i", D1), (3, "a", 30, "i", D2)]
OTHERS = [(4, "a", 5, "u", D2), (5, None, 1, "i", D1), (6, "c", 8, "i", D2)]
WINDOWS = pytest.mark.parametrize("window", ["1 day", "2 days"])


def first_events(window: str = "1 day") -> RefinedTableSpec:
    """The first event of each id, by its bytes."""
    mode = {"deduplicate": {"keys": ["id"], "order_by": "bytes", "window": window}}
    return refined_table(**{"table": "silver/first", "from": "bronze/events", "mode": mode})


def changed_rows(lakeside: Lakeside, version: int) -> list[tuple[str, int, int]]:
    """The change feed of one version: kind, id and bytes."""
    reader = lakeside.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version)
    feed = reader.option("endingVersion", version).load(lakeside.uri("silver/first"))
    return sorted((row["_change_type"], row["id"], row["bytes"]) for row in feed.collect())


def test_new_rows_are_added_beside_those_of_their_date(lakeside: Lakeside) -> None:
    """Procedure: refine first rows, then rows of other keys, of dates that the table has, and a repetition of one.
    Pass: all files stay, and what reads the change feed hears of the added rows only.
    """
    table = first_events()
    lakeside.append(FIRST)
    lakeside.refine(table)
    before = lakeside.files("silver/first")

    lakeside.append([*OTHERS, OTHERS[0], FIRST[0]])
    entry = lakeside.refine(table)

    assert before < lakeside.files("silver/first")
    assert (entry.kind, entry.rows_added, entry.rows_removed) == ("changes", 3, 0)
    assert changed_rows(lakeside, entry.version) == [("insert", 4, 5), ("insert", 5, 1), ("insert", 6, 8)]
    lakeside.assert_as_computed_at_once(table)


def test_a_row_that_comes_first_replaces_the_kept_one_in_its_file(lakeside: Lakeside) -> None:
    """Procedure: files of two dates, two of each; then a row that lies before the kept one of its key.
    Pass: only the file with that row is written again, and the change feed has this key alone.
    """
    table = first_events()
    for rows in (FIRST, OTHERS):
        lakeside.append(rows)
        lakeside.refine(table)
    before = lakeside.files("silver/first")

    lakeside.append([(1, "z", 3, "u", D1)])
    entry = lakeside.refine(table)

    assert len(before - lakeside.files("silver/first")) == 1
    assert changed_rows(lakeside, entry.version) == [("delete", 1, 10), ("insert", 1, 3)]
    assert (entry.rows_added, entry.rows_removed, entry.dates) == (1, 1, (D1,))
    lakeside.assert_as_computed_at_once(table)


def test_a_late_row_makes_duplicates_of_later_dates_and_no_others(lakeside: Lakeside) -> None:
    """Purpose: a row is a duplicate of the one before it, also if that one is a duplicate itself.
    Procedure: of one key within two dates, refine a row of the second date, of the third, then of the first.
    Pass: after each the table is as computed at once; at the end only the first row is there.
    """
    table = first_events("2 days")
    lakeside.append([*FIRST[1:], (9, "other", 1, "i", D3)])
    lakeside.refine(table)

    for day in (D2, D3, D1):
        lakeside.append([(7, "a", 1, "i", day)])
        lakeside.refine(table)
        lakeside.assert_as_computed_at_once(table)

    assert [dict(row)["date"] for row in lakeside.rows("silver/first") if dict(row)["id"] == 7] == [D1]


@WINDOWS
def test_rows_without_a_key_are_added_as_often_as_they_came(lakeside: Lakeside, window: str) -> None:
    table = first_events(window)
    nobody = (None, "n", 1, "i", D1)

    for rows in ([*FIRST, nobody], [nobody, nobody], [nobody, (1, "z", 3, "u", D1)]):
        lakeside.append(rows)
        lakeside.refine(table)
        lakeside.assert_as_computed_at_once(table)

    assert sum(n for row, n in lakeside.rows("silver/first").items() if dict(row)["id"] is None) == 4


def test_many_new_rows_compute_their_dates_again(lakeside: Lakeside, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pass: the table is as computed at once, and the rows of the date were written again."""
    table = first_events()
    monkeypatch.setattr(inputs, "SMALL_BYTES", 0)
    for rows in (FIRST, OTHERS):
        lakeside.append(rows)
        entry = lakeside.refine(table)

    assert entry.rows_removed == len(FIRST)
    lakeside.assert_as_computed_at_once(table)


def test_within_one_date_rows_that_are_not_new_are_not_read_upstream(lakeside: Lakeside) -> None:
    """Procedure: refine first rows and destroy their files upstream; then new rows, with a repetition of an old one.
    Pass: the new ones are in the table, beside the old.
    """
    lakeside.append(FIRST)
    lakeside.refine(first_events())
    for file in lakeside.files("bronze/events"):
        Path(unquote(urlsplit(file).path)).write_bytes(b"destroyed")

    lakeside.append([*OTHERS, FIRST[0]])
    lakeside.refine(first_events())

    assert sorted(dict(row)["id"] for row in lakeside.rows("silver/first")) == [1, 2, 3, 4, 5, 6]


def test_a_new_column_upstream_computes_all_rows_again(lakeside: Lakeside) -> None:
    lakeside.append(FIRST)
    lakeside.refine(first_events())

    lakeside.gain_column()
    entry = lakeside.refine(first_events())

    assert (entry.kind, entry.why) == ("rebuild", "the rows have other columns: more string is new")
    lakeside.assert_as_computed_at_once(first_events())
