"""From a format as a document writes it to the engine's format; reads the files that the document names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from kdi_assets.documents.loading.folder import display_path
from kdi_assets.documents.model.connections.connections import Registry
from kdi_assets.documents.model.field_types import referred, wrong
from kdi_assets.documents.model.message_format import (
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
from kdi_assets.documents.model.written_format import WrittenAvro, WrittenFormat, WrittenProtobuf
from kdi_assets.wording import did_you_mean

A_PATH = "a path from the folder of this document"


def read_format(
    written: WrittenFormat, topic: str, *, folder: Path, registries: Mapping[str, Registry | None]
) -> Format:
    """Build the engine's format.

    Args:
        topic: Default for the name of the subject.
        folder: The document's folder; paths in the document are relative to it.
        registries: By name; ``None`` where the registry's own document is wrong.

    Raises:
        PydanticCustomError: The registry has no document, or a file cannot be used.
    """
    if written.registry:
        return _registry_format(written, topic, registries)
    if written.avro:
        return _avro(written.avro, folder)
    if written.protobuf:
        return _protobuf(written.protobuf, folder)
    if written.files:
        return written.files.engine_format()
    if written.json:
        schema = _schema(folder / written.json.schema_file, "json.schema_file") if written.json.schema_file else None
        return Json(schema, written.json.validate)
    return written.csv or written.text or written.bytes or written.envelope or Json()


def _registry_format(
    written: WrittenFormat, topic: str, registries: Mapping[str, Registry | None]
) -> AvroRegistry | JsonRegistry | ProtobufRegistry:
    field = f"format.{written.name}.registry"
    registry = referred("SchemaRegistry", written.registry, registries, right="add one", field=field)
    if written.avro:
        return AvroRegistry(written.avro.schemas_of(registry, topic))
    if written.json:
        return JsonRegistry(written.json.schemas_of(registry, topic), written.json.validate)
    protobuf = written.protobuf or WrittenProtobuf()  # no other format has a registry
    return ProtobufRegistry(protobuf.schemas_of(registry, topic), protobuf.message)


def _avro(written: WrittenAvro, folder: Path) -> Avro | AvroContainer | AvroSingleObject:
    if written.schema_file:
        schema = _schema(folder / written.schema_file, "avro.schema_file")
        return AvroContainer(schema) if written.container else Avro(schema)
    named = folder / written.schemas
    files = sorted(named.glob("*.avsc")) if named.is_dir() else [named]
    if not files:
        message = f"no schema lies in {display_path(named)}"
        raise wrong(message, "files that end in .avsc", field="format.avro.schemas")
    if len(files) > 1 and not written.reader:
        right = f"e.g. reader: {files[-1].relative_to(folder)}"
        raise wrong("is missing: there are several schemas", right, field="format.avro.reader")
    reader = _schema(folder / written.reader, "avro.reader") if written.reader else _schema(files[0], "avro.schemas")
    return AvroSingleObject(reader, tuple(_schema(file, "avro.schemas") for file in files))


def _schema(path: Path, field: str) -> SchemaFile:
    """Read a JSON file with a schema; ``field`` is where the document names it, below ``format``."""
    try:
        text = path.read_text(encoding="utf-8")
        json.loads(text)
    except OSError as error:
        raise wrong(f"{display_path(path)}: {error.strerror}", A_PATH, field=f"format.{field}") from error
    except ValueError as error:
        raise wrong(f"{display_path(path)} is not JSON: {error}", "a schema", field=f"format.{field}") from error
    return SchemaFile(display_path(path), text)


def _protobuf(written: WrittenProtobuf, folder: Path) -> Protobuf:
    from kdi_assets.messages.formats.protobuf.descriptors import DescriptorMistake, Descriptors
    from kdi_assets.messages.formats.protobuf.records import record_of

    file = folder / (written.descriptor_file or written.proto_file)
    field = f"format.protobuf.{'descriptor_file' if written.descriptor_file else 'proto_file'}"
    try:
        serialized = _descriptors(written, file, folder)
        known = Descriptors(serialized)
    except OSError as error:
        raise wrong(f"{display_path(file)}: {error.strerror}", A_PATH, field=field) from error
    except DescriptorMistake as refused:
        raise wrong(f"{display_path(file)}: {refused.message}", refused.right, field=field) from refused
    if written.message not in (names := known.messages()):
        message = f"{display_path(file)} describes no message {written.message!r}"
        raise wrong(message, did_you_mean(written.message, names), field="format.protobuf.message")
    try:
        record_of(known.message(written.message))
    except DescriptorMistake as refused:
        raise wrong(refused.message, refused.right, field="format.protobuf.message") from refused
    return Protobuf(display_path(file), serialized, written.message)


def _descriptors(written: WrittenProtobuf, file: Path, folder: Path) -> bytes:
    from kdi_assets.messages.formats.protobuf.descriptors import compiled

    if written.descriptor_file:
        return file.read_bytes()
    file.stat()  # a missing file raises OSError here, with a better message than protoc's
    return compiled(written.proto_file, folder=folder)
