"""Refined tables: whatever happened upstream, the rows are those of a full recomputation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from kdi_assets.documents.model.refined_modes import Upsert
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.errors import Terminal
from kdi_assets.follow.refine import inputs
from kdi_assets.follow.refine.modes.states import states_of
from kdi_assets.follow.refine.row_errors import RowsMiscounted
from tests.refined import Lakeside, refined_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

D1, D2, D3 = date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 3)
FIRST = [(1, "a", 10, "i", D1), (2, "b", 20, "i", D1), (3, "a", 30, "i", D2), (1, "a", 10, "i", D2)]
MORE = [(4, "a", 5, "u", D2), (2, "b", 7, "d", D3), (5, None, None, "i", D3), (1, "a", 99, "u", D3)]
LATE = [(3, "c", 1, "d", D1), (6, "b", 2, "i", D1), (2, "b", 1, "u", D2)]

MODES: dict[str, dict[str, Any]] = {
    "append": {"sql": "SELECT id, upper(host) AS host, date FROM events WHERE coalesce(bytes, 0) <> 7"},
    "append with CTEs": {
        "sql": "WITH small AS (SELECT * FROM events WHERE coalesce(bytes, 0) < 50), "
        "named AS (SELECT id, upper(host) AS host, date FROM small) SELECT * FROM named WHERE id <> 5"
    },
    "replace_dates": {
        "sql": "SELECT date, host, count(*) AS n, collect_set(id) AS ids FROM events GROUP BY date, host",
        "mode": "replace_dates",
    },
    "deduplicate": {"mode": {"deduplicate": {"keys": ["id"], "order_by": "bytes", "window": "2 days"}}},
    "aggregate": {
        "mode": {
            "aggregate": {
                "by": ["date", "host"],
                "measures": {
                    "n": "count",
                    "total": {"sum": "bytes"},
                    "least": {"min": "bytes"},
                    "most": {"max": "bytes"},
                    "mean": {"avg": "bytes"},
                    "about": {"approx_count_distinct": "id"},
                },
            }
        }
    },
    "aggregate over all dates": {
        "mode": {"aggregate": {"by": ["host"], "measures": {"n": "count", "total": {"sum": "bytes"}}}},
        "partition_by": None,
    },
    "exact distinct": {"mode": {"aggregate": {"by": ["date"], "measures": {"ids": {"count_distinct": "id"}}}}},
    "upsert": {
        "mode": {"upsert": {"keys": ["id"], "sequence_by": "struct(date, bytes)", "apply_as_deletes": "op = 'd'"}},
        "sql": "SELECT * FROM events WHERE bytes IS NOT NULL",
        "partition_by": None,
    },
    "upsert with history": {
        "mode": {
            "upsert": {
                "keys": ["id"],
                "sequence_by": "struct(date, bytes)",
                "apply_as_deletes": "op = 'd'",
                "column_list": ["id", "host"],
                "scd_type": 2,
            }
        },
        "sql": "SELECT * FROM events WHERE bytes IS NOT NULL",
        "partition_by": None,
    },
}


@pytest.fixture(params=MODES)
def table(request: pytest.FixtureRequest) -> RefinedTableSpec:
    return refined_table(**{"table": "silver/t", "from": "bronze/events", **MODES[request.param]})


def test_what_happened_upstream_is_in_the_table_once(lakeside: Lakeside, table: RefinedTableSpec) -> None:
    """Purpose: increments of every kind must give what one computation of all rows gives.
    Procedure: refine after first rows, more rows, late rows, an UPDATE, a DELETE, an OPTIMIZE, a RESTORE.
    Pass: after each step the table equals the same table computed at once; nothing new commits nothing.
    """
    steps: dict[str, Callable[[], None]] = {
        "first": lambda: lakeside.append(FIRST),
        "more": lambda: lakeside.append(MORE),
        "late": lambda: lakeside.append(LATE),
        "twice": lambda: lakeside.append(LATE[:1]),
        "update": lambda: lakeside.sql("UPDATE {t} SET bytes = bytes + 1 WHERE id IN (1, 3)"),
        "delete": lambda: lakeside.sql("DELETE FROM {t} WHERE id = 2 AND date = '2026-01-02'"),
        "restore": lambda: lakeside.sql("RESTORE {t} TO VERSION AS OF 2"),
        "after": lambda: lakeside.append(MORE[:2]),
    }

    for happens in steps.values():
        happens()
        lakeside.refine(table)
        lakeside.assert_as_computed_at_once(table)

    before = lakeside.version("silver/t")
    lakeside.sql("OPTIMIZE {t}")
    assert lakeside.refine(table).kind == "nothing"
    assert lakeside.version("silver/t") == before


@pytest.mark.parametrize(
    ("mode", "small_bytes"), [("aggregate", 0), ("upsert", inputs.SMALL_BYTES), ("upsert with history", 0)]
)
def test_a_table_without_rows_is_refined_and_can_lose_all_rows_again(
    lakeside: Lakeside, monkeypatch: pytest.MonkeyPatch, mode: str, small_bytes: int
) -> None:
    """Purpose: where there are no old rows, no new ones or neither, a query is planned away and counts nothing.
    Procedure: refine rows that the SQL leaves out, a delete of an unknown key, a row, its delete, all rows deleted.
    Pass: the table is as computed at once after each.
    """
    table = refined_table(**{"table": "silver/t", "from": "bronze/events", **MODES[mode]})
    monkeypatch.setattr(inputs, "SMALL_BYTES", small_bytes)
    changes = [(1, "a", None, "i", D1)], [(1, "a", 1, "d", D1)], [(2, "a", 1, "i", D1)], [(2, "a", 2, "d", D1)]

    for rows in changes:
        lakeside.append(rows)
        lakeside.refine(table)
        lakeside.assert_as_computed_at_once(table)
    lakeside.sql("DELETE FROM {t}")
    lakeside.refine(table)

    assert not lakeside.rows("silver/t")


@pytest.mark.parametrize(
    "rows",
    [
        {"sql": "SELECT date, id, sum(bytes) OVER (ORDER BY date, id, bytes) AS so_far FROM events"},
        {"sql": "SELECT date, id, bytes - (SELECT min(bytes) FROM events) AS above FROM events"},
        {
            "sql": "WITH firsts AS (SELECT host, min(date) AS first FROM events GROUP BY host) "
            "SELECT events.date, id, first FROM events JOIN firsts ON events.host = firsts.host"
        },
        {"sql": "SELECT max(date) AS date, host, count(*) AS n FROM events GROUP BY host"},
        {
            "sql": "WITH hosts AS (SELECT max(date) AS date, host, count(*) AS n FROM events GROUP BY host) "
            "SELECT date, sum(n) AS n FROM hosts GROUP BY date"
        },
        {"python": f"{__name__}:above_the_least"},
    ],
    ids=["a window", "a subquery", "a join", "groups of all dates", "such groups in WITH", "what a function has read"],
)
def test_rows_of_a_date_that_are_made_of_other_dates_are_computed_of_these_too(
    lakeside: Lakeside, rows: dict[str, str]
) -> None:
    """Purpose: few new rows are computed of the upstream rows of their dates alone, where no other makes a difference.
    Procedure: rows of the first date are the least; then one of the last date, and a late one that is less.
    Pass: the table is as computed at once.
    """
    table = refined_table(**{"table": "gold/t", "from": "bronze/events", "mode": "replace_dates", **rows})
    lakeside.append([(1, "a", 1, "i", D1), (2, "b", 20, "i", D2), (3, "a", 30, "i", D3)])
    lakeside.refine(table)

    for late in ([(4, "a", 40, "i", D3)], [(5, "a", 0, "i", D1)]):
        lakeside.append(late)
        assert lakeside.refine(table).kind == "dates"
        lakeside.assert_as_computed_at_once(table)


def above_the_least(events: DataFrame) -> DataFrame:
    """A document's function that reads rows by itself."""
    (least,) = events.selectExpr("min(bytes) AS least").collect()
    return events.selectExpr("date", "id", f"bytes - {least['least']} AS above")


def test_an_average_is_right_or_refused_and_never_null(lakeside: Lakeside) -> None:
    """Purpose: the quotient of a wide decimal and a count can have more digits than its type.
    Procedure: average numbers of 32 digits before the point, then one of 33.
    Pass: the first is right to the last digit; the second ends the run by an error that names the overflow.
    """
    table = refined_table(
        **{
            "table": "gold/mean",
            "from": "bronze/wide",
            "partition_by": None,
            "mode": {"aggregate": {"by": ["host"], "measures": {"mean": {"avg": "amount"}}}},
        }
    )
    lakeside.sql("CREATE TABLE {t} (host string, amount decimal(38,4)) USING delta", "bronze/wide")
    lakeside.sql(f"INSERT INTO {{t}} VALUES ('a', {'9' * 28}.5BD), ('a', {'9' * 28}.5BD), ('b', NULL)", "bronze/wide")
    lakeside.refine(table)
    means = {row["host"]: row["mean"] for row in lakeside.spark.table(f"delta.`{lakeside.uri('gold/mean')}`").collect()}
    assert means == {"a": Decimal(f"{'9' * 28}.5"), "b": None}

    lakeside.sql(f"INSERT INTO {{t}} VALUES ('c', {'9' * 34}BD)", "bronze/wide")
    with pytest.raises(Terminal, match="33|OUT_OF_RANGE|cannot be represented"):
        lakeside.refine(table)


def test_rows_without_a_key_or_an_order_are_no_duplicates_and_do_not_win(lakeside: Lakeside) -> None:
    """Pass: each row with a null key is kept; a row with an order comes before one without."""
    table = refined_table(
        **{
            "table": "silver/first",
            "from": "bronze/events",
            "mode": {"deduplicate": {"keys": ["id", "host"], "order_by": "bytes"}},
        }
    )
    lakeside.append([(1, "a", None, "late", D1), (1, "a", 7, "first", D1), (None, "a", 1, "x", D1)])
    lakeside.append([(None, "a", 2, "y", D1), (2, None, 1, "z", D1), (2, None, 1, "z", D1), (1, "a", 9, "w", D1)])
    lakeside.refine(table)

    kept = Counter(dict(row)["op"] for row in lakeside.rows("silver/first").elements())
    assert kept == {"first": 1, "x": 1, "y": 1, "z": 2}
    lakeside.assert_as_computed_at_once(table)


@pytest.mark.parametrize("mode", ["aggregate", "exact distinct", "upsert", "upsert with history"])
def test_files_without_a_touched_row_stay_if_there_are_many_bytes(
    lakeside: Lakeside, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Purpose: of a large table, only the files that hold touched rows may be written again.
    Procedure: any file counts as large; refine first rows, the rows of another key, then a change of this key.
    Pass: the table is as computed at once after each; the last commit leaves a file and removes a file.
    """
    table = refined_table(**{"table": "silver/t", "from": "bronze/events", **MODES[mode]})
    monkeypatch.setattr(inputs, "SMALL_BYTES", 0)

    before, after = frozenset[str](), frozenset[str]()
    for rows in (FIRST, [(7, "z", 1, "i", D3)], [(7, "z", 2, "i", D3), (8, "z", 3, "i", D3)]):
        lakeside.append(rows)
        lakeside.refine(table)
        before, after = after, lakeside.files("silver/t")
        lakeside.assert_as_computed_at_once(table)

    assert before & after
    assert before - after


def test_a_row_that_no_change_touches_and_that_gets_lost_is_noticed_before_the_commit(
    lakeside: Lakeside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: an upsert whose window loses the rows of a key that did not change; then one that does not.
    Pass: it is refused by the number of rows, with the table as before; the next one has every row.
    """
    table = refined_table(**{"table": "silver/t", "from": "bronze/events", **MODES["upsert"]})
    lakeside.append(FIRST)
    lakeside.refine(table)
    version = lakeside.version("silver/t")
    lakeside.append([(1, "a", 99, "u", D3)])

    def lossy(ordered: DataFrame, mode: Upsert) -> DataFrame:
        return states_of(ordered, mode).where("id <> 3")

    with monkeypatch.context() as patch:
        patch.setattr("kdi_assets.follow.refine.modes.upsert.states_of", lossy)
        with pytest.raises(RowsMiscounted, match="have 2 rows; the old ones with the changes make 3"):
            lakeside.refine(table)
    assert lakeside.version("silver/t") == version

    lakeside.refine(table)
    lakeside.assert_as_computed_at_once(table)
