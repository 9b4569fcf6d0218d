"""Avro of a sample: what a payload holds by the schema that it was written with."""

from __future__ import annotations

import json

import pytest

from kdi_assets.proposal.avro_data import AvroSchema, NoDatum
from tests.avro_bytes import datum


def record(name: str, **fields: object) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def test_a_short_name_means_the_type_of_its_own_namespace() -> None:
    schema = {
        **record(
            "Outer", near=record("Item", n="long"), far=record("b.Item", v="string"), again="Item", other="b.Item"
        ),
        "namespace": "a",
    }
    said = {"near": {"n": 1}, "far": {"v": "x"}, "again": {"n": 2}, "other": {"v": "y"}}

    written = datum("long", 1) + datum("string", "x") + datum("long", 2) + datum("string", "y")

    assert AvroSchema.of(json.dumps(schema)).datum(written) == said


def test_bytes_behind_a_datum_are_none_of_it() -> None:
    schema = record("One", n="long")
    with pytest.raises(NoDatum, match="trailing_bytes"):
        AvroSchema.of(json.dumps(schema)).datum(datum(schema, {"n": 1}) + b"\0")
