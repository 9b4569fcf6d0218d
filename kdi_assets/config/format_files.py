"""From a format as a document writes it to the engine's: the files that it names are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from kdi_assets.config.folder import shown
from kdi_assets.stream.connections import Registry
from kdi_assets.stream.field_types import referred, wrong
from kdi_assets.stream.message_format import (
    Avro,
    AvroContainer,
    AvroRegistry,
    AvroSingleObject,
    Format,
    Json,
    JsonRegistry,
    Protobuf,
    ProtobufRegistry,
    SchemaFile,
)
from kdi_assets.stream.written_format import WrittenAvro, WrittenFormat, WrittenProtobuf
from kdi_assets.wording import did_you_mean

A_PATH = "a path from the folder of this document"


def read_format(
    written: WrittenFormat, topic: str, *, folder: Path, registries: Mapping[str, Registry | None]
) -> Format:
    """The format that a document writes.

    Args:
        topic: Names the subject where the document does not.
        folder: Of the document: where the paths of files in it begin.
        registries: By name; ``None``: the document of that name is wrong itself.

    Raises:
        PydanticCustomError: It names a registry that nobody describes, or a file that cannot be used.
    """
    if written.registry:
        return _of_registry(written, topic, registries)
    if written.avro:
        return _avro(written.avro, folder)
    if written.protobuf:
        return _protobuf(written.protobuf, folder)
    if written.json:
        schema = _schema(folder / written.json.schema_file, "json.schema_file") if written.json.schema_file else None
        return Json(schema, written.json.validate)
    return written.csv or written.text or written.bytes or written.envelope or Json()


def _of_registry(
    written: WrittenFormat, topic: str, registries: Mapping[str, Registry | None]
) -> AvroRegistry | JsonRegistry | ProtobufRegistry:
    field = f"format.{written.name}.registry"
    registry = referred("SchemaRegistry", written.registry, registries, right="add one", field=field)
    if written.avro:
        return AvroRegistry(written.avro.schemas_of(registry, topic))
    if written.json:
        return JsonRegistry(written.json.schemas_of(registry, topic), written.json.validate)
    protobuf = written.protobuf or WrittenProtobuf()  # nothing else names a registry
    return ProtobufRegistry(protobuf.schemas_of(registry, topic), protobuf.message)


def _avro(written: WrittenAvro, folder: Path) -> Avro | AvroContainer | AvroSingleObject:
    if written.schema_file:
        schema = _schema(folder / written.schema_file, "avro.schema_file")
        return AvroContainer(schema) if written.container else Avro(schema)
    named = folder / written.schemas
    files = sorted(named.glob("*.avsc")) if named.is_dir() else [named]
    if not files:
        said = f"no schema lies in {shown(named)}"
        raise wrong(said, "files that end in .avsc", field="format.avro.schemas")
    if len(files) > 1 and not written.reader:
        right = f"e.g. reader: {files[-1].relative_to(folder)}"
        raise wrong("is missing: there are several schemas", right, field="format.avro.reader")
    reader = _schema(folder / written.reader, "avro.reader") if written.reader else _schema(files[0], "avro.schemas")
    return AvroSingleObject(reader, tuple(_schema(file, "avro.schemas") for file in files))


def _schema(path: Path, field: str) -> SchemaFile:
    """The schema in a file of JSON, which a field below ``format`` names."""
    try:
        text = path.read_text(encoding="utf-8")
        json.loads(text)
    except OSError as error:
        raise wrong(f"{shown(path)}: {error.strerror}", A_PATH, field=f"format.{field}") from error
    except ValueError as error:
        raise wrong(f"{shown(path)} is no JSON: {error}", "a schema", field=f"format.{field}") from error
    return SchemaFile(shown(path), text)


def _protobuf(written: WrittenProtobuf, folder: Path) -> Protobuf:
    from kdi_assets.formats.protobuf.descriptors import DescriptorMistake, Descriptors
    from kdi_assets.formats.protobuf.records import record_of

    file = folder / (written.descriptor_file or written.proto_file)
    field = f"format.protobuf.{'descriptor_file' if written.descriptor_file else 'proto_file'}"
    try:
        serialized = _descriptors(written, file, folder)
        known = Descriptors(serialized)
    except OSError as error:
        raise wrong(f"{shown(file)}: {error.strerror}", A_PATH, field=field) from error
    except DescriptorMistake as refused:
        raise wrong(f"{shown(file)}: {refused.message}", refused.right, field=field) from refused
    if written.message not in (names := known.messages()):
        said = f"{shown(file)} describes no message {written.message!r}"
        raise wrong(said, did_you_mean(written.message, names), field="format.protobuf.message")
    try:
        record_of(known.message(written.message))
    except DescriptorMistake as refused:
        raise wrong(refused.message, refused.right, field="format.protobuf.message") from refused
    return Protobuf(shown(file), serialized, written.message)


def _descriptors(written: WrittenProtobuf, file: Path, folder: Path) -> bytes:
    from kdi_assets.formats.protobuf.compiler import compiled

    if written.descriptor_file:
        return file.read_bytes()
    file.stat()  # protoc would say it in words of its own
    return compiled(written.proto_file, folder=folder)
