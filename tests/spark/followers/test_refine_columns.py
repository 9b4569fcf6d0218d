"""Columns of unusual types and names, and values that the document's SQL cannot compute with."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pytest

from kdi_assets.follow.refine.row_errors import NameOfOurColumn, RowsNotComputable
from tests.refined import Lakeside, refined_table

DAY = date(2026, 1, 1)
EVENTS = "bronze/events"
LABELS = (
    "id bigint, n bigint, labels map<string, struct<at: timestamp, more: map<string, bigint>>>, "
    "list array<map<string, bigint>>"
)


def upserted(table: str = "silver/state", **mode: Any) -> Any:
    fields = {"keys": ["id"], "sequence_by": "n", **mode}
    return refined_table(**{"table": table, "from": EVENTS, "partition_by": None, "mode": {"upsert": fields}})


def labels(microsecond: int, more: int | None) -> dict[str, Any]:
    return {"a": (datetime(2026, 1, 1, 12, 0, 0, microsecond), {"x": more}), "b": None}


@pytest.mark.parametrize("scd_type", [1, 2])
def test_rows_with_maps_are_upserted_and_the_feed_has_what_differs(lakeside: Lakeside, scd_type: int) -> None:
    """Purpose: Spark cannot compare maps, and JSON forgets microseconds.
    Procedure: a state with maps inside of maps; the same again; another microsecond; another inner value; no map.
    Pass: as computed at once each time; the same state commits no row, and each other one does.
    """
    table = upserted(scd_type=scd_type)
    states: list[tuple[Any, ...]] = [
        (1, 1, labels(1, 5), [{"l": 1}]),
        (1, 1, labels(1, 5), [{"l": 1}]),
        (1, 2, labels(1, 5), [{"l": 1}]),
        (1, 3, labels(2, 5), [{"l": 1}]),
        (1, 4, labels(2, None), [{"l": 1}, None]),
        (1, 5, None, None),
    ]
    changed = []
    for state in states:
        lakeside.append([state], EVENTS, LABELS)
        changed.append(lakeside.refine(table).rows_added)
        lakeside.assert_as_computed_at_once(table)

    assert changed == ([1, 0, 1, 1, 1, 1] if scd_type == 1 else [1, 0, 2, 2, 2, 2])


def test_a_change_in_a_map_alone_is_in_the_change_feed(lakeside: Lakeside) -> None:
    """Procedure: two states with one sequence; of these the greater content holds, which differs in a microsecond."""
    table = upserted(sequence_by="1")
    for microsecond in (1, 2):
        lakeside.sql("DELETE FROM {t}") if microsecond == 2 else None
        lakeside.append([(1, 1, labels(microsecond, 5), None)], EVENTS, LABELS)
        report = lakeside.refine(table)
        lakeside.assert_as_computed_at_once(table)

    assert (report.kind, report.rows_added, report.rows_removed) == ("changes", 1, 1)


def test_rows_with_a_variant_are_upserted(lakeside: Lakeside) -> None:
    table = refined_table(
        **{
            "table": "silver/state",
            "from": EVENTS,
            "partition_by": None,
            "sql": "SELECT id, n, parse_json(value) AS value FROM events",
            "mode": {"upsert": {"keys": ["id"], "sequence_by": "n"}},
        }
    )
    changed = []
    for state in ((1, 1, '{"a": 1}'), (1, 1, '{"a": 1}'), (1, 2, '{"a": 2}')):
        lakeside.append([state], EVENTS, "id bigint, n bigint, value string")
        changed.append(lakeside.refine(table).rows_added)

    assert changed == [1, 0, 1]


COLUMNS = "id bigint, n bigint, sequence string, valid_from string, valid_to string"
ROW = (1, 1, "s", "f", "t")


@pytest.mark.parametrize(
    ("scd_type", "sql", "said"),
    [
        (1, "SELECT * FROM events", "sequence"),
        (2, "SELECT id, n, sequence FROM events", "sequence"),
        (2, "SELECT id, n, valid_from FROM events", "valid_from"),
        (2, "SELECT id, n, valid_to AS VALID_TO FROM events", "VALID_TO"),
    ],
)
def test_a_column_with_the_name_of_one_that_upsert_makes_is_refused(
    lakeside: Lakeside, scd_type: int, sql: str, said: str
) -> None:
    mode = {"upsert": {"keys": ["id"], "sequence_by": "n", "scd_type": scd_type}}
    table = refined_table(**{"table": "silver/state", "from": EVENTS, "partition_by": None, "sql": sql, "mode": mode})
    lakeside.append([ROW], EVENTS, COLUMNS)

    with pytest.raises(NameOfOurColumn, match=f"column {said}"):
        lakeside.refine(table)


def test_columns_that_upsert_does_not_make_stay_and_so_does_the_sequence(lakeside: Lakeside) -> None:
    """Procedure: valid_from and valid_to with one row by key; a table made of an upserted one, by its sequence."""
    first = upserted("silver/first", column_list=["id", "n", "valid_from", "valid_to"])
    second = refined_table(
        **{
            "table": "silver/second",
            "from": "silver/first",
            "partition_by": None,
            "mode": {"upsert": {"keys": ["id"], "sequence_by": "sequence"}},
        }
    )
    for n in (1, 2):
        lakeside.append([(1, n, "s", f"f{n}", "t")], EVENTS, COLUMNS)
        for table in (first, second):
            lakeside.refine(table)
            lakeside.assert_as_computed_at_once(table)

    (row,) = lakeside.rows("silver/second")
    assert dict(row) == {"id": 1, "n": 2, "sequence": 2, "sequence_at": None, "valid_from": "f2", "valid_to": "t"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"sql": "SELECT *, CAST(host AS int) AS number FROM events"}, "CAST_INVALID_INPUT"),
        ({"sql": "SELECT *, 1 / (bytes - 10) AS part FROM events"}, "DIVIDE_BY_ZERO"),
        ({"mode": {"aggregate": {"by": ["date", "wrong"], "measures": {"n": "count"}}}}, "wrong"),
        ({"mode": {"aggregate": {"by": ["date"], "measures": {"n": {"max": "int(host)"}}}}}, "CAST_INVALID_INPUT"),
        ({"mode": {"aggregate": {"by": ["date"], "measures": {"n": {"count": "DISTINCT id"}}}}}, "PARSE_SYNTAX_ERROR"),
        ({"mode": {"aggregate": {"by": ["date"], "measures": {"n": {"count": "id, host"}}}}}, "PARSE_SYNTAX_ERROR"),
        ({"mode": {"deduplicate": {"keys": ["id"], "order_by": "bytes DESC"}}}, "PARSE_SYNTAX_ERROR"),
        ({"mode": {"deduplicate": {"keys": ["id"], "order_by": "bytes DESC, id"}}}, "PARSE_SYNTAX_ERROR"),
        ({"mode": {"upsert": {"keys": ["id"], "sequence_by": "bytes DESC"}}}, "PARSE_SYNTAX_ERROR"),
        (
            {"mode": {"upsert": {"keys": ["id"], "sequence_by": "bytes", "apply_as_deletes": "op = 'd', true"}}},
            "PARSE_SYNTAX_ERROR",
        ),
        ({"expectations": {"known": {"sql": "wrong > 1"}}}, "wrong"),
        ({"expectations": {"known": {"sql": "bytes > 99, true"}}}, "PARSE_SYNTAX_ERROR"),
        ({"sql": "SELECT *, bytes + 1 FROM events"}, "DELTA_INVALID_CHARACTERS"),
        ({"sql": "SELECT e.*, e.id AS ID FROM events e"}, "DELTA_DUPLICATE_COLUMNS_FOUND"),
        ({"sql": "SELECT *, INTERVAL '1' DAY AS d FROM events"}, "DELTA_UNSUPPORTED_DATA_TYPES"),
    ],
)
def test_what_no_retry_can_compute_is_no_transient_error(lakeside: Lakeside, fields: dict[str, Any], said: str) -> None:
    lakeside.append([(1, "a", 10, "i", DAY)])
    table = refined_table(**{"table": "silver/wrong", "from": EVENTS, **fields})

    with pytest.raises(RowsNotComputable, match=said):
        lakeside.refine(table)


def test_names_that_sql_must_quote_are_groups_and_measures(lakeside: Lakeside) -> None:
    measures = {"of-rows": "count", "mean-bytes": {"avg": "bytes"}, "about:ids": {"approx_count_distinct": "id"}}
    table = refined_table(
        **{
            "table": "gold/quoted",
            "from": EVENTS,
            "sql": "SELECT *, host AS `host/name` FROM events",
            "mode": {"aggregate": {"by": ["date", "host/name"], "measures": measures}},
        }
    )
    for n in range(3):
        lakeside.append([(n, "a", 10 * n, "i", DAY), (n + 1, "b", n, "i", DAY)])
        lakeside.refine(table)
        lakeside.assert_as_computed_at_once(table)


def test_of_equal_rows_a_microsecond_decides_whichever_was_read_first(lakeside: Lakeside) -> None:
    """Procedure: rows of two keys that differ in a microsecond alone, in one order for the one key and in the other
    for the other.
    Pass: the earlier moment is the first, for both keys.
    """
    mode = {"deduplicate": {"keys": ["id"], "order_by": "n"}}
    first = refined_table(**{"table": "silver/first", "from": EVENTS, "mode": mode})
    moments = [datetime(2026, 1, 1, 12, 0, 0, n) for n in (1, 2)]
    for one, other in ((0, 1), (1, 0)):
        rows = [(1, 1, moments[one], DAY), (2, 1, moments[other], DAY)]
        lakeside.append(rows, EVENTS, "id bigint, n bigint, at timestamp_ntz, date date")
        lakeside.refine(first)

    assert {dict(row)["at"] for row in lakeside.rows(first.table)} == {moments[0]}
