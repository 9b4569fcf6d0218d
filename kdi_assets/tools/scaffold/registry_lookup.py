"""Ask a schema registry for the format of a topic's messages, and for the fields that may be their date."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kdi_assets.documents.model.connections.connections import Registry
from kdi_assets.documents.model.message_rules import FieldUse
from kdi_assets.errors import KdiError
from kdi_assets.messages.formats.avro.readable import parsable, readable
from kdi_assets.messages.formats.avro.schema_text import definitions, in_one_text, with_full_names
from kdi_assets.messages.formats.field_uses import FieldUses, proposed
from kdi_assets.messages.formats.framing import FIRST_MESSAGE, MessageIndex, split_message_index
from kdi_assets.messages.formats.protobuf.decoder import registered_reading
from kdi_assets.messages.formats.protobuf.descriptors import DescriptorMistake
from kdi_assets.messages.formats.protobuf.records import Record, Timestamp
from kdi_assets.messages.formats.registry.schema import Schema
from kdi_assets.messages.formats.registry.schemas import Schemas
from kdi_assets.tools.scaffold.errors import NotRegistered
from kdi_assets.tools.scaffold.infer_types import DATE, STRING, TIMESTAMP, Array, Struct, Type

_NO_DATE = Array(STRING)
"""In place of every type that is not a date and contains none."""
_AVRO: Mapping[str, str] = {
    "date": DATE,
    **dict.fromkeys(("timestamp-millis", "timestamp-micros"), TIMESTAMP),
    **dict.fromkeys(("local-timestamp-millis", "local-timestamp-micros"), "timestamp_ntz"),
}


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a topic's values by the registry's default naming.

    Attributes:
        registry: Name of the registry's document.
        latest: Number of the latest version, which gives the table its columns.
        same_kind: By schema id, whether the schema has the subject's format; ``None`` for unknown ids.
        record: The fields, with the types of dates; ``None`` for JSON, whose messages show them.
        fields: Path of a field that cannot be a column as it is, to the use that a document would give it.
        message: For Protobuf, the full name of the message if it is not the schema's first.
    """

    registry: str
    name: str
    latest: int
    format: Literal["avro", "json", "protobuf"]
    same_kind: Mapping[int, bool | None]
    record: Struct | None = None
    fields: Mapping[str, FieldUse] = field(default_factory=dict)
    message: str = ""


def subject_of(topic: str, registry: Registry, home: Path, ids: Collection[int], payloads: Iterable[bytes]) -> Subject:
    """Ask a registry for the schemas of frames' ids, and for the latest schema of the topic's subject.

    Args:
        home: The folder of cached schemas.
        payloads: The messages without their frames.

    Raises:
        NotRegistered: The registry has no such subject, or does not answer, or no table can have the subject's record.
    """
    name, known = f"{topic}-value", Schemas(registry, home=home)
    try:
        schemas, version = known.by_ids(ids), known.version(name)
        latest = known.by_id(version.id)
        if latest is None or latest.type not in ("AVRO", "JSON", "PROTOBUF"):
            raise NotRegistered(f"{name} has no schema of a supported format.")
        record, problems, message = _record(latest, payloads)
    except KdiError as refused:
        raise NotRegistered(
            f"{refused.message_parts()[0]} `subject: NAME` after the registry names another one."
        ) from refused
    except DescriptorMistake as mistake:
        raise NotRegistered(f"no table can have the record of {name}: {mistake.message}") from mistake
    same_kind = {n: schema.type == latest.type if schema else None for n, schema in schemas.items()}
    kind: Any = latest.type.lower()
    return Subject(registry.name, name, version.number, kind, same_kind, record, proposed(problems), message)


def _record(schema: Schema, payloads: Iterable[bytes]) -> tuple[Struct | None, FieldUses, str]:
    """The record of a schema, the problems of its fields, and the Protobuf message's name unless it is the first.

    Raises:
        DescriptorMistake: No table can have this record.
    """
    if schema.type == "AVRO":
        uses = FieldUses()
        root = with_full_names(readable(parsable(in_one_text(schema)), uses))
        found = _avro_type(root, dict(definitions(root)), ())
        return (found if isinstance(found, Struct) else Struct({})), uses, ""
    if schema.type == "JSON":
        return None, FieldUses(), ""
    indexes = (index for index in map(split_message_index, payloads) if isinstance(index, MessageIndex))
    ((path, _),) = Counter(index.path for index in indexes).most_common(1) or [(FIRST_MESSAGE, 0)]
    reading = registered_reading(schema, {}, path)
    uses = FieldUses(problems=dict(reading.record.left_out))
    uses.columns_of([of.name for of in reading.record.fields], ())
    return _protobuf_record(reading.record), uses, "" if path == FIRST_MESSAGE else reading.payloads.message


def _avro_type(type_: Any, named: Mapping[str, Any], outer: tuple[str, ...]) -> Type:
    if isinstance(type_, list):
        others = [branch for branch in type_ if branch != "null"]
        return _avro_type(others[0], named, outer) if len(others) == 1 else _NO_DATE
    if isinstance(type_, str):
        type_ = named.get(type_, {"type": type_})
    if isinstance(type_["type"], dict | list):
        return _avro_type(type_["type"], named, outer)
    if type_["type"] != "record" or type_["name"] in outer:
        return _AVRO.get(type_.get("logicalType", ""), _NO_DATE)
    inner = (*outer, type_["name"])
    return Struct({of["name"]: _avro_type(of["type"], named, inner) for of in type_["fields"]})


def _protobuf_record(record: Record) -> Struct:
    fields: dict[str, Type] = {}
    for of in record.fields:
        of_scalar = TIMESTAMP if isinstance(of.type, Timestamp) else _NO_DATE
        fields[of.name] = _protobuf_record(of.type) if isinstance(of.type, Record) else of_scalar
    return Struct(fields)
