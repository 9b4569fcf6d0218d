"""Refined tables of a table that keeps its dates for some time: the dates that left stay as they were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.follow.refine.audit.audit import audit_refined
from tests.refined import Lakeside, refined_table

D1, D2, D3, D4 = (date(2026, 1, day) for day in (1, 2, 3, 4))
FIRST = [(1, "a", 10, "i", D1), (2, "b", 20, "i", D1), (3, "a", 30, "i", D2), (1, "a", 10, "i", D2)]
MORE = [(4, "a", 5, "u", D2), (2, "b", 7, "d", D3), (5, None, None, "i", D3), (1, "a", 99, "u", D3)]
SUMS = {"n": "count", "total": {"sum": "bytes"}, "most": {"max": "bytes"}}

MODES: dict[str, dict[str, Any]] = {
    "append": {"sql": "SELECT id, upper(host) AS host, date FROM events WHERE coalesce(bytes, 0) <> 7"},
    "replace_dates": {
        "sql": "SELECT date, host, count(*) AS n, sum(bytes) AS total FROM events GROUP BY date, host",
        "mode": "replace_dates",
    },
    "deduplicate": {"mode": {"deduplicate": {"keys": ["id"], "order_by": "bytes", "window": "2 days"}}},
    "aggregate": {"mode": {"aggregate": {"by": ["date", "host"], "measures": SUMS}}},
    "exact distinct": {"mode": {"aggregate": {"by": ["date"], "measures": {"ids": {"count_distinct": "id"}}}}},
}
NOT_BY_DATE: dict[str, dict[str, Any]] = {
    "append": {"partition_by": None},
    "upsert": {"partition_by": None, "mode": {"upsert": {"keys": ["id"], "sequence_by": "bytes"}}},
    "aggregate": {"partition_by": None, "mode": {"aggregate": {"by": ["host"], "measures": {"n": "count"}}}},
}
Rows = Counter[tuple[Any, ...]]


@pytest.fixture(params=MODES)
def table(request: pytest.FixtureRequest) -> RefinedTableSpec:
    return refined_table(**{"table": "silver/t", "from": "bronze/events", **MODES[request.param]})


def before(rows: Rows, day: date) -> Rows:
    """Those with an earlier date."""
    return Counter({row: n for row, n in rows.items() if dict(row)["date"] < day})


def test_dates_that_left_upstream_stay_as_they_were_and_the_others_are_as_computed_at_once(
    lakeside: Lakeside, table: RefinedTableSpec
) -> None:
    """Purpose: a table keeps more dates than the table that it is made of, whatever comes after them.
    Procedure: the first date leaves upstream; then late rows of it, rows of other dates, changes, a RESTORE that brings
    the date back, a second date that leaves, a rebuild.
    Pass: after each step the dates that left are as before, the others are those of a table made now; the audit agrees.
    """
    lakeside.append(FIRST)
    lakeside.append(MORE)
    lakeside.refine(table)
    later_dates = 1 if "deduplicate" in str(table.mode).lower() else 0
    first, frozen = D2, before(lakeside.rows("silver/t"), D2.replace(day=2 + later_dates))
    lakeside.expire(D2)
    steps: dict[str, Callable[[], None]] = {
        "left": lambda: None,
        "late": lambda: lakeside.append([(9, "c", 1, "i", D1)]),
        "late and new": lambda: lakeside.append([(10, "c", 1, "i", D1), (11, "c", 3, "i", D3), (4, "c", 1, "i", D4)]),
        "update": lambda: lakeside.sql("UPDATE {t} SET bytes = bytes + 1 WHERE id IN (1, 3, 9)"),
        "delete": lambda: lakeside.sql("DELETE FROM {t} WHERE id = 2"),
        "restore": lambda: lakeside.sql("RESTORE {t} TO VERSION AS OF 1"),
        "left again": lambda: lakeside.expire(D2),
        "more": lambda: lakeside.append([(12, "d", 1, "i", D3), (12, "d", 1, "i", D4)]),
    }

    for name, happens in steps.items():
        happens()
        entry = lakeside.refine(table)
        again = lakeside.rows(made_now(lakeside, table))
        assert lakeside.rows("silver/t") == frozen + again, name
        assert entry.kind != "rebuild", name
    lakeside.refine(table, rebuild=True)

    assert lakeside.rows("silver/t") == frozen + again
    audit = audit_refined(table, lake=lakeside.lake, session=lambda: lakeside.spark, everything=True)
    assert audit.equal and audit.first == first.replace(day=2 + later_dates)


def made_now(lakeside: Lakeside, table: RefinedTableSpec) -> str:
    """The path of a table that is made at once of the rows that are upstream."""
    again = f"{table.table}_{lakeside.version(table.table)}_{lakeside.version('bronze/events')}"
    spec = refined_table(**{"table": again, "from": "bronze/events", **next(m for m in MODES.values() if of(m, table))})
    lakeside.refine(spec)
    return again


def of(fields: dict[str, Any], table: RefinedTableSpec) -> bool:
    """Whether a table has these fields."""
    return refined_table(**{"table": "silver/t", "from": "bronze/events", **fields}) == table
