"""What a schema registry says of the schemas that messages name, and what those then are."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kdi_assets.errors import KdiError
from kdi_assets.formats.framing import split_frame
from kdi_assets.formats.protobuf.descriptors import DescriptorMistake
from kdi_assets.formats.registry.avro import in_one_text
from kdi_assets.formats.registry.refusals import SubjectVersionUnknown
from kdi_assets.formats.registry.schema import Schema
from kdi_assets.formats.registry.schemas import Schemas
from kdi_assets.message_format import SchemaRegistry
from kdi_assets.proposal.avro_data import AvroSchema, NoDatum, NoRecord
from kdi_assets.proposal.json_text import NoObject, json_object
from kdi_assets.proposal.payload import payload_of
from kdi_assets.proposal.protobuf_data import ProtobufSchemas
from kdi_assets.proposal.recognise import FormatName, Looks, Recognised, Record
from kdi_assets.proposal.types import Struct

MOST_IDS = 100
"""Schemas that are asked for; messages that name another one, less frequent, are not judged."""

Reader = Callable[[bytes], Record]
"""From a frame's payload to its record."""


@dataclass(frozen=True, slots=True)
class Registered:
    """What a registry said.

    Attributes:
        registry: Its name.
        schemas: By id; ``None`` for an id that it does not know.
        subject: The one whose schemas a topic has by default.
        latest: Number of the subject's latest version.
        reader: That version's schema; ``None`` if there is no such subject.
        why: Why it said nothing, or why messages do not become the subject's record.
    """

    registry: str
    subject: str
    schemas: Mapping[int, Schema | None] = field(default_factory=dict)
    latest: int = 0
    reader: Schema | None = None
    why: str = ""


def asked(registry: SchemaRegistry, ids: Collection[int], *, topic: str, home: Path) -> Registered:
    """Ask for the schemas of these ids and of the topic's subject.

    Args:
        home: Where answers of registries are kept.
    """
    nothing, subject = Registered(registry.name, f"{topic}-value"), f"{topic}-value"
    schemas, found = Schemas(registry, home=home), nothing
    try:
        found = replace(nothing, schemas=schemas.by_ids(ids))
        version = schemas.version(subject)
        return replace(found, latest=version.number, reader=schemas.by_id(version.id))
    except SubjectVersionUnknown:
        named = f"`{{registry: {registry.name}, subject: …}}` names another one"
        why = f"registry {registry.name} has no subject {subject}: {named}"
        return replace(found, why=why)
    except KdiError as refused:
        return replace(nothing, why=f"registry {registry.name} was of no help: {refused.parts()[0]}")


def as_registered(values: list[bytes], recognised: Recognised, said: Registered) -> tuple[Recognised, Registered]:
    """What the messages are, now that their schemas are known, if a table can have the subject's record."""
    try:
        found = _found(recognised, said)
    except (NoRecord, DescriptorMistake, ValueError) as unusable:
        why = unusable.message if isinstance(unusable, DescriptorMistake) else str(unusable)
        return recognised, replace(said, why=f"the record of {said.subject} cannot be a table's: {why}")
    if not found or not found.readers:
        return recognised, said
    both = zip(values, recognised.records, strict=True)
    records = [_read(value, told, recognised, said.schemas, found.readers) for value, told in both]
    looks = found.looks or recognised.looks
    told = replace(recognised, records=records, record=found.record, format=found.format, looks=looks)
    return replace(told, message=found.message), said


@dataclass(frozen=True, slots=True)
class _Found:
    """A format of registries, and what reads each schema's payloads.

    Attributes:
        record: As the subject says; ``None`` where the sample does.
        looks: What the messages are for certain.
        message: As ``Recognised`` has it.
    """

    format: FormatName
    readers: Mapping[int, Reader]
    record: Struct | None = None
    looks: Looks | None = None
    message: str = ""


def _found(recognised: Recognised, said: Registered) -> _Found | None:
    """What reads the messages, none if the subject does not say.

    Raises:
        NoRecord, DescriptorMistake, ValueError: A table cannot have the subject's record.
    """
    if said.reader is None:
        return None
    kind = said.reader.type
    of_kind = {n: schema for n, schema in said.schemas.items() if schema and schema.type == kind}
    if kind == "AVRO":
        readers = {n: AvroSchema.of(in_one_text(schema)).datum for n, schema in of_kind.items()}
        return _Found("avro", readers, AvroSchema.of(in_one_text(said.reader)).record(), "framed_avro")
    if kind == "PROTOBUF":
        payloads = recognised.frames.payloads if recognised.frames else ()
        schemas = ProtobufSchemas(said.reader, of_kind, payloads)
        return _Found("protobuf", schemas.readers(), schemas.record(), "framed_protobuf", schemas.message)
    if kind == "JSON" and recognised.looks == "framed_json":
        return _Found("json", dict.fromkeys(of_kind, json_object))
    return None


def _read(
    value: bytes,
    told: Record | str | None,
    recognised: Recognised,
    schemas: Mapping[int, Schema | None],
    readers: Mapping[int, Reader],
) -> Record | str | None:
    """A message's record, or the reason why it has none; ``None`` if it is not judged."""
    payload = payload_of(value, recognised.compression) if isinstance(told, dict) else None
    if payload is None:
        return told
    frame = split_frame(payload)
    if isinstance(frame, str):
        return frame
    if frame.schema_id not in schemas:
        return None if recognised.frames and frame.schema_id in recognised.frames.ids else "unknown_schema"
    if schemas[frame.schema_id] is None:
        return "unknown_schema"
    if frame.schema_id not in readers:
        return "incompatible_schema"
    try:
        return readers[frame.schema_id](frame.payload)
    except (NoDatum, NoObject) as refused:
        return str(refused)


def described(said: Registered) -> dict[int, str]:
    """Each schema in a few words."""
    unknown = f"unknown to registry {said.registry}"
    return {n: f"{schema.type}{_name(schema.text)}" if schema else unknown for n, schema in said.schemas.items()}


def _name(text: str) -> str:
    """The name that a schema of Avro or JSON gives itself."""
    try:
        schema = json.loads(text)
    except ValueError:
        return ""
    if not isinstance(schema, dict):
        return ""
    name, space = schema.get("name") or schema.get("title"), schema.get("namespace")
    if not isinstance(name, str) or not name.isprintable():
        return ""
    return f" {space}.{name}" if isinstance(space, str) and space.isprintable() and "." not in name else f" {name}"
