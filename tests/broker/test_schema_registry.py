"""Our client against a real registry: what the fake says is what a registry says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kdi_assets.formats.registry.client import RegistryClient
from kdi_assets.formats.registry.refusals import SubjectVersionUnknown
from kdi_assets.formats.registry.schema import Referenced, Schema, Version
from kdi_assets.formats.registry.schemas import Schemas
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
