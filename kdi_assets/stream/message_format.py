"""The typed description of what a message's value is made of. No I/O: the files that it names have been read.

How documents write it is ``stream.written_format``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from kdi_assets.stream.connections import Registry
from kdi_assets.stream.field_types import Declared, wrong

Compression = Literal["none", "gzip", "zstd"]
"""What a producer did to the value itself; the compression of Kafka's own batches is the client's to undo."""


@dataclass(frozen=True, slots=True)
class RegistrySchemas:
    """Schemas that messages name by their id, in a frame before the payload.

    Attributes:
        subject: Whose versions are asked for before any message is read; messages may name others.
        version: The one that every message becomes; ``None``: the latest.
    """

    registry: Registry
    subject: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """A schema, as text, and the file that it was read from."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Json:
    """A document per message; the record is what the stream's DDL says, without one what the schema describes.

    Attributes:
        schema: A JSON Schema.
        validate: Whether every message must be as it says.
    """

    schema: SchemaFile | None = None
    validate: bool = False


@dataclass(frozen=True, slots=True)
class JsonRegistry:
    """A document per message behind the id of its schema; the record as of ``Json``, by the subject's version.

    Attributes:
        validate: Whether every message must be as the schema says that it names.
    """

    schemas: RegistrySchemas
    validate: bool = False


@dataclass(frozen=True, slots=True)
class Text(Declared):
    """UTF-8; the record is one column, ``value string`` unless the DDL gives it another name."""


@dataclass(frozen=True, slots=True)
class Bytes(Declared):
    """Anything; the record is one column, ``value binary`` unless the DDL gives it another name."""


@dataclass(frozen=True, slots=True)
class Envelope(Declared):
    """The whole message; the record is its key, its value and its headers, under other names if the DDL gives them."""


def _character(value: str) -> str:
    """One character that can stand beside or around text."""
    if len(value) != 1 or value.isalnum() or value in "\r\n\0 ":
        raise wrong(f"{value!r} is not such a character", "one that is no letter, digit or blank")
    return value


def _between_columns(value: str) -> str:
    return value if value == " " else _character(value)


@dataclass(frozen=True, slots=True)
class Csv(Declared):
    """A line per message, without a header; its columns are those of the stream's DDL, in that order."""

    delimiter: Annotated[str, AfterValidator(_between_columns), Field(examples=[";"])] = ","
    """One character between columns."""
    quote: Annotated[str, AfterValidator(_character), Field(examples=["'"])] = '"'
    """The character around a text that holds delimiters or line ends."""
    escape: Annotated[str, AfterValidator(_character), Field(examples=["\\"])] = '"'
    """The character before a quotation mark inside such a text."""
    null_text: Annotated[str, Field(examples=["NULL"])] = ""
    """What stands for null; by default nothing at all, and an empty text is a pair of quotation marks."""

    @model_validator(mode="after")
    def _told_apart(self) -> Csv:
        if self.delimiter in (self.quote, self.escape):
            raise wrong(f"{self.delimiter!r} is the delimiter and something else", "three characters, two at least")
        return self


@dataclass(frozen=True, slots=True)
class Avro:
    """A datum per message, nothing before it and nothing behind; the record is the schema's."""

    schema: SchemaFile


RECORDS = "records"
"""What the record of a message is called that holds several: the array of them."""


@dataclass(frozen=True, slots=True)
class AvroContainer:
    """An object container per message: any number of datums behind the schema that they were written with.

    Attributes:
        schema: What every datum becomes.
    """

    schema: SchemaFile


@dataclass(frozen=True, slots=True)
class AvroSingleObject:
    """A datum per message behind the fingerprint of its schema.

    Attributes:
        reader: What every datum becomes.
        writers: The schemas that messages may be written with.
    """

    reader: SchemaFile
    writers: tuple[SchemaFile, ...]


@dataclass(frozen=True, slots=True)
class AvroRegistry:
    """A datum per message behind the id of its schema; the record is that of the subject's version."""

    schemas: RegistrySchemas


@dataclass(frozen=True, slots=True)
class Protobuf:
    """A message per value, nothing before it and nothing behind; the record is the message's.

    Attributes:
        path: The file that describes it.
        descriptors: A set of descriptors with everything that they import, serialized.
        message: Its full name, e.g. ``shop.Order``.
    """

    path: str
    descriptors: bytes
    message: str


@dataclass(frozen=True, slots=True)
class ProtobufRegistry:
    """A message per payload behind the id of its schema; the record is that of the subject's version.

    Attributes:
        message: Full name of the message that every payload must be; empty: the first one of the version's text.
    """

    schemas: RegistrySchemas
    message: str = ""


Unframed = Json | Text | Bytes | Envelope | Csv | Avro | AvroContainer | AvroSingleObject | Protobuf
Framed = AvroRegistry | JsonRegistry | ProtobufRegistry
"""Formats whose messages name the schema that they were written with."""
Format = Unframed | Framed
