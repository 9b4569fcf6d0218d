"""The fields that say what a message's value is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from kdi_assets.components.avro_fields import AvroFields
from kdi_assets.components.checks import sql, wrong
from kdi_assets.components.mistakes import did_you_mean
from kdi_assets.components.protobuf_fields import ProtobufFields
from kdi_assets.components.schema_files import read_schema
from kdi_assets.components.strict import Fields
from kdi_assets.components.subject_fields import RegistryFields
from kdi_assets.message_format import (
    Bytes,
    Compression,
    Csv,
    Envelope,
    Format,
    Json,
    JsonRegistry,
    SchemaRegistry,
    Text,
)


def nothing_more(fields: dict[str, object] | None) -> dict[str, object] | None:
    """A format of which there is nothing to be said."""
    if fields:
        raise wrong(f"takes no fields, and {', '.join(fields)} is given", "its name alone")
    return fields


Alone = Annotated[dict[str, object] | None, AfterValidator(nothing_more)]


def character(value: str) -> str:
    """One character that can stand beside or around text."""
    if len(value) != 1 or value.isalnum() or value in "\r\n\0 ":
        raise wrong(f"{value!r} is not such a character", "one that is no letter, digit or blank")
    return value


def between_columns(value: str) -> str:
    """A character, or a blank."""
    return value if value == " " else character(value)


class CsvFields(Fields):
    """How the lines are written."""

    delimiter: Annotated[str, AfterValidator(between_columns)] = Field(
        default=",", description="One character between columns.", examples=[";"]
    )
    quote: Annotated[str, AfterValidator(character)] = Field(
        default='"', description="The character around a text that holds delimiters or line ends.", examples=["'"]
    )
    escape: Annotated[str, AfterValidator(character)] = Field(
        default='"', description="The character before a quotation mark inside such a text.", examples=["\\"]
    )
    null_text: str = Field(
        default="",
        description="What stands for null; by default nothing at all, and an empty text is a pair of quotation marks.",
        examples=["NULL"],
    )

    @model_validator(mode="after")
    def _told_apart(self) -> CsvFields:
        if self.delimiter in (self.quote, self.escape):
            raise wrong(f"{self.delimiter!r} is the delimiter and something else", "three characters, two at least")
        return self

    def format(self) -> Csv:
        """The format that these fields describe."""
        return Csv(self.delimiter, self.quote, self.escape, self.null_text)


class JsonFields(RegistryFields):
    """Where a JSON Schema is, if there is one."""

    schema_file: str = Field(
        default="",
        description="File of the JSON Schema of every message, beside the document or below it.",
        examples=["order.schema.json"],
    )
    must_be_valid: bool = Field(
        default=False,
        alias="validate",
        description="Whether each message must be as its JSON Schema says; one that is not is a dead letter.",
        examples=[True],
    )

    @model_validator(mode="after")
    def _one_schema(self) -> JsonFields:
        if self.registry and self.schema_file:
            raise wrong("names a registry and a schema_file", "keep one of them")
        if self.must_be_valid and not self.has_schema:
            raise wrong("is to validate and names no schema", "e.g. schema_file: order.schema.json, or registry: main")
        return self

    @property
    def has_schema(self) -> bool:
        """Whether they name a schema."""
        return bool(self.registry or self.schema_file)

    def format(self, folder: Path, *, topic: str, registry: SchemaRegistry | None) -> Format:
        """The format that these fields describe.

        Args:
            folder: Of the document.
            registry: The one that they name.

        Raises:
            SchemaFileMistake: The file is not there, or is no JSON.
        """
        if registry is not None:
            return JsonRegistry(self.schemas_of(registry, topic), self.must_be_valid)
        schema = read_schema(folder / self.schema_file, "json.schema_file") if self.schema_file else None
        return Json(schema, self.must_be_valid)


class FormatFields(Fields):
    """A format by its name; exactly one, JSON if none is named."""

    of_json: JsonFields | None = Field(
        default=None,
        alias="json",
        description="A JSON document; the record is what `schema` says, else that of a JSON Schema.",
        examples=[{"schema_file": "order.schema.json"}],
    )
    text: Alone = Field(default=None, description="UTF-8 text, as it is.", examples=[{}])
    of_bytes: Alone = Field(default=None, alias="bytes", description="Bytes, as they are.", examples=[{}])
    envelope: Alone = Field(default=None, description="Key, value and headers, as they are.", examples=[{}])
    csv: CsvFields | None = Field(
        default=None,
        description="One line per message, without a header; the columns are those of `schema`, in its order.",
        examples=[{"delimiter": ";"}],
    )
    avro: AvroFields | None = Field(
        default=None,
        description="A datum of Avro; the record is that of its schema.",
        examples=[{"schemas": "orders.avsc"}],
    )
    protobuf: ProtobufFields | None = Field(
        default=None,
        description="A message of Protobuf; the record is that message's.",
        examples=[{"descriptor_file": "orders.desc", "message": "shop.Order"}],
    )

    @model_validator(mode="after")
    def _one(self) -> FormatFields:
        if len(self.model_fields_set) > 1:
            raise wrong("names several formats", "keep one of them")
        return self

    @property
    def name(self) -> str:
        """The format's, as documents have it."""
        (given,) = self.model_fields_set or {"of_json"}
        return FormatFields.model_fields[given].alias or given

    @property
    def registry(self) -> str:
        """The registry that the format names; empty if none."""
        named = self.avro or self.protobuf or self.of_json
        return named.registry if named is not None else ""

    @property
    def has_several_records(self) -> bool:
        """Whether a message may hold several records, each of which is a row."""
        return self.avro is not None and self.avro.container

    @property
    def tells_unknown(self) -> bool:
        """Whether it is known of messages which fields they have that the record has not."""
        by_schemas = self.avro is not None and bool(self.avro.container or self.avro.schemas)
        return self.name in ("json", "protobuf") or bool(self.registry) or by_schemas

    @property
    def has_record(self) -> bool:
        """Whether the format says what a record is, so that `schema` need not."""
        with_its_own = (self.avro, self.protobuf, self.text, self.of_bytes, self.envelope)
        of_schema = self.of_json is not None and self.of_json.has_schema
        return of_schema or any(fields is not None for fields in with_its_own)

    def format(self, folder: Path, *, topic: str, registry: SchemaRegistry | None) -> Format:
        """The format that these fields describe.

        Args:
            folder: Of the document.
            topic: Names the subject where they do not.
            registry: The one that they name.

        Raises:
            SchemaFileMistake: A file that they name cannot be used.
        """
        if self.avro is not None:
            return self.avro.format(folder, topic=topic, registry=registry)
        if self.protobuf is not None:
            return self.protobuf.format(folder, topic=topic, registry=registry)
        if self.of_json is not None:
            return self.of_json.format(folder, topic=topic, registry=registry)
        if self.csv is not None:
            return self.csv.format()
        if self.text is not None:
            return Text()
        if self.envelope is not None:
            return Envelope()
        return Json() if self.of_bytes is None else Bytes()


def named(value: object) -> object:
    """A format by its name alone, ``text``, is one with nothing else said of it, ``{text: {}}``."""
    names = [info.alias or name for name, info in FormatFields.model_fields.items()]
    if isinstance(value, dict):
        return {name: {} if fields is None else fields for name, fields in value.items()}
    if isinstance(value, str) and value in names:
        return {value: {}}
    raise wrong(f"there is no format {value!r}", did_you_mean(str(value), names))


def schema_fits(ddl: str, info: ValidationInfo) -> str:
    """A schema where the format needs one, and none where it has its own."""
    format_ = info.data.get("message_format")  # not there if it is wrong itself
    if not isinstance(format_, FormatFields):
        return ddl
    if format_.avro is not None and ddl:
        raise wrong("the record is what the schema of Avro says", "remove the line")
    if format_.protobuf is not None and ddl:
        raise wrong("the record is what the message of Protobuf says", "remove the line")
    if ddl or format_.has_record:
        return sql(ddl) if ddl else ddl
    raise wrong("is missing", "e.g. schema: id bigint, at timestamp")


def taken_apart_once(explode: dict[str, str] | None, info: ValidationInfo) -> dict[str, str] | None:
    """What becomes several rows by one field of the document alone."""
    format_ = info.data.get("message_format")  # not there if it is wrong itself
    if explode is not None and isinstance(format_, FormatFields) and format_.has_several_records:
        raise wrong("a container's records are rows already", "remove the line")
    return explode


def compression(value: str) -> str:
    """Something that values can be compressed with."""
    if value not in get_args(Compression):
        raise wrong(f"there is no compression {value!r}", did_you_mean(value, get_args(Compression)))
    return value
