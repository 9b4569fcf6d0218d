"""Messages of a subject in a registry, in Avro and Protobuf, and the stream of them."""

from __future__ import annotations

from typing import Any

from kdi_assets.documents.model.message_format import AvroRegistry, RegistrySchemas
from tests.conftest import DrivenFactory
from tests.driven import AS_DECODED, DrivenStream
from tests.formats.avro_bytes import datum
from tests.formats.fake_registry import RunningRegistry
from tests.formats.framed import framed
from tests.formats.protobuf_messages import message_class

SUBJECT = "orders-value"


def order(*names: str) -> dict[str, Any]:
    """An Avro schema: an id and further nullable texts."""
    more = [{"name": n, "type": ["null", "string"], "default": None} for n in names]
    return {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, *more]}


FIRST, SECOND, THIRD = order(), order("note"), order("note", "shop")


def in_avro(schema_id: int, schema: Any, **row: Any) -> bytes:
    return framed(schema_id, datum(schema, row))


def of_avro(driven: DrivenFactory, registry: RunningRegistry, *, version: int | None = None) -> DrivenStream:
    format_ = AvroRegistry(RegistrySchemas(registry.described(), SUBJECT, version))
    return driven(partitions=1, **{**AS_DECODED, "format": format_})


def in_protobuf(
    schema_id: int, text: str, index: bytes = b"\x02\x02", message: str = "shop.Order", **said: Any
) -> bytes:
    payload: bytes = message_class(text, message)(**said).SerializeToString()
    return framed(schema_id, index + payload)
