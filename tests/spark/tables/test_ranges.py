"""Dates and timestamps that readers of the table could not read: dead letters, whatever made them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.message_format import Avro, SchemaFile
from kdi_assets.documents.model.message_rules import Explode, FieldUse
from kdi_assets.follow.refine.row_errors import TimeOutOfRange
from tests.formats.avro_bytes import long
from tests.judged import judged, stream_of
from tests.refined import D1, Lakeside, refined_table

MICROS = 1_795_000_000_000_000
"""Of a year within bounds; read as milliseconds it is one of 58,851."""

MADE: dict[str, tuple[str, str]] = {
    "date": ("due", "to_date(timestamp_millis(ts))"),
    "timestamp": ("due", "timestamp_millis(ts)"),
    "without a zone": ("due", "CAST(timestamp_millis(ts) AS TIMESTAMP_NTZ)"),
    "before year 1": ("due", "timestamp_millis(-ts)"),
    "in a struct": ("due", "named_struct('a', named_struct('at', timestamp_millis(ts)))"),
    "nested by its path": ("some.due", "timestamp_millis(ts)"),
    "in an array": ("due", "array(NULL, timestamp_millis(ts))"),
    "in a map's values": ("due", "map('a', array(to_date(timestamp_millis(ts))))"),
    "in a map's keys": ("due", "map(to_date(timestamp_millis(coalesce(ts, 0))), 1)"),
}


@pytest.mark.parametrize("case", MADE)
def test_a_time_that_an_expression_makes_is_within_the_years_1_to_9999(spark: SparkSession, case: str) -> None:
    path, sql = MADE[case]
    stream = stream_of("id bigint, ts bigint", columns={path: sql})

    found = judged(spark, stream, [json.dumps({"id": n, "ts": ts}) for n, ts in ((1, 1000), (2, MICROS), (3, None))])

    assert [row["id"] for row in found.rows] == [1, 3]
    assert [(x["offset"], x["reason"], x["field"]) for x in found.letters] == [(1, "out_of_range", f"columns.{path}")]


@pytest.mark.parametrize("sql", ["DATE'9999-12-31' + int(n)", "DATE'0001-01-01' - int(n)"])
def test_the_first_and_the_last_day_are_within(spark: SparkSession, sql: str) -> None:
    found = judged(spark, stream_of("n bigint", columns={"d": sql}), ['{"n":0}', '{"n":1}'])

    assert (len(found.rows), [letter["offset"] for letter in found.letters]) == (1, [1])


@pytest.mark.parametrize(
    ("type_", "outside"),
    [
        ({"type": "int", "logicalType": "date"}, 2_932_897),
        ({"type": "long", "logicalType": "timestamp-millis"}, MICROS),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, MICROS),
    ],
)
@pytest.mark.parametrize("inside", ["", "array"])
def test_a_time_of_avro_is_too(spark: SparkSession, type_: Any, outside: int, inside: str) -> None:
    """Unless nobody asked for it."""
    shape = {"type": "array", "items": type_} if inside else type_
    schema = {"type": "record", "name": "R", "fields": [{"name": "t", "type": shape}, {"name": "n", "type": "int"}]}
    format_ = Avro(SchemaFile("r.avsc", json.dumps(schema)))

    def message(value: int) -> bytes:
        return (long(1) + long(value) + long(0) if inside else long(value)) + long(7)

    found = judged(spark, stream_of("", format=format_), [message(1), message(outside)])
    dropped = judged(spark, stream_of("", format=format_, fields={"t": FieldUse("drop")}), [message(outside)])

    assert len(found.rows) == 1
    assert [(x["offset"], x["reason"], x["field"]) for x in found.letters] == [(1, "out_of_range", "t")]
    assert len(dropped.rows) == 1


def test_a_time_of_any_element_makes_its_message_a_dead_letter(spark: SparkSession) -> None:
    stream = stream_of("ts array<bigint>", explode=Explode("t", "ts"), columns={"at": "timestamp_millis(t)"})

    found = judged(spark, stream, ['{"ts":[1,2]}', f'{{"ts":[1,{MICROS}]}}'])

    assert [row["at"] for row in found.rows] == [datetime(1970, 1, 1, 0, 0, 0, 1000 * ms) for ms in (1, 2)]
    assert [(x["reason"], x["field"]) for x in found.letters] == [("out_of_range", "columns.at")]


@pytest.mark.parametrize(
    ("mode", "sql"),
    [
        ("append", "SELECT id, date, timestamp_millis(bytes) AS `at-first` FROM events"),
        ("append", "SELECT id, date, array(named_struct('t', timestamp_millis(bytes))) AS `at-first` FROM events"),
        ("replace_dates", "SELECT date, max(to_date(timestamp_millis(bytes))) AS `at-first` FROM events GROUP BY date"),
        (
            {"deduplicate": {"keys": ["id"], "order_by": "id"}},
            "SELECT id, date, timestamp_millis(bytes) AS `at-first` FROM events",
        ),
        (
            {"upsert": {"keys": ["id"], "sequence_by": "bytes"}},
            "SELECT id, date, bytes, timestamp_millis(bytes) AS `at-first` FROM events",
        ),
    ],
)
def test_a_refined_table_takes_no_time_out_of_the_years_1_to_9999(lakeside: Lakeside, mode: Any, sql: str) -> None:
    """Nothing is committed, and the error names the column."""
    fields = {"table": "silver/t", "from": "bronze/events", "mode": mode, "sql": sql, "partition_by": None}
    table = refined_table(**fields)
    lakeside.append([(1, "a", 10, "i", D1)])
    lakeside.refine(table)
    lakeside.append([(1, "a", MICROS, "u", D1), (2, "b", 20, "i", D1)])
    before = lakeside.version("silver/t")

    for rebuild in (False, True):
        with pytest.raises(TimeOutOfRange, match="`at-first`"):
            lakeside.refine(table, rebuild=rebuild)

    assert lakeside.version("silver/t") == before
    lakeside.sql("DELETE FROM {t} WHERE bytes > 1000")
    assert lakeside.refine(table).kind != "nothing"
