"""The typed description of what a message's value is made of. No I/O: the files that it names have been read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Compression = Literal["none", "gzip", "zstd"]
"""What a producer did to the value itself; the compression of Kafka's own batches is the client's to undo."""


@dataclass(frozen=True, slots=True)
class Json:
    """A document per message; the record is what the stream's DDL says."""


@dataclass(frozen=True, slots=True)
class Text:
    """UTF-8; the record is one column, ``value string`` unless the DDL gives it another name."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """Anything; the record is one column, ``value binary`` unless the DDL gives it another name."""


@dataclass(frozen=True, slots=True)
class Csv:
    """A line per message, without a header; its columns are those of the stream's DDL, in that order.

    Attributes:
        quote: Around a text that holds delimiters or line ends.
        escape: Before a quotation mark inside such a text.
        null_text: What stands for null in a column; by default nothing at all, and ``""`` is empty text.
    """

    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'
    null_text: str = ""


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """A schema, as text, and the file that it was read from."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Avro:
    """A datum per message, nothing before it and nothing behind; the record is the schema's."""

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


Format = Json | Text | Bytes | Csv | Avro | AvroSingleObject
