"""What `kdi new` makes of messages behind a registry's frame: their format, their record and their dates."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from kdi_assets.formats.registry.schema import Schema
from kdi_assets.message_format import AvroRegistry, Bytes, JsonRegistry, ProtobufRegistry
from kdi_assets.proposal.registered import Registered
from tests.avro_bytes import datum
from tests.protobuf_messages import message_class
from tests.sampled import NOW, framed, objects, proposed, read_back, text_of

AT = NOW.isoformat()


def protobuf(text: str, message: str, fields: dict[str, Any]) -> bytes:
    return bytes(ParseDict(fields, message_class(text, message)()).SerializeToString())


def test_frames_tell_their_schemas_and_what_the_registry_says_of_them(tmp_path: Path) -> None:
    values: list[bytes | None] = [framed(b'{"id": 1}', n % 2 + 7) for n in range(50)]
    schemas = {7: Schema(7, "JSON", '{"title": "Order", "type": "object"}'), 8: None}
    alone, asked = proposed(values), proposed(values, registered=Registered("main", "orders-value", schemas))

    assert alone.recognised.frames is not None
    assert alone.recognised.frames.ids == {7: 25, 8: 25}
    assert "# schema 7: 25 messages\n" in text_of(alone)
    assert "# no SchemaRegistry document says where to ask for these schemas\n" in text_of(alone)
    assert "# schema 7: 25 messages, JSON Order\n" in text_of(asked)
    assert "# schema 8: 25 messages, unknown to registry main\n" in text_of(asked)
    stream = read_back(tmp_path, text_of(asked)).streams["bronze/orders"]
    assert stream.format == Bytes()
    assert list(stream.columns) == ["schema_id", "document"]


def a_record(*fields: tuple[str, Any], name: str = "Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


def test_json_of_a_registry_is_decoded_by_the_types_that_were_seen(tmp_path: Path) -> None:
    reader = Schema(7, "JSON", '{"type": "object"}')
    said = Registered("main", "orders-value", {7: reader, 8: None, 9: Schema(9, "AVRO", "{}")}, 3, reader)
    good = [framed(value or b"") for value in objects(95, at=AT)]
    bad = [framed(b"{"), b"{}", framed(b"{}", 8), framed(b"{}", 9), framed(b"[1]")]
    found = proposed([*good, *bad], registered=said)
    stream = read_back(tmp_path, text_of(found)).streams["bronze/orders"]

    assert isinstance(stream.format, JsonRegistry)
    assert stream.record_ddl.split() == "id bigint, -- 100% at timestamp -- 100%".split()
    assert found.outcome.rows == 95
    assert found.outcome.letters == {
        ("malformed_json", ""): 1,
        ("no_magic_byte", ""): 1,
        ("unknown_schema", ""): 1,
        ("incompatible_schema", ""): 1,
        ("not_an_object", ""): 1,
    }


@pytest.mark.parametrize(
    ("payload", "name"), [(b'{"id": 1}', "json"), (b"\0\x08\x01", "protobuf"), (b"\2\x0eabcdefg", "avro")]
)
def test_frames_that_no_registry_explains_land_as_bytes_and_the_document_says_what_would_decode_them(
    payload: bytes, name: str
) -> None:
    text = text_of(proposed([framed(payload)] * 20))

    assert f"# They are decoded by `format: {{{name}: {{registry: NAME, subject: SUBJECT}}}}`" in text
    assert "  format: bytes\n" in text


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
ORDER = a_record(
    ("id", "long"),
    ("place", ["null", a_record(("at", MILLIS), ("tags", {"type": "array", "items": "string"}), name="Place")]),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
)


def said(schema: Any) -> Registered:
    """A registry that has this schema as the subject's third version, and as 7."""
    reader = Schema(7, "AVRO", json.dumps(schema))
    return Registered("main", "orders-value", {7: reader, 8: None, 9: Schema(9, "JSON", "{}")}, 3, reader)


def an_order(n: int, *, place: bool = True) -> dict[str, Any]:
    tags = [] if n % 2 else ["a", "b"]
    return {"id": n, "place": {"at": NOW, "tags": tags} if place else None, "kind": "OLD", "price": Decimal("1.25")}


def test_avro_of_a_registry_is_decoded_and_its_dates_are_seen(tmp_path: Path) -> None:
    good = [framed(datum(ORDER, an_order(n, place=n > 0))) for n in range(91)]
    whole = good[1]
    bad = [whole[:-1], whole + b"x", b"x", b"\0\0", framed(whole[5:], 8), framed(whole[5:], 9), framed(whole[5:], 99)]
    found = proposed([*good, *bad], registered=said(ORDER))
    stream = read_back(tmp_path, text_of(found)).streams["bronze/orders"]

    assert isinstance(stream.format, AvroRegistry)
    assert (stream.format.schemas.registry.name, stream.format.schemas.subject) == ("main", "orders-value")
    assert stream.date_expression == "coalesce(to_date(place.at), to_date(kafka.timestamp))"
    assert found.outcome.rows == 91
    assert found.outcome.letters == {
        ("malformed_avro", ""): 1,
        ("trailing_bytes", ""): 1,
        ("no_magic_byte", ""): 1,
        ("too_short", ""): 1,
        ("unknown_schema", ""): 1,
        ("incompatible_schema", ""): 1,
    }
    assert found.outcome.unjudged == 1  # a schema that is not among those that were asked for
    assert "# schema 7: 93 messages, AVRO Order\n" in text_of(found)
    assert "latest version of orders-value, now 3" in text_of(found)


OF_PROTOBUF = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
enum Kind { NEW = 0; OLD = 1; }
message Order { int64 id = 1; optional Place place = 2; Kind kind = 3; map<string, int32> counts = 4; string day = 5; }
message Other { int64 id = 1; }
message Place { google.protobuf.Timestamp at = 1; repeated string tags = 2; }
"""


def test_protobuf_of_a_registry_is_decoded_and_its_dates_are_seen(tmp_path: Path) -> None:
    place = {"at": AT, "tags": ["a"]}
    good = [
        framed(
            b"\0"
            + protobuf(OF_PROTOBUF, "shop.Order", {"id": n, "counts": {"a": 1}, **({"place": place} if n else {})})
        )
        for n in range(92)
    ]
    other, whole = protobuf(OF_PROTOBUF, "shop.Other", {"id": 1}), good[1][5:]
    bad = [good[1][:-1], framed(b"\2\2" + other), framed(b""), framed(whole, 8), framed(whole, 9)]
    reader = Schema(7, "PROTOBUF", OF_PROTOBUF)
    said = Registered("main", "orders-value", {7: reader, 8: None, 9: Schema(9, "JSON", "{}")}, 3, reader)
    found = proposed([*good, *bad], registered=said)
    stream = read_back(tmp_path, text_of(found)).streams["bronze/orders"]

    assert isinstance(stream.format, ProtobufRegistry)
    assert stream.date_expression == "coalesce(to_date(place.at), to_date(kafka.timestamp))"
    assert found.outcome.rows == 92
    assert found.outcome.letters == {
        ("malformed_protobuf", ""): 1,
        ("other_message", ""): 1,
        ("too_short", ""): 1,
        ("unknown_schema", ""): 1,
        ("incompatible_schema", ""): 1,
    }
    assert "latest version of orders-value, now 3" in text_of(found)
    assert stream.format.message == ""


def test_the_message_of_protobuf_is_the_one_that_most_messages_are(tmp_path: Path) -> None:
    reader = Schema(7, "PROTOBUF", OF_PROTOBUF)
    said = Registered("main", "orders-value", {7: reader}, 1, reader)
    values = [framed(b"\2\2" + protobuf(OF_PROTOBUF, "shop.Other", {"id": n})) for n in range(1, 20)]
    found = proposed([*values, framed(b"\0" + protobuf(OF_PROTOBUF, "shop.Order", {"id": 1}))], registered=said)
    stream = read_back(tmp_path, text_of(found)).streams["bronze/orders"]

    assert isinstance(stream.format, ProtobufRegistry)
    assert stream.format.message == "shop.Other"
    assert (found.outcome.rows, found.outcome.letters) == (19, {("other_message", ""): 1})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("syntax = 'proto3'; message M { int32 kafka = 1; }", "no column can be called kafka"),
        ("syntax = 'proto3'; message M { M next = 1; }", "M holds itself"),
        ("syntax = 'proto3'; enum E { A = 0; }", "no message"),
    ],
)
def test_protobuf_that_no_table_can_have_lands_as_bytes_and_the_document_says_why(
    text: str, why: str, tmp_path: Path
) -> None:
    reader = Schema(7, "PROTOBUF", text)
    found = proposed([framed(b"\0\x08\1")] * 20, registered=Registered("main", "orders-value", {7: reader}, 1, reader))

    assert read_back(tmp_path, text_of(found)).streams["bronze/orders"].format == Bytes()
    assert re.search(f"# the record of orders-value cannot be a table's: .*{why}", text_of(found))


LIST_OF_ITSELF = a_record(("next", ["null", "Order"]))


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("string", "it describes no record"),
        (a_record(("kafka", "long")), "no column can be called kafka"),
        (a_record(("id", "long"), ("ID", "long")), "no column can be called id, ID"),
        (LIST_OF_ITSELF, "it contains itself"),
        (a_record(("nothing", "null")), "it has a field that is always null"),
        (a_record(), "it has a record without fields"),
    ],
)
def test_avro_that_no_table_can_have_lands_as_bytes_and_the_document_says_why(
    schema: Any, why: str, tmp_path: Path
) -> None:
    found = proposed([framed(b"\2\2")] * 20, registered=said(schema))

    assert read_back(tmp_path, text_of(found)).streams["bronze/orders"].format == Bytes()
    assert f"# the record of orders-value cannot be a table's: {why}\n" in text_of(found)
