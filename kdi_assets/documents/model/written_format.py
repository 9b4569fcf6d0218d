"""The field `format` of a stream: a name, and the place of its schemas.

``documents.loading.format_files`` reads its files and makes a ``message_format.Format`` of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from kdi_assets.documents.model.connections.connections import Registry
from kdi_assets.documents.model.field_types import Declared, RegistryName, wrong
from kdi_assets.documents.model.message_format import (
    Bytes,
    Csv,
    Envelope,
    FileNames,
    Files,
    Json,
    Parquet,
    RegistrySchemas,
    Text,
)
from kdi_assets.documents.model.message_rules import Contract
from kdi_assets.wording import did_you_mean


@dataclass(frozen=True, slots=True)
class OfRegistry(Declared):
    """A registry, and which of its schemas."""

    registry: Annotated[RegistryName, Field(examples=["main"])] = ""
    """Name of the SchemaRegistry document, if messages begin with the id of a schema."""
    subject: Annotated[str, Field(examples=["orders-value"])] = ""
    """Subject of the schemas in the registry; by default the topic's name with -value."""
    version: Annotated[int | None, Field(gt=0, examples=[3])] = None
    """The version that every message is converted to; by default the latest."""

    @model_validator(mode="after")
    def _of_a_registry(self) -> OfRegistry:
        if (self.subject or self.version) and not self.registry:
            raise wrong("names subject or version and no registry", "e.g. registry: main")
        return self

    def schemas_of(self, registry: Registry, topic: str) -> RegistrySchemas:
        """The schemas that these fields describe."""
        return RegistrySchemas(registry, self.subject or f"{topic}-value", self.version)


@dataclass(frozen=True, slots=True)
class WrittenJson(OfRegistry):
    """The JSON Schema, if there is one."""

    schema_file: Annotated[str, Field(examples=["order.schema.json"])] = ""
    """File of the JSON Schema of all messages, in the document's folder or below it."""
    validate: Annotated[bool, Field(examples=[True])] = False
    """Whether a message that does not conform to its JSON Schema becomes a dead letter."""

    @model_validator(mode="after")
    def _one_schema(self) -> WrittenJson:
        if self.registry and self.schema_file:
            raise wrong("names a registry and a schema_file", "keep one of them")
        if self.validate and not (self.registry or self.schema_file):
            said = "validates, and does not name a schema"
            raise wrong(said, "e.g. schema_file: order.schema.json, or registry: main")
        return self


@dataclass(frozen=True, slots=True)
class WrittenAvro(OfRegistry):
    """The schemas: exactly one of ``registry``, ``schema_file`` and ``schemas``."""

    schema_file: Annotated[str, Field(examples=["orders.avsc"])] = ""
    """File of the schema of all messages, in the document's folder or below it. Each message is a raw datum."""
    container: Annotated[bool, Field(strict=True, examples=[True])] = False
    """Whether every message is an object container: a writer's schema and any number of datums. Each datum becomes a
    row of the schema in `schema_file`."""
    schemas: Annotated[str, Field(examples=["schemas"])] = ""
    """File of the schema of messages in single-object encoding, or folder of all schemas that they may have."""
    reader: Annotated[str, Field(examples=["schemas/orders-2.avsc"])] = ""
    """File of the schema that every message is converted to, if `schemas` has several."""

    @model_validator(mode="after")
    def _one_way(self) -> WrittenAvro:
        if [bool(self.registry), bool(self.schema_file), bool(self.schemas)].count(True) != 1:
            raise wrong("takes one of registry, schema_file and schemas", "e.g. avro: {schema_file: orders.avsc}")
        if self.reader and not self.schemas:
            raise wrong("names a reader for one schema", "remove the line")
        if self.container and not self.schema_file:
            said = "is a container, and does not name the schema_file that its records become"
            raise wrong(said, "e.g. avro: {container: true, schema_file: orders.avsc}")
        return self


@dataclass(frozen=True, slots=True)
class WrittenProtobuf(OfRegistry):
    """The message's description: exactly one of ``registry``, ``descriptor_file`` and ``proto_file``."""

    descriptor_file: Annotated[str, Field(examples=["orders.desc"])] = ""
    """File of a set of descriptors, as `protoc --include_imports --descriptor_set_out=FILE` writes it, in the
    document's folder or below it."""
    proto_file: Annotated[str, Field(examples=["orders.proto"])] = ""
    """The .proto file, in the document's folder or below it. Its imports begin in the document's folder. It is compiled
    each time the document is read, which takes a tenth of a second."""
    message: Annotated[str, Field(examples=["shop.Order"])] = ""
    """Full name of the message of every value; with a registry by default the first one in the schema's text."""

    @model_validator(mode="after")
    def _one_way(self) -> WrittenProtobuf:
        if [bool(self.registry), bool(self.descriptor_file), bool(self.proto_file)].count(True) != 1:
            raise wrong("takes one of registry, descriptor_file and proto_file", "e.g. descriptor_file: orders.desc")
        if not self.message and not self.registry:
            raise wrong("does not name a message", "e.g. message: shop.Order")
        return self


def _folder(value: str) -> str:
    if not value.startswith(("/", "s3://", "s3a://")) or ".." in value.split("/"):
        raise wrong(f"{value!r} is not the address of a folder", "e.g. s3://bucket/folder, or /absolute/path")
    return value.rstrip("/") or "/"


@dataclass(frozen=True, slots=True)
class WrittenFiles(Declared):
    """What the files hold, and how messages name them."""

    of: Annotated[Literal["parquet", "json"], Field(examples=["parquet"])] = "parquet"
    """What the files hold: parquet; or json, one document per line."""
    names: Annotated[FileNames, Field(examples=["announcements"])] = "paths"
    """How a message names files. paths: a path or URI on each line; announcements: as the field `announce` of another
    stream makes them; s3_events: as S3 notifies of created objects."""
    root: Annotated[
        tuple[Annotated[str, AfterValidator(_folder)], ...],
        BeforeValidator(lambda given: [given] if isinstance(given, str) else given, tuple[str, ...] | str),
        Field(examples=["s3://lake/bronze"]),
    ] = ()
    """Required: folder, or list of folders, in which the files must lie. A message that names another file is a dead
    letter. With one folder, messages may name files by their paths in it."""

    @model_validator(mode="after")
    def _somewhere(self) -> WrittenFiles:
        if not self.root:  # who can write to the topic would read every file that the drain can read
            raise wrong("does not say in which folder the files lie", "e.g. root: s3://lake/bronze", field="root")
        return self

    def engine_format(self) -> Files:
        """The format of the engine."""
        return Files(Parquet() if self.of == "parquet" else Json(), self.names, self.root)


@dataclass(frozen=True, slots=True)
class WrittenFormat(Declared):
    """A format by its name. Exactly one; the default is JSON."""

    json: Annotated[WrittenJson | None, Field(examples=[{"schema_file": "order.schema.json"}])] = None
    """A JSON document. The record comes from `schema`, or else from a JSON Schema."""
    text: Annotated[Text | None, Field(examples=[{}])] = None
    """UTF-8 text, as it is."""
    bytes: Annotated[Bytes | None, Field(examples=[{}])] = None
    """Bytes, as they are."""
    envelope: Annotated[Envelope | None, Field(examples=[{}])] = None
    """Key, value and headers, as they are."""
    csv: Annotated[Csv | None, Field(examples=[{"delimiter": ";"}])] = None
    """One line per message, without a header line; the columns are those of `schema`, in its order."""
    avro: Annotated[WrittenAvro | None, Field(examples=[{"schemas": "orders.avsc"}])] = None
    """An Avro datum; the record is that of its schema."""
    protobuf: Annotated[
        WrittenProtobuf | None, Field(examples=[{"descriptor_file": "orders.desc", "message": "shop.Order"}])
    ] = None
    """A Protobuf message; the record has its fields."""

    files: Annotated[WrittenFiles | None, Field(examples=[{"of": "parquet", "names": "announcements"}])] = None
    """Names of files, whose rows become rows; the columns are those of `schema`."""

    @property
    def name(self) -> str:
        """The format's name in documents."""
        return next((f.name for f in fields(self) if getattr(self, f.name) is not None), "json")

    @property
    def registry(self) -> str:
        """Name of the format's registry; empty if it has none."""
        named = self.avro or self.protobuf or self.json
        return named.registry if named else ""

    @property
    def has_several_records(self) -> bool:
        """Whether a message may hold several records, and each becomes a row."""
        return self.files is not None or (self.avro is not None and self.avro.container)

    @property
    def tells_unknown(self) -> bool:
        """Whether unknown fields of messages can be found."""
        by_schemas = self.avro is not None and bool(self.avro.container or self.avro.schemas)
        return self.name in ("json", "protobuf") or bool(self.registry) or by_schemas

    @property
    def has_record(self) -> bool:
        """Whether the format describes the record, so that `schema` is optional."""
        of_schema = self.json is not None and bool(self.json.registry or self.json.schema_file)
        return of_schema or self.name not in ("json", "csv", "files")


def format_by_name(value: object) -> object:
    """A format as documents write it: ``text`` is short for ``{text: {}}``."""
    names = [f.name for f in fields(WrittenFormat)]
    if isinstance(value, Json):  # the default
        return {"json": {}}
    if isinstance(value, dict):
        if len(value) > 1 and set(names).issuperset(value):
            raise wrong("names several formats", "keep one of them")
        return {name: {} if given is None else given for name, given in value.items()}
    if isinstance(value, str) and value in names:
        return {value: {}}
    raise wrong(f"there is no format {value!r}", did_you_mean(str(value), names))


def check_format(written: WrittenFormat, others: Mapping[str, Any]) -> None:
    """Refuse fields of a stream that do not suit its format.

    Args:
        others: The stream's other valid fields, by name.
    """
    if (ddl := others.get("record_ddl")) is not None:
        _check_schema(written, ddl)
    _check_contract(written, others)
    if written.files:
        _check_files(others)
    explode, contract = others.get("explode"), others.get("contract", Contract())
    if explode and written.has_several_records:
        said = "the rows of files" if written.files else "a container's records"
        raise wrong(f"{said} are rows already", "remove the line", field="explode")
    if contract.evolves and (explode or written.has_several_records):
        raise wrong("evolve does not know the columns of elements", "another contract", field="contract")
    if contract.evolves and others.get("route"):
        # A value that fits the evolved record of one table only would belong to no table.
        said = "streams of a route group read messages alike, and evolve makes a record of the table's own"
        raise wrong(said, "another contract, or no route", field="contract")


def _check_schema(written: WrittenFormat, ddl: str) -> None:
    if written.avro and ddl:
        raise wrong("the record is what the schema of Avro says", "remove the line", field="schema")
    if written.protobuf and ddl:
        raise wrong("the record is what the message of Protobuf says", "remove the line", field="schema")
    if not ddl and not written.has_record:
        raise wrong("is missing", "e.g. schema: id bigint, at timestamp", field="schema")


def _check_files(others: Mapping[str, Any]) -> None:
    """Refuse what looks at single fields of messages: these only name files."""
    if others.get("contract", Contract()) != Contract():
        raise wrong("files are read by the columns of `schema`, and others are left out", "remove it", field="contract")
    for field, refused, right in (
        ("tombstones", others.get("tombstones") == "row", "skip or dead_letter"),
        ("route", bool(others.get("route")), "a topic of its own for these messages"),
        ("dead_letter_payload", others.get("dead_letter_payload") not in (None, "keep"), "keep, which is the default"),
    ):
        if refused:
            raise wrong("does not suit messages that only name files", right, field=field)


def _check_contract(written: WrittenFormat, others: Mapping[str, Any]) -> None:
    contract = others.get("contract", Contract())
    for field, wanted in (("rescued", others.get("rescued")), ("contract.types", contract.leaves_out)):
        if wanted and written.name != "json":
            said = f"needs single fields of messages, which only json has, not {written.name}"
            raise wrong(said, f"another {field}, or none", field=field)
    if contract.new_columns in ("freeze", "discard_row") and not written.tells_unknown:
        said = f"unknown fields cannot be found in messages of {written.name} here"
        raise wrong(said, "discard_value, which is the default", field="contract.new_columns")
