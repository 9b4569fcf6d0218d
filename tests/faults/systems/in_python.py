"""Formats that Python workers decode or validate, on executors too."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from kdi_assets.documents.model.message_format import AvroContainer, Format, Json, Protobuf, SchemaFile
from tests.formats.avro_bytes import container
from tests.formats.protobuf_messages import descriptors, message_class
from tests.oracle import Reading

SHOP = 'edition = "2023"; message Order { int64 id = 1; string note = 2; }'
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "note": {"type": "string"}}, "required": ["id"]}
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}],
}


def _protobuf(row: dict[str, Any]) -> bytes:
    message: bytes = message_class(SHOP, "Order")(**row).SerializeToString()
    return message


IN_PYTHON: dict[str, tuple[Format, Callable[[dict[str, Any]], bytes], bytes]] = {
    "protobuf": (Protobuf("shop.proto", descriptors(SHOP), "Order"), _protobuf, b"\x08"),
    "json": (
        Json(SchemaFile("order.json", json.dumps(SCHEMA)), validate=True),
        lambda row: json.dumps(row).encode(),
        b'{"note": "without id"}',
    ),
    "avro": (AvroContainer(SchemaFile("order.avsc", json.dumps(AVRO))), lambda row: container(AVRO, [row]), b"Obj"),
}
"""Formats that Python workers decode or validate: the format, a row to a message, and a message that has no row."""


def reading_of(rows: Mapping[bytes, dict[str, Any]]) -> Reading:
    """Messages that are exactly these bytes have these rows, and all others have none."""
    return Reading(
        lambda message: {**rows[message.value or b""], "date": message.timestamp.date()},
        lambda message: message.value in rows,
    )
