"""An Avro object container: all of its records, or one dead letter with its reason; never a part."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.message_format import AvroContainer, SchemaFile
from kdi_assets.documents.model.message_rules import Expectation, Mask
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.formats.avro.decoder import why_refused
from kdi_assets.messages.formats.avro.schema_text import canonical_form
from kdi_assets.streams.ledger.entry import FieldCounts
from kdi_assets.streams.rules.verdict import DEAD_LETTER, FILTERED
from tests.formats.avro_bytes import COMPRESS, SYNC, container, datum, long
from tests.judged import Judged, judged, stream_of

Schema = dict[str, Any]


def record(*fields: Schema, name: str = "Order", **more: Any) -> Schema:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, type_: Any, **more: Any) -> Schema:
    return {"name": name, "type": type_, **more}


PLACE = record(field("city", ["null", "string"]), name="Place")
SCHEMA = record(
    field("id", "long"),
    field("s", "string"),
    field("case", ["null", PLACE], default=None),
    field("kind", {"type": "enum", "name": "Kind", "symbols": ["RED", "GREEN"]}, default="RED"),
)
OLDER = record(field("id", "int"), field("s", "string"), field("gone", "double"))
FOREIGN = record(field("id", "string"), field("s", "string"))


def row(n: int) -> Schema:
    return {"id": n, "s": f"ü{n}", "case": {"city": "Zürich"} if n % 2 else None, "kind": "GREEN"}


def rows(*numbers: int) -> list[Schema]:
    return [row(n) for n in numbers]


def stream(**fields: Any) -> Stream:
    given = {"date_expression": "date_add(DATE'2026-03-01', CAST(id % 3 AS INT))", **fields}
    return stream_of("", format=AvroContainer(SchemaFile("orders.avsc", json.dumps(SCHEMA))), **given)


def kept(found: Judged) -> list[Schema]:
    return [{name: value for name, value in each.items() if name not in ("kafka", "date")} for each in found.rows]


def spoilt(codec: str) -> bytes:
    """A container with one byte of its block changed."""
    whole = container(SCHEMA, rows(*range(20)), codec=codec)
    begin = whole.index(SYNC) + len(SYNC) + 20
    return whole[:begin] + bytes([whole[begin] ^ 0x55]) + whole[begin + 1 :]


GOOD = container(SCHEMA, rows(1, 2), rows(3))
CONDEMNED: dict[bytes, str] = {
    b"": "blank",
    b'{"id": 1}': "not_a_container",
    datum(SCHEMA, row(1)): "not_a_container",
    **{GOOD[:-cut]: "malformed_container" for cut in (1, 16, 17, 20, len(GOOD) - 6)},
    GOOD + b"\x00": "malformed_container",
    GOOD[:-16] + bytes(16): "malformed_container",
    b"Obj\x01" + long(0) + SYNC: "malformed_container",
    container(SCHEMA, rows(1), text="no schema"): "malformed_container",
    container(SCHEMA, rows(1), text='{"type": "record", "name": "R", "fields": 7}'): "malformed_container",
    container(SCHEMA, rows(1), text=json.dumps(record(field("1", "int")))): "incompatible_schema",
    container(FOREIGN, [{"id": "1", "s": "1"}]): "incompatible_schema",
    container("string", ["1"]): "incompatible_schema",
    container(SCHEMA, rows(1)).replace(b"null\x00", b"lzma\x00", 1): "unknown_codec",
    **{spoilt(codec): "corrupt_block" for codec in ("bzip2", "xz", "snappy")},
    container(SCHEMA): "empty_container",
    container(SCHEMA, []): "empty_container",
    # A block of two datums whose header says three, or one.
    GOOD.replace(SYNC + long(2), SYNC + long(3)): "malformed_avro",
    GOOD.replace(SYNC + long(2), SYNC + long(1)): "malformed_avro",
    container(SCHEMA, [{**row(1), "kind": "GREEN"}]).replace(b"\x02\x0eZ", b"\x08\x0eZ"): "malformed_avro",
    GOOD.replace("ü1".encode(), b"\xff\xff1"): "invalid_utf8",
}
BOMBS = {
    container(SCHEMA, [{**row(1), "s": "x" * 65 * 2**20}], codec="deflate"): "too_large",
    container(record(name="Nothing"), [{}] * 1_000_001): "too_large",
}


@pytest.mark.core
def test_all_records_of_a_container_become_rows_whatever_it_was_compressed_with(spark: SparkSession) -> None:
    """With the stream's own schema, in any layout, no schema is read first; each is opened and decoded once."""
    said_otherwise = json.dumps({**SCHEMA, "doc": "an order", "aliases": ["O"]}, indent=7)
    messages = [container(SCHEMA, rows(n, n + 1), [], rows(n + 2), codec=c) for n, c in enumerate(COMPRESS)]
    messages += [container(SCHEMA, rows(9), codec=None, text=said_otherwise)]

    found = judged(spark, stream(filter="size(records) > 0"), messages)

    assert kept(found) == [*(r for n in range(len(COMPRESS)) for r in rows(n, n + 1, n + 2)), row(9)]
    assert (found.counts.messages, found.counts.became_rows, found.counts.rows) == (7, 7, 19)
    assert found.counts.unknown_schemas == 0
    assert [(r["kafka"]["offset"], r["kafka"]["index"], r["kafka"]["count"]) for r in found.rows[-3:]] == [
        (5, 1, 3),
        (5, 2, 3),
        (6, 0, 1),
    ]
    assert found.rows[1]["date"] == date(2026, 3, 2)
    plan = found.plan.partition("== Optimized Logical Plan ==")[2].partition("== Physical Plan ==")[0]
    assert (plan.count("ArrowEvalPython"), plan.count("from_avro(")) == (1, 1)


def test_what_is_no_container_of_such_records_is_one_dead_letter_with_its_reason(spark: SparkSession) -> None:
    messages = [*CONDEMNED, *BOMBS, GOOD]

    found = judged(spark, stream(date_expression="DATE'2026-03-01'"), messages, asks=True)

    wanted = [*CONDEMNED.values(), *BOMBS.values()]
    assert [(letter["offset"], letter["reason"]) for letter in found.letters] == list(enumerate(wanted))
    assert [bytes(letter["value"]) for letter in found.letters] == messages[:-1]
    assert kept(found) == rows(1, 2, 3)
    [text] = [letter for letter in found.letters if letter["reason"] == "invalid_utf8"]
    assert text["field"] == "records[].s"


def test_containers_of_other_schemas_become_the_streams_records_once_they_were_asked_for(spark: SparkSession) -> None:
    messages = [container(OLDER, [{"id": 7, "s": "x", "gone": 1.5}] * 2), GOOD, container(FOREIGN, [])]

    unasked, found = judged(spark, stream(), messages), judged(spark, stream(), messages, asks=True)

    assert unasked.counts.unknown_schemas == 2
    assert kept(found)[:2] == [{"id": 7, "s": "x", "case": None, "kind": "RED"}] * 2
    assert len(found.rows) == 5
    assert found.counts.unknown.fields == FieldCounts(1, {"gone": 1})
    assert [(x["offset"], x["reason"]) for x in found.letters] == [(2, "incompatible_schema")]
    assert found.counts.unknown_schemas == 0


def test_expressions_see_a_record_and_the_filter_and_expectations_all_of_a_message(spark: SparkSession) -> None:
    """Fields are names, also those with another meaning in SQL; one record without a date rejects the message."""
    asked = stream(
        columns={"half": "100 / id", "town": "upper(`case`.city)", "case.n": "length(s) + size(records)"},
        filter="size(records) > 0",
        expectations={"few": Expectation("size(records) < 3")},
        date_expression="CASE WHEN id < 50 THEN DATE'2026-03-01' END",
        mask={"s": Mask("keep_last", keep=1), "case.city": Mask("null")},
        tombstones="row",
    )
    messages = [container(SCHEMA, rows(1, 2)), container(SCHEMA), container(SCHEMA, rows(4, 50)), GOOD]
    messages += [container(SCHEMA, rows(1, 0))]

    found = judged(spark, asked, messages)

    assert [(x["offset"], x["reason"], x["field"], x["value"]) for x in found.letters] == [
        (2, "no_date", "date", None),
        (4, "expression_failed", "columns.half", None),
    ]
    assert kept(found)[:2] == [
        {"id": 1, "s": "*1", "case": {"city": None, "n": 4}, "kind": "GREEN", "half": 100.0, "town": "ZÜRICH"},
        {"id": 2, "s": "*2", "case": {"city": None, "n": 4}, "kind": "GREEN", "half": 50.0, "town": None},
    ]
    assert found.counts.not_rows == {(0, DEAD_LETTER): 2, (0, FILTERED): 1}
    assert {name: unmet.count for name, unmet in found.counts.unmet.items()} == {"few": 1}


def test_a_tombstone_can_be_a_row_in_which_every_field_is_null(spark: SparkSession) -> None:
    asked = stream(tombstones="row", columns={"deleted": "kafka.tombstone"}, date_expression="DATE'2026-03-01'")

    found = judged(spark, asked, [None])

    assert kept(found) == [{"id": None, "s": None, "case": None, "kind": None, "deleted": True}]


@pytest.mark.parametrize(
    "schema",
    [
        SCHEMA,
        record(
            field("a", record(field("b", {"type": "fixed", "name": "F", "size": 4}), name="z.In", doc="d")),
            field("again", "z.In", order="ignore"),
            field("f", ["null", "z.F"], default=None),
            field("m", {"type": "map", "values": {"type": "array", "items": {"type": "long", "order": "ignore"}}}),
            field("self", ["null", "R"]),
            field("plain", {"type": "string"}),
            name="R",
            namespace="n",
            aliases=["Q"],
        ),
        ["null", {"type": "enum", "name": "E", "symbols": ["A"], "default": "A", "namespace": ""}],
    ],
)
def test_the_canonical_form_is_that_of_avros_own_library(spark: SparkSession, schema: Any) -> None:
    jvm: Any = spark._jvm
    parsed = jvm.org.apache.avro.Schema.Parser().parse(json.dumps(schema))

    assert canonical_form(json.dumps(schema)) == jvm.org.apache.avro.SchemaNormalization.toParsingForm(parsed)


def test_a_schema_of_another_unit_is_another_one_and_does_not_become_this_one(spark: SparkSession) -> None:
    millis, micros = (
        json.dumps(record(field("at", {"type": "long", "logicalType": f"timestamp-{unit}"})))
        for unit in ("millis", "micros")
    )

    assert canonical_form(millis) != canonical_form(micros)
    assert why_refused(millis, micros) == "at: another unit or scale"
    assert why_refused(micros, micros) == ""


def test_a_schema_without_a_field_whose_default_is_none_of_its_symbols_does_not_become_this_one(
    spark: SparkSession,
) -> None:
    """Avro's check of two schemas does not look at defaults, and its decoder refuses to begin."""
    kind = {"type": "enum", "name": "E", "symbols": ["A"]}
    reader = json.dumps(record(field("id", "long"), {"name": "kind", "type": kind, "default": "B"}))
    without, same = record(field("id", "long")), record(field("id", "long"), field("kind", kind))

    assert "B" in why_refused(reader, json.dumps(without))
    assert why_refused(reader, json.dumps(same)) == ""
