"""The format of a message's value. No I/O: its files have been read.

``documents.model.written_format`` is the same as documents write it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from kdi_assets.documents.model.connections.connections import Registry
from kdi_assets.documents.model.field_types import Declared, wrong

Compression = Literal["none", "gzip", "zstd"]
"""The producer's compression of the value itself. Kafka's clients undo the compression of batches."""


@dataclass(frozen=True, slots=True)
class RegistrySchemas:
    """Schemas that messages name by their id, in a frame before the payload.

    Attributes:
        subject: Its versions are read before any message; messages may name schemas of other subjects.
        version: The version that every message is converted to; ``None``: the latest.
    """

    registry: Registry
    subject: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """The text of a schema, and the file that it was read from."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Json:
    """One JSON document per message. The stream's DDL gives the record; without a DDL, the schema does.

    Attributes:
        schema: A JSON Schema.
        validate: Every message must conform to it.
    """

    schema: SchemaFile | None = None
    validate: bool = False


@dataclass(frozen=True, slots=True)
class JsonRegistry:
    """One JSON document per message, after the id of its schema. The record is that of ``Json``, by the subject's
    version.

    Attributes:
        validate: Every message must conform to the schema that it names.
    """

    schemas: RegistrySchemas
    validate: bool = False


@dataclass(frozen=True, slots=True)
class Text(Declared):
    """UTF-8 text; the record is one column, ``value string`` unless the DDL names it."""


@dataclass(frozen=True, slots=True)
class Bytes(Declared):
    """Any bytes; the record is one column, ``value binary`` unless the DDL names it."""


@dataclass(frozen=True, slots=True)
class Envelope(Declared):
    """The whole message; the record is its key, value and headers, which the DDL may rename."""


def _character(value: str) -> str:
    """One character that may be a quote or an escape."""
    if len(value) != 1 or value.isalnum() or value in "\r\n\0 ":
        raise wrong(f"{value!r} is not such a character", "a character that is not a letter, digit or blank")
    return value


def _between_columns(value: str) -> str:
    return value if value == " " else _character(value)


def _quote(value: str) -> str:
    return _character(value) if value else value


@dataclass(frozen=True, slots=True)
class Csv(Declared):
    """One line per message, without a header line; its columns are those of the stream's DDL, in that order."""

    delimiter: Annotated[str, AfterValidator(_between_columns), Field(examples=[";"])] = ","
    """One character between columns."""
    quote: Annotated[str, AfterValidator(_quote), Field(examples=["'"])] = '"'
    """The character around a text with delimiters or line ends; empty if no character has this meaning."""
    escape: Annotated[str, AfterValidator(_character), Field(examples=["\\"])] = '"'
    """The character before a quotation mark inside such a text."""
    null_text: Annotated[str, Field(examples=["NULL"])] = ""
    """The text that means null. By default the empty text does, and an empty string is a pair of quotation marks."""

    @model_validator(mode="after")
    def _told_apart(self) -> Csv:
        if self.delimiter in (self.quote, self.escape):
            raise wrong(f"{self.delimiter!r} is the delimiter and something else", "three characters, two at least")
        return self


@dataclass(frozen=True, slots=True)
class Avro:
    """One datum per message and nothing else; the record is the schema's."""

    schema: SchemaFile


RECORDS = "records"
"""The one field of a container's record: the array of its datums."""


@dataclass(frozen=True, slots=True)
class AvroContainer:
    """One object container per message: the schema of its writer, and any number of datums.

    Attributes:
        schema: Every datum is converted to it.
    """

    schema: SchemaFile


@dataclass(frozen=True, slots=True)
class AvroSingleObject:
    """One datum per message, after the fingerprint of its schema.

    Attributes:
        reader: Every datum is converted to it.
        writers: The schemas that messages may be written with.
    """

    reader: SchemaFile
    writers: tuple[SchemaFile, ...]


@dataclass(frozen=True, slots=True)
class AvroRegistry:
    """One datum per message, after the id of its schema; the record is that of the subject's version."""

    schemas: RegistrySchemas


@dataclass(frozen=True, slots=True)
class Protobuf:
    """One Protobuf message per value and nothing else; the record has its fields.

    Attributes:
        path: The file that describes it.
        descriptors: A serialized set of descriptors, with all imports.
        message: Its full name, e.g. ``shop.Order``.
    """

    path: str
    descriptors: bytes
    message: str


@dataclass(frozen=True, slots=True)
class ProtobufRegistry:
    """One Protobuf message per value, after the id of its schema; the record is that of the subject's version.

    Attributes:
        message: Full name of the message; empty: the first one in the version's text.
    """

    schemas: RegistrySchemas
    message: str = ""


@dataclass(frozen=True, slots=True)
class Parquet:
    """A file of rows with the columns of the stream's DDL; others are left out, and missing ones are null."""


FileNames = Literal["paths", "announcements", "s3_events"]
"""How a message names files: one path or URI per line; as our announcements; as S3's notifications of events."""


MOST_FILE_MESSAGES = 20_000
"""Messages that name files in one plan: the driver holds them in its memory."""


@dataclass(frozen=True, slots=True)
class Files:
    """A message names files, and their rows become the table's rows.

    Attributes:
        of: What the files hold; of ``Json``, one document per line.
        root: The folders in which files must lie.
    """

    of: Parquet | Json
    names: FileNames
    root: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileRows:
    """Each message is a row of a file. Documents cannot ask for it: it is how the rows of ``Files`` are judged."""

    of: Parquet | Json


Unframed = Files | Json | Text | Bytes | Envelope | Csv | Avro | AvroContainer | AvroSingleObject | Protobuf
Framed = AvroRegistry | JsonRegistry | ProtobufRegistry
"""Formats whose messages name the schema of their writer."""
Format = Unframed | Framed | FileRows
