"""The decoder of a stream: decompression and the registry's frame where the stream has them, then its format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from kdi_assets.formats.avro.container.decoder import AvroContainerDecoder
from kdi_assets.formats.avro.decoder import AvroDecoder
from kdi_assets.formats.catalyst import kernel_call
from kdi_assets.formats.csv import CsvDecoder
from kdi_assets.formats.decoder import FRAME, MISFITS, PAYLOAD, UNKNOWN_DDL, VALUE, VIOLATION, Decoder
from kdi_assets.formats.errors import TooManySchemas
from kdi_assets.formats.files.decoder import ROW_COORDINATES, FilesDecoder, ParquetRowDecoder
from kdi_assets.formats.framing import frame_rules, with_frame
from kdi_assets.formats.json import JsonDecoder
from kdi_assets.formats.json_schema.decoders import JsonSchemaDecoder
from kdi_assets.formats.plain import EnvelopeDecoder, PlainDecoder
from kdi_assets.formats.protobuf.decoder import ProtobufDecoder
from kdi_assets.formats.registry.schemas import MOST_IDS, KnownSchemas, known_schemas
from kdi_assets.formats.rules import Rule
from kdi_assets.stream import message_format as f
from kdi_assets.stream.message_format import Framed, Unframed
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


LIMIT = 64 * 1024 * 1024
"""Bytes that a decompressed value may have. Gzip makes at most a thousand bytes of one; zstd has no such bound."""


@dataclass(frozen=True, slots=True)
class StreamDecoder:
    """Values to records.

    Attributes:
        payload_decoder: Decodes what is left of a value after decompression and without its frame.
        record: The type of a record.
        known: The registry's schemas that are known, if frames name schemas.
        row_coordinates: Spark SQL of further coordinates of a row, for rows of files.
    """

    stream: Stream
    payload_decoder: Decoder
    record: StructType
    known: KnownSchemas | None = None
    row_coordinates: Mapping[str, str] = field(default_factory=dict)

    def decode(self, messages: DataFrame) -> DataFrame:
        """As ``Decoder.decode``, of messages with ``_kdi_value: binary``.

        Returns:
            Also ``_kdi_payload``, ``_kdi_frame``, ``_kdi_violation`` and ``_kdi_misfits``.
        """
        from pyspark.sql import functions as F

        nothing = {VIOLATION: F.lit(None).cast("string"), MISFITS: F.lit(None).cast(UNKNOWN_DDL)}
        return self.payload_decoder.decode(self.with_payload(messages).withColumns(nothing), self.record)

    def rules(self) -> list[Rule]:
        """As ``Decoder.rules``; the predicates also see ``_kdi_frame``."""
        codec = self.stream.compression
        decompression = [] if codec == "none" else [Rule(f"not_{codec}", f"{PAYLOAD} IS NULL")]
        framing = [*frame_rules(), Rule("unknown_schema", self.known.unknown)] if self.known else []
        return [*decompression, *framing, *self.payload_decoder.rules(self.record)]

    @property
    def finds_unknown_fields(self) -> bool:
        """As ``Decoder.finds_unknown_fields``."""
        return self.payload_decoder.finds_unknown_fields

    def with_unknown(self, messages: DataFrame, *, where: str) -> DataFrame:
        """As ``Decoder.with_unknown``."""
        return self.payload_decoder.with_unknown(messages, self.record, where=where)

    def with_unknown_paths(self, messages: DataFrame, *, where: str) -> DataFrame:
        """As ``Decoder.with_unknown_paths``."""
        return self.payload_decoder.with_unknown_paths(messages, self.record, where=where)

    @property
    def unknown_schema(self) -> str:
        """Spark SQL over the result of ``decode``: whether the message has a schema that is not known yet."""
        return self.known.unknown if self.known else self.payload_decoder.unknown_schema

    def with_schemas_of(self, messages: DataFrame) -> StreamDecoder | None:
        """A decoder that also knows the schemas of these messages; none if it would know no more than this one.

        Args:
            messages: As ``decode`` takes them; they are read.

        Raises:
            TooManySchemas: The messages have too many; most likely they have no frames.
            KdiError: The registry did not answer, so that no message can be judged.
        """
        if isinstance(self.payload_decoder, AvroContainerDecoder):
            payloads = self.with_payload(messages)
            decoder = self.payload_decoder.with_writers_of(payloads, stream=self.stream.name)
            return replace(self, payload_decoder=decoder) if decoder else None
        if self.known is None or not isinstance(self.stream.format, Framed):
            return None
        unknown = self.with_payload(messages).where(self.known.unknown).selectExpr(f"{FRAME}.schema_id").distinct()
        ids = sorted(row[0] for row in unknown.limit(MOST_IDS + 1).collect())
        if len(ids) > MOST_IDS:
            problem = f"name more than {MOST_IDS:,} schemas, as {ids[0]}: most likely they have no frame."
            raise TooManySchemas(stream=self.stream.name, said=problem)
        more = self.known.and_of(ids)
        return None if more is None else _with_known(self.stream, self.stream.format, more)

    def with_payload(self, messages: DataFrame) -> DataFrame:
        """Add ``_kdi_payload`` and ``_kdi_frame`` to messages with ``_kdi_value``."""
        from pyspark.sql import functions as F

        codec = self.stream.compression
        payload = F.col(VALUE) if codec == "none" else _decompressed(messages.sparkSession, codec)
        opened = messages.withColumn(PAYLOAD, payload)
        if self.known:
            return with_frame(opened)
        return opened.withColumn(FRAME, F.expr("CAST(NULL AS STRUCT<reason: STRING, schema_id: BIGINT>)"))


def _decompressed(spark: SparkSession, codec: Literal["gzip", "zstd"]) -> Column:
    """The decompressed value; null where the value is not of that codec or too large."""
    return kernel_call(spark, "kdi.formats.Compression", f"un{codec}", "binary", VALUE, str(LIMIT))


def decoder_of(stream: Stream) -> StreamDecoder:
    """The decoder of the stream's messages; a registry may be asked for their schemas.

    Raises:
        FormatMistake: The format has no such records.
        PySparkException: The DDL does not parse.
        KdiError: The registry refuses, or does not answer and the schemas were never fetched before.
    """
    if isinstance(stream.format, Framed):
        return _with_known(stream, stream.format, known_schemas(stream.format.schemas))
    if isinstance(stream.format, f.FileRows):
        rows = _of_unframed(stream.format.of, salvages=False)
        return StreamDecoder(stream, rows, rows.record_type(stream.record_ddl), row_coordinates=ROW_COORDINATES)
    decoder = _of_unframed(stream.format, salvages=stream.contract.leaves_out)
    return StreamDecoder(stream, decoder, decoder.record_type(stream.record_ddl))


def _with_known(stream: Stream, format_: Framed, known: KnownSchemas) -> StreamDecoder:
    decoder = _of_framed(format_, known, salvages=stream.contract.leaves_out)
    return StreamDecoder(stream, decoder, decoder.record_type(stream.record_ddl), known)


def _of_framed(format_: Framed, known: KnownSchemas, *, salvages: bool) -> Decoder:
    match format_:
        case f.AvroRegistry():
            return AvroDecoder.of_registry(known)
        case f.JsonRegistry():
            return JsonSchemaDecoder.of_registry(known, validate=format_.validate, salvages=salvages)
        case f.ProtobufRegistry():
            return ProtobufDecoder.of_registry(known, format_.message)


def _of_unframed(format_: Unframed | f.Parquet, *, salvages: bool) -> Decoder:
    match format_:
        case f.Files():
            return FilesDecoder(format_)
        case f.Parquet():
            return ParquetRowDecoder()
        case f.Json(schema=None):
            return JsonDecoder(salvages=salvages)
        case f.Json():
            return JsonSchemaDecoder.of_file(format_, salvages=salvages)
        case f.Text():
            return PlainDecoder("string")
        case f.Bytes():
            return PlainDecoder("binary")
        case f.Envelope():
            return EnvelopeDecoder()
        case f.Csv():
            return CsvDecoder(format_)
        case f.Avro():
            return AvroDecoder.of_file(format_)
        case f.AvroContainer():
            return AvroContainerDecoder(format_)
        case f.AvroSingleObject():
            return AvroDecoder.of_single_objects(format_)
        case f.Protobuf():
            return ProtobufDecoder.of_file(format_)
