"""The decoder of a stream: what its format asks for, behind what its compression asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kdi_assets.formats.avro import AvroDecoder, AvroSingleObjectDecoder
from kdi_assets.formats.compression import compression_rules, with_payload
from kdi_assets.formats.csv import CsvDecoder
from kdi_assets.formats.decoder import Decoder
from kdi_assets.formats.json import JsonDecoder
from kdi_assets.formats.plain import PlainDecoder
from kdi_assets.formats.rules import Rule
from kdi_assets.message_format import Avro, AvroSingleObject, Bytes, Compression, Csv, Format, Json, Text
from kdi_assets.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class StreamDecoder:
    """Values to records: a decoder of the payloads that lie in them."""

    of_payloads: Decoder
    compression: Compression = "none"

    def record_type(self, ddl: str) -> StructType:
        """As ``Decoder.record_type``."""
        return self.of_payloads.record_type(ddl)

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        """As ``Decoder.decode``, of messages with ``_kdi_value: binary``; it adds ``_kdi_payload``."""
        return self.of_payloads.decode(with_payload(messages, self.compression), record)

    def rules(self, record: StructType) -> list[Rule]:
        """As ``Decoder.rules``."""
        return [*compression_rules(self.compression), *self.of_payloads.rules(record)]


def decoder_of(stream: Stream) -> StreamDecoder:
    """What decodes the stream's messages."""
    return StreamDecoder(_of_format(stream.format), stream.compression)


def _of_format(format_: Format) -> Decoder:
    match format_:
        case Json():
            return JsonDecoder()
        case Text():
            return PlainDecoder("string")
        case Bytes():
            return PlainDecoder("binary")
        case Csv():
            return CsvDecoder(format_)
        case Avro():
            return AvroDecoder(format_)
        case AvroSingleObject():
            return AvroSingleObjectDecoder(format_)
