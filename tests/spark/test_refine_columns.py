"""Columns of unusual types and names, and values that the document's SQL cannot compute with."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from kdi_assets.refine.errors import RowsNotComputable
from tests.refined import Lakeside, refined_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = date(2026, 1, 1)
EVENTS = "bronze/events"


@pytest.fixture
def lakeside(spark: SparkSession, lake: str) -> Lakeside:
    return Lakeside(spark, lake)


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
