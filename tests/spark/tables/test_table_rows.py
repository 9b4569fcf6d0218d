"""Rows in the table's form, by name at every depth."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from kdi_assets.messages.coordinates import coordinates
from kdi_assets.streams.ledger.dates import day_of
from kdi_assets.streams.rules.table.table_rows import in_table_form
from tests.table_by_hand import orders

STREAM = orders(coordinates="meta.kafka")
GIVEN = """
SELECT named_struct('who', 'a', 'kafka',
         named_struct('topic', 't', 'partition', 1, 'offset', 7L, 'timestamp', timestamp_millis(1500))) AS meta,
       array(named_struct('n', 1, 'sku', 'x'), NULL) AS items,
       map('k', named_struct('b', 2, 'a', 1)) AS named,
       CAST(NULL AS struct<b: int, a: int>) AS none,
       DATE'2026-01-02' AS date
"""
TABLE = """
  none struct<a: int, b: int>, date string, only bigint, named map<string, struct<a: int, b: int>>,
  meta struct<kafka: struct<offset: bigint, topic: string, partition: bigint, timestamp: bigint>, who: string>,
  items array<struct<sku: string, n: int>>
"""


def _columns(ddl: str) -> StructType:
    columns = StructType.fromDDL(ddl)
    assert isinstance(columns, StructType)
    return columns


def test_rows_take_the_tables_order_and_types_at_every_depth(spark: SparkSession) -> None:
    """Pass: no value moves to another name; null stays null; a column that only the table has is left out; the
    coordinates and the date are read back as they were given.
    """
    rows = spark.sql(GIVEN)

    there = in_table_form(rows, _columns(TABLE), STREAM)

    (row,) = (r.asDict(recursive=True) for r in there.collect())
    assert row == {
        "none": None,
        "date": "2026-01-02",
        "named": {"k": {"a": 1, "b": 2}},
        "meta": {"kafka": {"offset": 7, "topic": "t", "partition": 1, "timestamp": 1_500_000}, "who": "a"},
        "items": [{"sku": "x", "n": 1}, None],
    }
    types = {f.name: f.dataType.simpleString() for f in _columns(TABLE).fields if f.name != "only"}
    assert {f.name: f.dataType.simpleString() for f in there.schema.fields} == types
    assert list(row) == list(types)
    read = [df.selectExpr(day_of("date")).first() for df in (rows, there)]
    assert read[0] == read[1]
    first, second = (df.select(*coordinates(df, STREAM)) for df in (rows, there))
    assert (first.dtypes, first.collect()) == (second.dtypes, second.collect())


def test_coordinates_that_a_table_does_not_keep_are_left_out_and_read_as_null(spark: SparkSession) -> None:
    kafka = "struct<offset: bigint, topic: string, partition: int>"
    table = _columns(f"meta struct<who: string, kafka: {kafka}>, date date")

    there = in_table_form(spark.sql(GIVEN).select("meta", "date"), table, STREAM)

    assert [f.dataType.simpleString() for f in there.schema.fields] == [f.dataType.simpleString() for f in table.fields]
    (found,) = there.select(*coordinates(there, STREAM)).collect()
    assert found.asDict() == {"partition": 1, "offset": 7, "index": 0, "count": 1, "timestamp": None}


def test_rows_that_have_the_tables_form_are_not_touched(spark: SparkSession) -> None:
    """Purpose: a drain of an ordinary table has not even another projection."""
    rows = spark.sql(GIVEN)
    other_order: Any = StructType([*rows.schema.fields[::-1]])

    assert in_table_form(rows, other_order, STREAM) is rows
