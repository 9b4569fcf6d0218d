"""``fields``: what becomes of fields that cannot be columns as they are, in each format."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.message_format import Avro, Json, Protobuf, SchemaFile
from kdi_assets.documents.model.message_rules import Contract, FieldUse, Mask
from kdi_assets.streams.rules.errors import ShapeMistake
from kdi_assets.streams.rules.shape import analyse
from tests.formats.avro_bytes import datum
from tests.formats.protobuf_messages import descriptors, message_class
from tests.judged import Judged, judged, stream_of

DROP, TEXT = FieldUse("drop"), FieldUse("text")


def rename(name: str) -> FieldUse:
    return FieldUse("rename", name)


def columns_and_row(found: Judged) -> dict[str, Any]:
    """The only row, without what is not of the record."""
    (row,) = found.rows
    return {column: value for column, value in row.items() if column not in ("kafka", "date")}


def avro(*fields: tuple[str, Any], namespace: str = "shop") -> dict[str, Any]:
    named = [{"name": name, "type": type_} for name, type_ in fields]
    return {"type": "record", "name": "Order", "namespace": namespace, "fields": named}


def avro_format(schema: Any) -> Avro:
    return Avro(SchemaFile("order.avsc", json.dumps(schema)))


NODE = avro(("id", "long"), ("children", {"type": "array", "items": "Order"}))
WIDE = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 0}
NOTHING = {"type": "record", "name": "Nothing", "fields": []}

REFUSED: dict[str, tuple[str, Any, str, str]] = {
    "json kafka": ("id bigint, kafka string", Json(), "kafka", "would hide the struct"),
    "json change feed": ("id bigint, _commit_version bigint", Json(), "_commit_version", "change data feed needs"),
    "json ours": ("id bigint, _kdi_x bigint", Json(), "_kdi_x", "begins with _kdi_"),
    "json case": ("id bigint, ID string", Json(), "ID", "differs from id in case alone"),
    "json nested case": ("a struct<id: bigint, ID: string>", Json(), "a.ID", "differs from id in case alone"),
    "json twice": ("id bigint, id string", Json(), "id", "is declared twice"),
    "json no fields": ("id bigint, meta struct<>", Json(), "meta", "has no fields"),
    "json nested no fields": ("id bigint, a array<struct<m: struct<>>>", Json(), "a", "a[].m has no fields"),
    "json character": ("id bigint, `first.name` string", Json(), "`first.name`", "a character that a column's name"),
    "json void": ("id bigint, v void", Json(), "v", "void, which is not supported"),
    "avro kafka": ("", avro_format(avro(("id", "long"), ("kafka", "string"))), "kafka", "would hide"),
    "avro case": ("", avro_format(avro(("id", "long"), ("ID", "string"))), "ID", "differs from id"),
    "avro recursive": ("", avro_format(NODE), "children", "children[] contains itself (shop.Order)"),
    "avro wide": ("", avro_format(avro(("id", "long"), ("n", WIDE))), "n", "is decimal(64,0), and a column has at"),
    "avro no fields": ("", avro_format(avro(("id", "long"), ("m", NOTHING))), "m", "has no fields"),
    "avro null": ("", avro_format(avro(("id", "long"), ("m", "null"))), "m", "can only be null"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_field_that_cannot_be_a_column_is_refused_by_its_path(spark: SparkSession, case: str) -> None:
    ddl, format_, path, said = REFUSED[case]

    with pytest.raises(ShapeMistake) as refused:
        analyse(stream_of(ddl, format=format_), spark)

    assert refused.value.field == f"fields.{path}"
    assert said in refused.value.message
    by_name = case.split(" ", 1)[1] in ("kafka", "change feed", "ours", "case", "twice", "character")
    assert ("rename: name" in refused.value.change) == by_name
    assert refused.value.change in refused.value.message_parts()[2]


def test_a_time_of_day_that_the_document_declares_is_refused(spark: SparkSession) -> None:
    for ddl in ("t time(6)", "a array<struct<t: time(3)>>"):
        with pytest.raises(ShapeMistake, match="which is not supported") as refused:
            analyse(stream_of(ddl), spark)
        assert refused.value.field == "schema"


@pytest.mark.parametrize("case", [case for case in REFUSED if not case.endswith("twice")])
def test_the_document_leaves_any_such_field_out(spark: SparkSession, case: str) -> None:
    ddl, format_, path, _ = REFUSED[case]
    top = path if path.startswith("`") else path.split("[")[0]
    columns = analyse(stream_of(ddl, format=format_, fields={top: DROP}), spark)

    left = [f"{f.name}:{f.dataType.simpleString()}" for f in columns.fields if f.name not in ("kafka", "date")]
    assert left == (["a:struct<id:bigint>"] if path == "a.ID" else ["id:bigint"] if "id" in ddl or not ddl else [])


def test_json_is_drained_with_fields_renamed_dropped_and_as_text(spark: SparkSession) -> None:
    """Expressions know the new names, and see what is dropped if a column could hold it."""
    ddl = "id bigint, ID string, kafka struct<topic: string>, `first.name` string, n int, meta struct<>, any string"
    fields = {
        "ID": rename("legacy_id"),
        "kafka": rename("source"),
        "kafka.topic": rename("name"),
        "`first.name`": rename("first_name"),
        "n": DROP,
        "meta": DROP,
        "any": TEXT,
    }
    message = {"id": 1, "ID": "x", "kafka": {"topic": "t"}, "first.name": "A", "n": 4, "meta": {"y": 1}}
    stream = stream_of(ddl, fields=fields, columns={"twice": "n * 2", "named": "source.name"})

    for value, text in (("plain", "plain"), ({"a": [1, 2.50]}, '{"a": [1, 2.5]}'), (1.5, "1.5"), (None, None)):
        found = judged(spark, stream, [json.dumps({**message, "any": value})])

        assert columns_and_row(found) == {
            "id": 1,
            "legacy_id": "x",
            "source": {"name": "t"},
            "first_name": "A",
            "any": text,
            "twice": 8,
            "named": "t",
        }
        assert not found.counts.unknown.fields


def test_masks_rescued_values_and_dead_letters_know_renamed_fields_by_both_names(spark: SparkSession) -> None:
    stream = stream_of(
        "id bigint, kafka string",
        fields={"kafka": rename("source")},
        mask={"source": Mask("null")},
        rescued="rescued",
        contract=Contract(types="discard_value"),
    )

    found = judged(spark, stream, ['{"id":1,"kafka":"secret","more":2}', '{"id":1,"kafka":["secret"]}', '{"id":{}'])
    letters = judged(
        spark,
        stream_of("id bigint, kafka string", fields=stream.fields, mask=stream.mask),
        ['{"id":"x","kafka":"secret"}'],
    )

    assert [(row["source"], row["rescued"]) for row in found.rows] == [(None, '{"more":2}'), (None, None)]
    assert [letter["value"] for letter in letters.letters] == [b'{"id":"x","kafka":null}']


def test_avro_is_drained_with_fields_renamed_and_dropped(spark: SparkSession) -> None:
    place = {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}
    schema = avro(
        ("id", "long"), ("ID", "string"), ("kafka", place), ("other", "Place"), ("n", WIDE), ("m", "int"),
        namespace="com.my-company.2nd",
    )  # fmt: skip
    value = {"id": 1, "ID": "x", "kafka": {"city": "A"}, "other": {"city": "B"}, "n": Decimal(1), "m": 5}
    fields = {
        "ID": rename("legacy_id"),
        "kafka": rename("source"),
        "kafka.city": rename("town"),
        "n": DROP,
        "m": DROP,
    }

    stream = stream_of("", format=avro_format(schema), fields=fields, columns={"twice": "m * 2"})
    written = [{**f, "type": place if f["type"] == "Place" else f["type"]} for f in schema["fields"]]
    found = judged(spark, stream, [datum({**schema, "fields": written}, value)])

    expected = {"id": 1, "legacy_id": "x", "source": {"town": "A"}, "other": {"city": "B"}, "twice": 10}
    assert columns_and_row(found) == expected


def test_a_time_of_day_is_text_that_sorts_as_the_time_does(spark: SparkSession) -> None:
    of_day = {"type": "long", "logicalType": "time-micros"}
    schema = avro(("id", "long"), ("at", of_day), ("all", {"type": "array", "items": of_day}))
    micros = [0, 45_296_000_000, 45_296_789_000, 86_399_999_000]
    stream = stream_of("", format=avro_format(schema))

    found = judged(spark, stream, [datum(schema, {"id": 1, "at": m, "all": [m]}) for m in micros])

    texts = [row["at"] for row in found.rows]
    assert texts == ["00:00:00", "12:34:56", "12:34:56.789", "23:59:59.999"]
    assert [row["all"] for row in found.rows] == [[text] for text in texts]


PROTO = """syntax = "proto2"; package shop;
message Order {
  required int64 id = 1; optional int32 ab = 2; optional int32 AB = 3; optional string kafka = 4;
  repeated Order parts = 5; optional Place place = 6; optional group Old = 7 { optional int32 a = 1; }
}
message Place { optional string city = 1; optional Place next = 2; }
"""
PROTO_PROBLEMS = {
    "AB": "differs from ab in case alone",
    "parts": "contains itself (shop.Order → shop.Order)",
    "place.next": "contains itself",
    "old": "is a group",
    "kafka": "would hide",
}


def test_protobuf_is_drained_with_fields_renamed_and_dropped(spark: SparkSession) -> None:
    order: Any = message_class(PROTO, "shop.Order")
    format_ = Protobuf("order.proto", descriptors(PROTO), "shop.Order")
    fields = {"AB": DROP, "parts": DROP, "place.next": DROP, "old": DROP, "kafka": rename("source"), "ab": DROP}
    sent = order(id=1, ab=2, AB=3, kafka="k", parts=[{"id": 2}], place={"city": "A", "next": {"city": "B"}})

    found = judged(spark, stream_of("", format=format_, fields=fields), [sent.SerializeToString()])

    assert columns_and_row(found) == {"id": 1, "source": "k", "place": {"city": "A"}}
    assert not found.counts.unknown.fields
    for path, said in PROTO_PROBLEMS.items():
        others = {other: use for other, use in fields.items() if other != path}
        with pytest.raises(ShapeMistake) as refused:
            analyse(stream_of("", format=format_, fields=others), spark)
        assert (refused.value.field, said in refused.value.message) == (f"fields.{path}", True)


def test_a_use_of_a_field_that_messages_do_not_have_is_a_mistake(spark: SparkSession) -> None:
    for format_, ddl in ((Json(), "id bigint"), (avro_format(avro(("id", "long"))), "")):
        with pytest.raises(ShapeMistake, match="messages have no such field"):
            analyse(stream_of(ddl, format=format_, fields={"idd": DROP}), spark)


def test_only_a_field_of_json_becomes_text(spark: SparkSession) -> None:
    with pytest.raises(ShapeMistake, match="only a field of JSON can become text"):
        analyse(stream_of("", format=avro_format(avro(("id", "long"))), fields={"id": TEXT}), spark)


def test_properties_of_a_json_schema_that_have_no_type_are_dropped_or_text(spark: SparkSession) -> None:
    schema = {
        "properties": {
            "id": {"type": "integer"},
            "any": {},
            "several": {"type": ["string", "integer", "object"]},
            "node": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#"}}},
        }
    }
    format_ = Json(SchemaFile("order.json", json.dumps(schema)))
    fields = {"any": DROP, "several": TEXT, "node.next": TEXT}
    message = {"id": 1, "any": [1], "several": {"a": 1}, "node": {"v": 2, "next": {"id": 3}}}

    found = judged(spark, stream_of("", format=format_, fields=fields), [json.dumps(message)])

    assert columns_and_row(found) == {"id": 1, "several": '{"a": 1}', "node": {"v": 2, "next": '{"id": 3}'}}
    assert not found.counts.unknown.fields
    with pytest.raises(ShapeMistake, match="#/properties/several has several types"):
        analyse(stream_of("", format=format_, fields={**fields, "several": rename("x")}), spark)


def logical(name: str, type_: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "logicalType": name, **more}


FIXED = {"type": "fixed", "name": "F", "size": 12}
AVRO_TYPES: list[tuple[Any, str]] = [
    ("boolean", "boolean"),
    ("int", "int"),
    ("long", "bigint"),
    ("float", "float"),
    ("double", "double"),
    ("bytes", "binary"),
    ("string", "string"),
    (FIXED, "binary"),
    ({**FIXED, "logicalType": "duration"}, "binary"),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, "string"),
    (logical("uuid", "string"), "string"),
    (avro(("n", "int")) | {"name": "Inner"}, "struct<n:int>"),
    ({"type": "array", "items": "int"}, "array<int>"),
    ({"type": "map", "values": "int"}, "map<string,int>"),
    (["null", "int"], "int"),
    (["string", "int"], "struct<member0:string,member1:int>"),
    (["int", "long"], "bigint"),
    (["float", "double"], "double"),
    (logical("decimal", "bytes", precision=38, scale=9), "decimal(38,9)"),
    (logical("date", "int"), "date"),
    (logical("timestamp-millis", "long"), "timestamp"),
    (logical("timestamp-micros", "long"), "timestamp"),
    (logical("local-timestamp-millis", "long"), "timestamp_ntz"),
    (logical("local-timestamp-micros", "long"), "timestamp_ntz"),
    (logical("time-micros", "long"), "string"),
    (logical("time-millis", "int"), "int"),
    (logical("timestamp-nanos", "long"), "bigint"),
]


def test_types_of_avro_become_the_columns_that_the_page_says(spark: SparkSession) -> None:
    for type_, column in AVRO_TYPES:
        found = analyse(stream_of("", format=avro_format(avro(("x", type_)))), spark)

        assert (type_, found["x"].dataType.simpleString()) == (type_, column)
