"""Columns of unusual types and names, and values that the document's SQL cannot compute with."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from kdi_assets.refine.errors import NameOfOurColumn, RowsNotComputable
from tests.refined import Lakeside, refined_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = date(2026, 1, 1)
EVENTS = "bronze/events"


@pytest.fixture
def lakeside(spark: SparkSession, lake: str) -> Lakeside:
    return Lakeside(spark, lake)


def upserted(table: str = "silver/state", **mode: Any) -> Any:
    fields = {"keys": ["id"], "sequence_by": "n", **mode}
    return refined_table(**{"table": table, "from": EVENTS, "partition_by": None, "mode": {"upsert": fields}})


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
    assert dict(row) == {"id": 1, "n": 2, "sequence": 2, "valid_from": "f2", "valid_to": "t"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"sql": "SELECT *, CAST(host AS int) AS number FROM events"}, "CAST_INVALID_INPUT"),
        ({"sql": "SELECT *, 1 / (bytes - 10) AS part FROM events"}, "DIVIDE_BY_ZERO"),
        ({"mode": {"aggregate": {"by": ["date", "wrong"], "measures": {"n": "count"}}}}, "wrong"),
        ({"mode": {"aggregate": {"by": ["date"], "measures": {"n": {"max": "int(host)"}}}}}, "CAST_INVALID_INPUT"),
        ({"expectations": {"known": {"sql": "wrong > 1"}}}, "wrong"),
    ],
)
def test_what_no_retry_can_compute_is_no_transient_error(lakeside: Lakeside, fields: dict[str, Any], said: str) -> None:
    lakeside.append([(1, "a", 10, "i", DAY)])
    table = refined_table(**{"table": "silver/wrong", "from": EVENTS, **fields})

    with pytest.raises(RowsNotComputable, match=said):
        lakeside.refine(table)
