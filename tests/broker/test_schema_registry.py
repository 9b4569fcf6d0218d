"""A real registry: it says what the fake says, and what was registered in it is drained."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kdi_assets.formats.registry.client import RegistryClient
from kdi_assets.formats.registry.refusals import SubjectVersionUnknown
from kdi_assets.formats.registry.schema import Referenced, Schema, Version
from kdi_assets.formats.registry.schemas import Schemas
from kdi_assets.message_format import AvroRegistry, Format, JsonRegistry, RegistrySchemas
from tests.avro_bytes import datum
from tests.conftest import DrivenFactory
from tests.framed import framed
from tests.registry import RealRegistry

MONEY = {
    "AVRO": '{"type": "record", "name": "Money", "namespace": "shop", "fields": [{"name": "cents", "type": "long"}]}',
    "JSON": '{"$id": "money.json", "type": "object", "properties": {"cents": {"type": "integer"}}}',
    "PROTOBUF": 'syntax = "proto3";\npackage shop;\n\nmessage Money {\n  int64 cents = 1;\n}\n',
}
ORDER = {
    "AVRO": '{"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "price", "type": "Money"}]}',
    "JSON": '{"$id": "order.json", "type": "object", "properties": {"price": {"$ref": "money.json"}}}',
    "PROTOBUF": (
        'syntax = "proto3";\npackage shop;\n\nimport "money.proto";\n\nmessage Order {\n  shop.Money price = 1;\n}\n'
    ),
}
NAMES = {"AVRO": "shop.Money", "JSON": "money.json", "PROTOBUF": "money.proto"}


def plain(text: str) -> object:
    """A schema's text without its layout, which a registry may change."""
    return json.loads(text) if text.startswith("{") else text.split()


def test_schemas_of_every_type_are_read_with_what_they_refer_to(real_registry: RealRegistry, tmp_path: Path) -> None:
    schemas = Schemas(real_registry.described, home=tmp_path)

    for type_, name in NAMES.items():
        real_registry.register(f"money {type_}/€", MONEY[type_], type_=type_)
        order = real_registry.register(
            f"order {type_}", ORDER[type_], type_=type_, references=((name, f"money {type_}/€", 1),)
        )

        told = schemas.by_id(order)

        assert isinstance(told, Schema)
        assert (told.id, told.type, plain(told.text)) == (order, type_, plain(ORDER[type_]))
        assert [(r.name, plain(r.text)) for r in told.references] == [(name, plain(MONEY[type_]))]
        assert all(isinstance(reference, Referenced) for reference in told.references)
        assert Schemas(real_registry.described, home=tmp_path).by_id(order) == told


def test_versions_deleted_ones_and_what_nobody_registered(real_registry: RealRegistry, tmp_path: Path) -> None:
    subject = "versions-value"
    texts = ['"int"', '["null", "int"]', '["null", "int", "long"]']
    first, second, third = (real_registry.register(subject, text) for text in texts)
    real_registry.delete(subject, 3)
    schemas = Schemas(real_registry.described, home=tmp_path)

    assert schemas.version(subject) == Version(subject, 2, second)
    assert schemas.version(subject, 1) == Version(subject, 1, first)
    assert schemas.by_ids([first, 2_000_000_000]) == {first: Schema(first, "AVRO", '"int"'), 2_000_000_000: None}
    assert schemas.by_id(third) is not None
    assert schemas.ids_of(subject) == tuple(sorted([first, second, third]))
    assert schemas.ids_of("nobody") == ()
    with pytest.raises(SubjectVersionUnknown):
        schemas.version("nobody")
    with pytest.raises(SubjectVersionUnknown):
        schemas.version(subject, 9)
    assert {"AVRO", "JSON", "PROTOBUF"} <= set(RegistryClient(real_registry.described).types())


def drained(
    driven: DrivenFactory, format_: Format, messages: Sequence[bytes]
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Rows (id, price, note) and dead letters (reason, field, schema) of a topic with these messages."""
    date = "to_date(kafka.timestamp)"
    stream = driven(partitions=1, format=format_, record_ddl="", columns={}, coordinates="kafka", date_expression=date)
    for message in messages:
        stream.publisher.produce(stream.stream.topic, message, partition=0)
    stream.publisher.flush()
    stream.drain()
    found = stream.found()
    rows = sorted(found.rows, key=lambda row: row["kafka"]["offset"])
    letters = sorted(found.dead_letters, key=lambda letter: letter["offset"])
    told = [tuple(row[column] for column in ("id", "price", "note")) for row in rows]
    return told, [tuple(letter[column] for column in ("reason", "field", "schema_id")) for letter in letters]


@pytest.fixture
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDI_HOME", str(tmp_path / "home"))  # what is kept of a registry is kept there


@pytest.mark.usefixtures("_own_home")
def test_avro_of_two_versions_that_refer_to_another_schema_is_drained(
    driven: DrivenFactory, real_registry: RealRegistry
) -> None:
    money = json.loads(MONEY["AVRO"])
    real_registry.register("avro-money", MONEY["AVRO"])
    identified = {"name": "id", "type": "long"}
    noted = {"name": "note", "type": ["null", "string"], "default": None}
    written, ids = [], []
    for fields in ([identified], [identified, noted]):
        order = {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}
        referring = {**order, "fields": [*fields, {"name": "price", "type": "Money"}]}
        written.append({**order, "fields": [*fields, {"name": "price", "type": money}]})
        ids.append(
            real_registry.register("avro-value", json.dumps(referring), references=(("shop.Money", "avro-money", 1),))
        )
    first, second = (
        framed(schema_id, datum(schema, {"id": n, "note": "two", "price": {"cents": n}}))
        for n, (schema_id, schema) in enumerate(zip(ids, written, strict=True), 1)
    )

    rows, letters = drained(
        driven,
        AvroRegistry(RegistrySchemas(real_registry.described, "avro-value")),
        [first, second, framed(2_000_000_000, first[5:]), first[:-1]],
    )

    assert rows == [(1, {"cents": 1}, None), (2, {"cents": 2}, "two")]
    assert letters == [("unknown_schema", None, 2_000_000_000), ("malformed_avro", None, ids[0])]


@pytest.mark.core
@pytest.mark.usefixtures("_own_home")
def test_json_is_drained_and_each_message_held_against_the_schema_that_it_names(
    driven: DrivenFactory, real_registry: RealRegistry
) -> None:
    """Only the later version wants a note."""
    money = {"$id": "money.json", "properties": {"cents": {"type": "integer", "minimum": 0}}}
    real_registry.register("json-money", json.dumps(money), type_="JSON")
    order = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {
            "id": {"type": "integer"},
            "price": {"$ref": "money.json"},
            "note": {"type": ["string", "null"]},
        },
    }
    first, second = (
        real_registry.register(
            "json-value", json.dumps(schema), type_="JSON", references=(("money.json", "json-money", 1),)
        )
        for schema in (order, {**order, "required": ["note"]})
    )
    said = b'{"id": 1, "price": {"cents": 5}}'

    rows, letters = drained(
        driven,
        JsonRegistry(RegistrySchemas(real_registry.described, "json-value"), validate=True),
        [
            framed(first, said),
            framed(second, b'{"id": 2, "price": {"cents": 6}, "note": "two"}'),
            framed(second, said),
            framed(first, b'{"id": 3, "price": {"cents": -1}}'),
            framed(first, b'{"id": 4'),
            said,
        ],
    )

    assert rows == [(1, {"cents": 5}, None), (2, {"cents": 6}, "two")]
    assert letters == [
        ("schema_violation", "note", second),
        ("schema_violation", "price.cents", first),
        ("malformed_json", None, first),
        ("no_magic_byte", None, None),
    ]
