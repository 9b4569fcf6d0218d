"""Schemas of a registry: compiled with what they refer to, and held against the record that messages become."""

from __future__ import annotations

import pytest

from kdi_assets.formats.protobuf.compatible import becomes, unknown_paths
from kdi_assets.formats.protobuf.compiler import schema_descriptors
from kdi_assets.formats.protobuf.descriptors import DescriptorMistake, Descriptors
from kdi_assets.formats.protobuf.records import record_of
from kdi_assets.formats.registry.schema import Referenced, Schema
from tests.protobuf_messages import descriptors

HEAD = 'syntax = "proto3"; package shop; '
PLACE = Referenced("shop/place.proto", HEAD + "message Place { string city = 1; }")
ORDER = HEAD + 'import "shop/place.proto"; import "google/protobuf/timestamp.proto"; message Order { Place place = 1; }'


def test_a_schema_is_compiled_with_what_it_refers_to() -> None:
    compiled = Descriptors(schema_descriptors(Schema(1, "PROTOBUF", ORDER, (PLACE,))))

    assert compiled.messages() == ["shop.Place", "shop.Order"]
    assert compiled.message_at((0,)) == "shop.Order"
    assert compiled.message_at((1,)) is None


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (Schema(1, "AVRO", '"string"'), "schema 1 is of type AVRO"),
        (Schema(2, "PROTOBUF", ORDER), "shop/place.proto: File not found."),
        (Schema(3, "PROTOBUF", "no proto"), "schema-3.proto:1:1: Expected"),
        (Schema(4, "PROTOBUF", ORDER, (Referenced("../up.proto", ""),)), "schema 4 refers to ../up.proto, which is no"),
    ],
)
def test_a_schema_that_does_not_compile_is_told_with_what_protoc_says(schema: Schema, said: str) -> None:
    with pytest.raises(DescriptorMistake) as refused:
        schema_descriptors(schema)

    assert refused.value.message.startswith(said)


RECORD = (
    HEAD
    + "message Order { int64 a = 1; repeated string b = 2; Place c = 3; Kind d = 4; map<string, int64> e = 5; "
    + "string f = 6; } message Place { string city = 1; } enum Kind { NONE = 0; }"
)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("int64 other_name = 1;", True),
        ("int32 a = 1;", True),
        ("bool a = 1;", True),
        ("sint64 a = 1;", False),
        ("uint64 a = 1;", False),
        ("string a = 1;", False),
        ("string b = 2;", True),
        ("bytes f = 6;", True),
        ("Place c = 3; string more = 9;", True),
        ("message Other { string town = 1; int32 more = 2; } Other c = 3;", True),
        ("int32 d = 4;", True),
        ("map<string, int32> e = 5;", True),
        ("repeated int64 e = 5;", False),
    ],
)
def test_what_was_written_before_a_change_becomes_the_record_or_is_told_not_to(fields: str, expected: bool) -> None:
    reader = record_of(Descriptors(descriptors(RECORD)).message("shop.Order"))
    text = HEAD + f"message Order {{ {fields} }} message Place {{ string city = 1; }}"

    writer = Descriptors(schema_descriptors(Schema(hash(fields) & 0xFFFF, "PROTOBUF", text)))

    assert becomes(writer, "shop.Order", reader) is expected
    assert becomes(writer, "shop.Another", reader)


def test_fields_of_a_writer_that_the_record_has_not_are_named() -> None:
    order, nothing = "message Order { Place c = 3; repeated Place many = 4; Nothing none = 5; }", "message Nothing {}"
    ours = f"{HEAD} {order} {nothing} message Place {{ string city = 1; }}"
    order = "message Order { Place d = 3; Place one = 4; Nothing none = 5; int32 more = 9; }"
    nothing, place = "message Nothing { int32 a = 2; }", "message Place { string city = 1; string street = 2; }"
    reader = record_of(Descriptors(descriptors(ours)).message("shop.Order"))

    writer = Descriptors(schema_descriptors(Schema(77, "PROTOBUF", f"{HEAD} {order} {nothing} {place}")))

    assert becomes(writer, "shop.Order", reader)
    assert unknown_paths(writer, "shop.Order", reader) == {
        "c.#2": "d.street",
        "many[].#2": "one.street",
        "none.#2": "none.a",
        "#9": "more",
    }
    assert unknown_paths(writer, "shop.Another", reader) == {}
