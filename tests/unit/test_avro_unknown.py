"""Fields of a writer's schema that the reader's has not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kdi_assets.formats.avro_unknown import unknown_paths


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
