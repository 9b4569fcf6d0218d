"""The statement of `kdi dead-letters view`, run by Spark over letters that are written by hand."""

from __future__ import annotations

import base64
import gzip
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kdi_assets.ledger.entry import RangeCounts
from kdi_assets.ledger.history import LiveHistory
from kdi_assets.ledger.letters_view import condemning, select_sql, view_sql
from kdi_assets.stream import OffsetRange, TopicPartition
from tests.spark.test_standing_letters import ENTRIES, NOW, STREAM, written

DRAINED = datetime(2026, 3, 1, 10, 30, 15, 250_000, tzinfo=UTC)
COUNTED = RangeCounts(OffsetRange(TopicPartition("orders", 0), 0, 9), dead_letters=9)
_TIMED = (replace(e, ranges=(COUNTED,), planned_at=DRAINED if e.attempt_id == "first" else NOW) for e in ENTRIES)
HISTORY = LiveHistory(3, tuple(_TIMED), 0, ())
GZIPPED = gzip.compress(b'{"id": 1}')
LETTERS = {
    b'{"id": "x", "a": [1, 2.50]}': ('{"id": "x", "a": [1, 2.50]}', None),
    b"null": ("null", None),
    b"1e400": ("1e400", None),
    **{odd: (None, odd) for odd in (b'{"id": 1} and more', b"1, 2", b"1], [2", b'{"id": ', b"\xff\xfe")},
    b'{"id": "\xff"}': (None, b'{"id": "\xff"}'),
    GZIPPED: (None, GZIPPED),
    b"": (None, b""),
}
"""Values, and what they are there: JSON as it came, or other bytes."""


def test_letters_have_the_four_columns_of_kafka_delta_ingest_each_that_counts_once(
    spark: SparkSession, lake: str
) -> None:
    letters = ({"offset": n, "value": v, "field": "id", "attempt_id": "first"} for n, v in enumerate(LETTERS))
    again = {"offset": 0, "value": b"[]", "reason": "worse", "attempt_id": "later"}
    ghost = {"offset": 20, "value": b"{}", "attempt_id": "never committed"}
    withheld = {"offset": 21, "value": None, "attempt_id": "later"}
    written(lake, *letters, again, ghost, withheld)
    before = spark.sql(select_sql(STREAM, lake, condemning(HISTORY))).collect()
    became_a_row = {"offset": 1, "reason": None, "outcome": "row", "attempt_id": "again"}
    written(lake, became_a_row, outcome=pa.string())

    spark.sql(view_sql("letters", select_sql(STREAM, lake, condemning(HISTORY))))

    seen = spark.sql("SELECT * FROM letters").collect()
    assert sorted(map(str, seen)) == sorted(map(str, before)), "what became of one later is no letter"
    named = [f"{f.name} {f.dataType.simpleString()}" for f in spark.table("letters").schema.fields]
    assert named == ["base64_bytes string", "json_string string", "error string", "timestamp timestamp"]
    found = {(r["json_string"], None if (raw := r["base64_bytes"]) is None else base64.b64decode(raw)) for r in seen}
    assert found == {*list(LETTERS.values())[1:], ("[]", None), (None, None)}
    by_error = {r["error"]: r["timestamp"].astimezone(UTC) for r in seen}
    assert by_error == {"bad in id": DRAINED, "worse": NOW, "bad": NOW}


@pytest.mark.parametrize("history", [LiveHistory(0, (), 0, ()), HISTORY], ids=["no drain", "no letters"])
def test_without_letters_the_view_is_empty(spark: SparkSession, lake: str, history: LiveHistory) -> None:
    seen = spark.sql(select_sql(STREAM, lake, condemning(history)))

    assert (seen.columns, seen.count()) == (["base64_bytes", "json_string", "error", "timestamp"], 0)


def test_a_name_in_a_schema_is_that_of_a_view_that_stays() -> None:
    assert view_sql("a`b", "SELECT 1") == "CREATE OR REPLACE TEMPORARY VIEW `a``b` AS\nSELECT 1"
    assert view_sql("audit.letters", "SELECT 1") == "CREATE OR REPLACE VIEW `audit`.`letters` AS\nSELECT 1"
