"""What `kdi new` makes of messages behind a registry's frame: format, record and date are those of the subject."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kdi_assets.message_format import AvroRegistry, Bytes, JsonRegistry, ProtobufRegistry
from kdi_assets.proposal.recognise import Ask
from kdi_assets.proposal.registered import subject_of
from tests.fake_registry import RunningRegistry
from tests.framed import framed
from tests.sampled import NOW, objects, proposed, read_back, text_of

pytestmark = pytest.mark.usefixtures("at_once")


@pytest.fixture
def ask(registry: RunningRegistry, tmp_path: Path) -> Ask:
    """Asks a registry that knows nothing as yet."""
    return partial(subject_of, "orders", registry.described(), tmp_path)


def a_record(*fields: tuple[str, Any], name: str = "Order") -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]})


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
PLACE = ["null", json.loads(a_record(("at", MILLIS), ("next", ["null", "Place"]), name="Place"))]
AVRO = a_record(
    ("id", "long"), ("updated_at", MILLIS), ("place", PLACE), ("date", {"type": "int", "logicalType": "date"})
)
BORN = AVRO.replace('"date"', '"born"', 1)
PROTOBUF = """
syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
message Order { int64 id = 1; Place place = 2; map<string, int32> counts = 3; }
message Other { google.protobuf.Timestamp at = 1; }
message Place { google.protobuf.Timestamp at = 1; repeated string tags = 2; }
"""


def test_json_of_a_registry_is_decoded_by_the_types_that_were_seen(
    registry: RunningRegistry, ask: Ask, tmp_path: Path
) -> None:
    known = registry.register("orders-value", '{"type": "object"}', type="JSON")
    other = registry.register("others-value", '"int"')
    values = [framed(known, value or b"") for value in objects(94, at=NOW.isoformat())]
    bad = [b"x", *(framed(known, payload) for payload in (b"{", b"[1]")), framed(99, b"{}"), framed(other, b"{}")]
    found = proposed([*values, *bad], ask=ask)
    stream = read_back(tmp_path / "defs", text_of(found)).streams["bronze/orders"]

    assert isinstance(stream.format, JsonRegistry)
    assert stream.record_ddl.split() == "id bigint, -- 100% at timestamp -- 100%".split()
    assert found.outcome.rows == 94
    assert {reason for reason, _ in found.outcome.letters} == {
        "malformed_json", "no_magic_byte", "unknown_schema", "incompatible_schema", "not_an_object",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "kind", "payload", "format_", "date"),
    [
        (AVRO, "AVRO", b"\2", AvroRegistry, "coalesce(date, to_date(kafka.timestamp))"),
        (BORN, "AVRO", b"\2", AvroRegistry, "coalesce(to_date(place.at), to_date(kafka.timestamp))"),
        (PROTOBUF, "PROTOBUF", b"\0\x08\1", ProtobufRegistry, "coalesce(to_date(place.at), to_date(kafka.timestamp))"),
        (PROTOBUF, "PROTOBUF", b"\2\2", ProtobufRegistry, "coalesce(to_date(at), to_date(kafka.timestamp))"),
    ],
)  # fmt: skip
def test_the_date_is_that_of_the_subjects_field_that_looks_like_the_events_time(
    registry: RunningRegistry,
    ask: Ask,
    tmp_path: Path,
    schema: str,
    kind: str,
    payload: bytes,
    format_: type,
    date: str,
) -> None:
    known = registry.register("orders-value", schema, type=kind)
    found = proposed([*[framed(known, payload)] * 20, b"x", framed(99, payload)], ask=ask)
    stream = read_back(tmp_path / "defs", text_of(found)).streams["bronze/orders"]

    assert isinstance(stream.format, format_)
    assert stream.date_expression == date
    assert (found.outcome.rows, dict(found.outcome.letters)) == (
        20,
        {("no_magic_byte", ""): 1, ("unknown_schema", ""): 1},
    )
    assert "# schemas by their ids: 1 (20 messages), 99 (1 messages)\n" in text_of(found)
    assert "latest version of orders-value, now 1" in text_of(found)
    assert "a timestamp, by its schema" in text_of(found) or "a date, by its schema" in text_of(found)
    if payload == b"\2\2":
        assert isinstance(stream.format, ProtobufRegistry)
        assert stream.format.message == "shop.Other"


@pytest.mark.parametrize(
    ("schema", "kind", "why"),
    [
        (a_record(("kafka", "long")), "AVRO", "no column can be called kafka"),
        ("syntax = 'proto3'; message M { M next = 1; }", "PROTOBUF", "M holds itself"),
        ("syntax = 'proto3'; enum E { A = 0; }", "PROTOBUF", "no message"),
        (None, "", "has no version|no subject|not"),
    ],
)
def test_what_no_registry_explains_lands_as_bytes_and_the_document_says_why(
    registry: RunningRegistry, ask: Ask, tmp_path: Path, schema: str | None, kind: str, why: str
) -> None:
    known = registry.register("orders-value", schema, type=kind) if schema else 7
    found = proposed([framed(known, b"\0\x08\1")] * 20, ask=ask)

    assert read_back(tmp_path / "defs", text_of(found)).streams["bronze/orders"].format == Bytes()
    assert re.search(f"# .*({why})", text_of(found))
    assert "`format: {avro: {registry: NAME}}`" in text_of(found)
