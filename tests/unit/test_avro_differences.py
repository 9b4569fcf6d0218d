"""Where a writer's schema and a reader's differ: fields that are read past, numbers that would mean another thing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kdi_assets.formats.avro_differences import other_meanings, unknown_paths


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": type_} for n, type_ in fields.items()]}


NODE = {**record("Node", n="int"), "namespace": "a.b"}
NODE["fields"] = [*NODE["fields"], {"name": "next", "type": ["null", "Node"]}]


@pytest.mark.parametrize(
    ("writer", "reader", "paths"),
    [
        (record("R", a="int"), record("R", a="int", b="int"), []),
        (record("R", a="int", b="int"), record("R", a="int"), ["b"]),
        (record("R", a=["null", record("S", x="int", y="int")]), record("R", a=record("S", x="int")), ["a.y"]),
        (
            record("R", a={"type": "array", "items": record("S", x="int", y="int")}, c="S"),
            record("R", a={"type": "array", "items": record("S", x="int")}, c="S"),
            ["a[].y", "c.y"],
        ),
        (
            record("R", m={"type": "map", "values": record("S", x="int", y="int")}),
            record("R", m={"type": "map", "values": ["null", record("S", x="int")]}),
            ["m[].y"],
        ),
        (record("R", a=NODE), record("R", a={**NODE, "fields": NODE["fields"][1:]}), ["a.n"]),
    ],
)
def test_what_the_reader_passes_over_is_named(writer: object, reader: object, paths: list[str]) -> None:
    assert unknown_paths(json.dumps(writer), json.dumps(reader)) == paths


def test_a_field_that_the_reader_names_by_an_alias_is_known() -> None:
    reader = {"type": "record", "name": "R", "fields": [{"name": "new", "aliases": ["old"], "type": "int"}]}

    assert unknown_paths(json.dumps(record("R", old="int", other="int")), json.dumps(reader)) == ["other"]


def test_a_short_name_means_the_type_of_its_own_namespace() -> None:
    far, near = {**record("S", p="int", q="int"), "namespace": "x"}, {**record("S", z="int"), "namespace": "y"}
    user = {**record("T", s="S"), "namespace": "x"}
    reader = record("r.R", a={**record("S", p="int"), "namespace": "x"}, b=near, c="x.S", d=user)

    paths = unknown_paths(json.dumps(record("r.R", a=far, b=near, c="x.S", d=user)), json.dumps(reader))

    assert paths == ["a.q", "c.q", "d.s.q"]


def logical(type_: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": type_, "logicalType": name, **more}


MILLIS, MICROS = logical("long", "timestamp-millis"), logical("long", "timestamp-micros")


@pytest.mark.parametrize(
    ("written", "read", "differ"),
    [
        (MILLIS, MILLIS, False),
        (MILLIS, MICROS, True),
        (["null", MILLIS], MICROS, True),
        ("long", MILLIS, False),
        (MICROS, "long", False),
        (logical("int", "date"), logical("int", "date"), False),
        (logical("bytes", "decimal", precision=9, scale=2), logical("bytes", "decimal", precision=12, scale=2), False),
        (logical("bytes", "decimal", precision=9, scale=2), logical("bytes", "decimal", precision=9, scale=4), True),
        (logical("string", "uuid"), "string", False),
    ],
)
def test_a_number_of_another_unit_or_scale_is_named(written: object, read: object, differ: bool) -> None:
    writer, reader = (record("R", a={"type": "array", "items": record("S", n=type_)}) for type_ in (written, read))

    assert other_meanings(json.dumps(writer), json.dumps(reader)) == (["a[].n"] if differ else [])
