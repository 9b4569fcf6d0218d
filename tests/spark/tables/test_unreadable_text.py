"""Text that is not UTF-8 in no column of a table: readers other than Spark fail at the whole column."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.message_rules import Explode
from kdi_assets.follow.refine.row_errors import TextNotUtf8
from kdi_assets.runtime.spark_internals import columns_of_bytes_as_text
from tests.judged import Message, judged, stream_of
from tests.refined import D1, Lakeside, refined_table

BAD = b"\xff\xfe"
MADE = {
    "a cast": ("tenant", "CAST(kafka.key AS STRING)"),
    "in a function": ("tenant", "concat('t-', string(kafka.key))"),
    "tried": ("tenant", "try_cast(kafka.key AS STRING)"),
    "of a value made here": ("tenant", "CAST(unhex(if(kafka.key = X'FFFE', 'ff', '61')) AS STRING)"),
    "in a struct": ("tenant", "named_struct('a', named_struct('b', CAST(kafka.key AS STRING)))"),
    "nested by its path": ("some.tenant", "CAST(kafka.key AS STRING)"),
    "in an array": ("headers", "transform(array(kafka.key), k -> CAST(k AS STRING))"),
    "an array as a whole": ("headers", "CAST(array(kafka.key) AS array<string>)"),
    "in a map's keys": ("headers", "map(CAST(coalesce(kafka.key, X'61') AS STRING), 1)"),
}


@pytest.mark.parametrize("case", MADE)
def test_text_that_an_expression_makes_of_bytes_is_utf8(spark: SparkSession, case: str) -> None:
    path, sql = MADE[case]
    stream = stream_of("id bigint", columns={path: sql})

    messages = [Message('{"id":1}', "schlüssel".encode()), Message('{"id":2}', BAD), Message('{"id":3}', None)]
    found = judged(spark, stream, messages)

    assert [row["id"] for row in found.rows] == [1, 3]
    assert [(x["offset"], x["reason"], x["field"]) for x in found.letters] == [(1, "invalid_utf8", f"columns.{path}")]


@pytest.mark.parametrize("sql", ["try_validate_utf8(CAST(kafka.key AS STRING))", "hex(kafka.key)", "base64(kafka.key)"])
def test_a_document_that_makes_other_text_of_such_bytes_gets_a_row(spark: SparkSession, sql: str) -> None:
    found = judged(spark, stream_of("id bigint", columns={"k": sql}), [Message('{"id":1}', BAD)])

    assert len(found.rows) == 1


def test_text_of_elements_is_utf8(spark: SparkSession) -> None:
    of_element = stream_of("ids array<int>", explode=Explode("id", "ids"), columns={"k": "CAST(kafka.key AS STRING)"})
    elements = stream_of("id int", explode=Explode("k", "array('a', CAST(kafka.key AS STRING))"))

    found = [
        judged(spark, stream, [Message('{"id":1,"ids":[1,2]}', key) for key in (b"k", BAD)])
        for stream in (of_element, elements)
    ]

    assert [len(f.rows) for f in found] == [2, 2]
    assert [[(x["reason"], x["field"]) for x in f.letters] for f in found] == [
        [("invalid_utf8", "columns.k")],
        [("invalid_utf8", "explode.k")],
    ]


def test_a_time_of_elements_that_an_expression_makes_is_within_the_years_1_to_9999(spark: SparkSession) -> None:
    stream = stream_of("ts bigint", explode=Explode("at", "array(timestamp_millis(ts))"))

    found = judged(spark, stream, ['{"ts":1}', '{"ts":1795000000000000}'])

    assert len(found.rows) == 1
    assert [(x["reason"], x["field"]) for x in found.letters] == [("out_of_range", "explode.at")]


def test_only_columns_that_are_made_by_a_cast_of_bytes_are_looked_at(spark: SparkSession) -> None:
    """Usual documents pay nothing: text of a record, of functions and of other casts is UTF-8 anyway."""
    rows = spark.sql("SELECT X'61' AS b, 'a' AS s, 1 AS n").selectExpr(
        "CAST(b AS STRING) AS a", "upper(s) AS u", "CAST(n AS STRING) AS t", "hex(b) AS h", "decode(b, 'UTF-8') AS d"
    )

    assert columns_of_bytes_as_text(rows.where("u <> 'x'")) == {"a"}


@pytest.mark.parametrize(
    ("mode", "sql"),
    [
        ("append", "SELECT id, date, CAST(unhex(host) AS STRING) AS `a-text` FROM events"),
        ("append", "SELECT id, date, array(named_struct('t', CAST(unhex(host) AS STRING))) AS `a-text` FROM events"),
        ("replace_dates", "SELECT date, max(CAST(unhex(host) AS STRING)) AS `a-text` FROM events GROUP BY date"),
        (
            {"deduplicate": {"keys": ["id"], "order_by": "id"}},
            "SELECT id, date, CAST(unhex(host) AS STRING) AS `a-text` FROM events",
        ),
        (
            {"aggregate": {"by": ["a-text"], "measures": {"n": "count"}}},
            "SELECT date, CAST(unhex(host) AS STRING) AS `a-text` FROM events",
        ),
        (
            {"upsert": {"keys": ["id"], "sequence_by": "bytes"}},
            "SELECT id, bytes, CAST(unhex(host) AS STRING) AS `a-text` FROM events",
        ),
    ],
)
def test_a_refined_table_takes_no_text_that_is_not_utf8(lakeside: Lakeside, mode: Any, sql: str) -> None:
    """Nothing is committed, and the error names the column."""
    fields = {"table": "silver/t", "from": "bronze/events", "mode": mode, "sql": sql, "partition_by": None}
    table = refined_table(**fields)
    lakeside.append([(1, "61", 10, "i", D1)])
    lakeside.refine(table)
    lakeside.append([(1, "fffe", 11, "u", D1), (2, "62", 20, "i", D1)])
    before = lakeside.version("silver/t")

    for rebuild in (False, True):
        with pytest.raises(TextNotUtf8, match="`a-text`"):
            lakeside.refine(table, rebuild=rebuild)

    assert lakeside.version("silver/t") == before
    lakeside.sql("DELETE FROM {t} WHERE host = 'fffe'")
    assert lakeside.refine(table).kind != "nothing"
