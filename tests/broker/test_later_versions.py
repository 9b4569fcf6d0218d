"""Later versions of a schema do not stop a stream that evolves, whatever they bring, lose or change."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kdi_assets.documents.model.message_format import JsonRegistry, ProtobufRegistry, RegistrySchemas
from kdi_assets.documents.model.message_rules import Contract
from kdi_assets.operate.monitoring.checks.all_checks import run_check
from kdi_assets.operate.monitoring.checks.subject import CheckSubject
from tests.conftest import DrivenFactory
from tests.driven import AS_DECODED
from tests.formats.avro_bytes import datum
from tests.formats.fake_registry import RunningRegistry
from tests.formats.framed import framed
from tests.formats.registered import FIRST, SECOND, SUBJECT, THIRD, in_avro, in_protobuf, of_avro, order

NESTED = {"type": "record", "name": "In", "fields": [{"name": "x", "type": "int"}, {"name": "X", "type": "int"}]}
HOSTILE: dict[str, Any] = {
    "kafka": "int",
    "_change_type": "int",
    "_commit_version": "int",
    "_kdi_record": "int",
    "ID": "int",
    "nothing": {"type": "record", "name": "Nothing", "fields": []},
    "again": {"type": "array", "items": "Order"},
    "wide": {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 0},
    "many": {"type": "array", "items": {"type": "record", "name": "Bare", "fields": []}},
    "never": "null",
}
"""Fields that no column can hold, of later versions."""


def test_a_later_version_with_fields_that_no_column_can_hold_does_not_stop_a_stream_that_evolves(
    driven: DrivenFactory, registry: RunningRegistry
) -> None:
    """Each version also has a good field: that becomes a column, and the other one is counted."""
    first = registry.register(SUBJECT, json.dumps(FIRST))
    stream = of_avro(driven, registry).with_definition(contract=Contract("evolve"))
    stream.send(in_avro(first, FIRST, id=0))
    stream.drain()

    for n, (name, type_) in enumerate({**HOSTILE, "inner": NESTED}.items(), 1):
        schema = order(*(f"good{m}" for m in range(1, n + 1)))
        written = {"name": name, "type": ["null", type_] if type_ != "null" else type_, "default": None}
        schema = {**schema, "namespace": f"com.my-company.v{n}", "fields": [*schema["fields"], written]}
        version = registry.register(SUBJECT, json.dumps(schema))
        values = {name: None} | {f"good{m}": str(n) for m in range(1, n + 1)}
        stream.send(in_avro(version, schema, id=n, **values))
        (commit,) = stream.drain().commits

        assert stream.rows("id", f"good{n}")[-1] == (n, str(n)), name
        if name != "inner":
            assert list(commit.unknown.named) == [name]


CHANGED_AVRO: dict[str, tuple[str, Any, dict[str, Any], str]] = {
    "a field is gone": ("AVRO", order("other"), {"id": 1, "other": "x"}, "row"),
    "a type is another one": (
        "AVRO",
        {**order("note"), "fields": [{"name": "id", "type": "string"}, *order("note")["fields"][1:]]},
        {"id": "1", "note": "x"},
        "incompatible_schema",
    ),
    "a text became a record": (
        "AVRO",
        {
            **order(),
            "fields": [
                *order()["fields"],
                {"name": "note", "type": {"type": "record", "name": "N", "fields": [{"name": "a", "type": "int"}]}},
            ],
        },
        {"id": 1, "note": {"a": 1}},
        "incompatible_schema",
    ),
    "it is no record": ("AVRO", "string", {}, "incompatible_schema"),
    "it is of another type": ("JSON", {"properties": {"id": {"type": "integer"}}}, {}, "incompatible_schema"),
    "it cannot be parsed": ("AVRO", {"type": "record", "name": "Order", "fields": [{"name": "id"}]}, {}, "none"),
}


@pytest.mark.parametrize("case", CHANGED_AVRO)
def test_a_later_version_that_the_table_cannot_follow_does_not_stop_a_stream_that_evolves(
    driven: DrivenFactory, registry: RunningRegistry, case: str
) -> None:
    """The version before it reads its messages, until another one can be followed."""
    type_, schema, value, verdict = CHANGED_AVRO[case]
    second = registry.register(SUBJECT, json.dumps(SECOND))
    stream = of_avro(driven, registry).with_definition(contract=Contract("evolve"))
    stream.send(in_avro(second, SECOND, id=0, note="one"))
    stream.drain()

    bad = registry.register(SUBJECT, json.dumps(schema), type=type_)
    stream.send(in_avro(second, SECOND, id=1, note="two"))
    if verdict != "none":
        stream.send(
            framed(bad, datum(schema, value if isinstance(schema, dict) else "text") if type_ == "AVRO" else b"{}")
        )
    stream.drain()
    checked = run_check("schema_as_declared", CheckSubject(stream.stream, stream.lake, stream.session))
    third = registry.register(SUBJECT, json.dumps(THIRD))
    stream.send(in_avro(third, THIRD, id=3, note=None, shop="x"))
    stream.drain()

    rows = [(0, "one", None), (1, "two", None), *([(1, None, None)] if verdict == "row" else []), (3, None, "x")]
    assert stream.rows("id", "note", "shop") == rows
    assert (checked.level, "the stream follows version 1 of" in checked.description) == ("warn", True), checked
    assert stream.letters("reason") == ([verdict] if verdict.startswith("incompatible") else [])


HOSTILE_PROTOBUF = {
    "kafka": "string kafka = 90;",
    "_change_type": "string _change_type = 91;",
    "ID": "int32 ID = 92;",
    "again": "repeated Order again = 93;",
    "far": "int32 far = 536870911;",
}


def test_a_later_version_of_protobuf_with_such_fields_does_not_either(
    driven: DrivenFactory, registry: RunningRegistry
) -> None:
    format_ = ProtobufRegistry(RegistrySchemas(registry.described(), SUBJECT), "shop.Order")
    stream = driven(partitions=1, **{**AS_DECODED, "format": format_, "contract": Contract("evolve")})

    for n, (name, field) in enumerate({"": "", **HOSTILE_PROTOBUF}.items()):
        good = " ".join(f"string good{m} = {10 + m};" for m in range(1, n + 1))
        text = f'syntax = "proto3"; package shop; message Order {{ int64 id = 1; {good} {field} }}'
        version = registry.register(SUBJECT, text, type="PROTOBUF")
        value: dict[str, Any] = {"id": n}
        if name:
            value |= {name: [{"id": 7}] if name == "again" else "7" if "string" in field else 7, f"good{n}": "x"}
        stream.send(in_protobuf(version, text, b"\x00", **value))
        report = stream.drain()

        assert stream.letters("reason") == []
        assert stream.rows("id", f"good{n}" if name else "kafka.offset")[-1] == (n, "x" if name else 0), name
        assert list(report.unknown.named) == ([name] if name else [])


HOSTILE_JSON = {
    "kafka": {"type": "string"},
    "_commit_timestamp": {"type": "string"},
    "ID": {"type": "string"},
    "any": {},
    "several": {"type": ["string", "object"]},
    "nothing": {"type": "object"},
    "again": {"$ref": "#"},
    "first.name": {"type": "string"},
}


def test_a_later_version_of_a_json_schema_with_such_properties_does_not_either(
    driven: DrivenFactory, registry: RunningRegistry
) -> None:
    """Those that messages have, and whose name can be a column's, get the type of their values."""
    format_ = JsonRegistry(RegistrySchemas(registry.described(), SUBJECT))
    stream = driven(partitions=1, **{**AS_DECODED, "format": format_, "contract": Contract("evolve")})

    for n, (name, property_) in enumerate({"": {}, **HOSTILE_JSON}.items()):
        good = {f"good{m}": {"type": "string"} for m in range(1, n + 1)}
        properties = {"id": {"type": "integer"}, **good, **({name: property_} if name else {})}
        version = registry.register(SUBJECT, json.dumps({"properties": properties}), type="JSON")
        message = {"id": n, **({name: "7", f"good{n}": "x"} if name else {})}
        stream.send(framed(version, json.dumps(message).encode()))
        stream.drain()

        assert stream.rows("id", f"good{n}" if name else "kafka.offset")[-1] == (n, "x" if name else 0), name

    learned = [("7", None, None), (None, "7", None), (None, None, "7")]
    assert stream.rows("any", "several", "nothing")[4:7] == learned
