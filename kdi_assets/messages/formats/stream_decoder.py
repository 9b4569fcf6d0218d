"""The decoder of a stream: decompression and the registry's frame where the stream has them, then its format.

A stream loads the modules of its own format only: those of all formats take longer than a small drain's plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from kdi_assets.documents.model import message_format as f
from kdi_assets.documents.model.message_format import Framed, Unframed
from kdi_assets.documents.model.message_rules import path_of, steps_of
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.formats.decoder import (
    FRAME,
    MISFITS,
    PATHS,
    PAYLOAD,
    RECORD,
    UNKNOWN,
    UNKNOWN_DDL,
    VALUE,
    VIOLATION,
    Decoder,
)
from kdi_assets.messages.formats.errors import FormatMistake, TooManySchemas
from kdi_assets.messages.formats.field_uses import (
    DROPPED,
    TEXT,
    FieldUses,
    columns_alone,
    named_as_columns,
    read_struct,
)
from kdi_assets.messages.formats.foreign import foreign_rules
from kdi_assets.messages.formats.framing import frame_rules, with_frame
from kdi_assets.messages.formats.rules import Rule, literal
from kdi_assets.runtime.spark_internals import kernel_call

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from kdi_assets.messages.formats.registry.schemas import KnownSchemas

LIMIT = 64 * 1024 * 1024
"""Bytes that a decompressed value may have. Gzip makes at most a thousand bytes of one; zstd has no such bound."""


@dataclass(frozen=True, slots=True)
class StreamDecoder:
    """Values to records.

    Attributes:
        payload_decoder: Decodes what is left of a value after decompression and without its frame.
        source: The type of a record by the names of messages, as the payload decoder makes it.
        named: The same with the names of columns.
        uses: What the document says of fields, and why others cannot be columns.
        known: The registry's schemas that are known, if frames name schemas.
        row_coordinates: Spark SQL of further coordinates of a row, for rows of files.
    """

    stream: Stream
    payload_decoder: Decoder
    source: StructType
    named: StructType
    uses: FieldUses
    known: KnownSchemas | None = None
    row_coordinates: Mapping[str, str] = field(default_factory=dict)

    @property
    def record(self) -> StructType:
        """The type of a record by the names of columns, without fields that no column can hold."""
        return columns_alone(self.named)

    def decode(self, messages: DataFrame) -> DataFrame:
        """As ``Decoder.decode``, of messages with ``_kdi_value: binary``.

        Returns:
            Also ``_kdi_payload``, ``_kdi_frame``, ``_kdi_violation`` and ``_kdi_misfits``.
        """
        from pyspark.sql import functions as F

        nothing = {VIOLATION: F.lit(None).cast("string"), MISFITS: F.lit(None).cast(UNKNOWN_DDL)}
        decoded = self.payload_decoder.decode(self.with_payload(messages, beside=nothing), self.source)
        if self.named.simpleString() == self.source.simpleString():
            return decoded
        return decoded.withColumn(RECORD, F.col(RECORD).cast(self.named))  # by place, whatever the names

    def rules(self) -> list[Rule]:
        """As ``Decoder.rules``; the predicates also see ``_kdi_frame``."""
        codec = self.stream.compression
        # With a registry, the payload of a message without a frame is null as well.
        not_decompressed = f"{FRAME if self.known else PAYLOAD} IS NULL"
        decompression = [] if codec == "none" else [Rule(f"not_{codec}", not_decompressed)]
        of_bytes = self.payload_decoder.decodes_bytes
        foreign = foreign_rules(VALUE if codec == "none" else PAYLOAD) if of_bytes else []
        framing = [*frame_rules(), Rule("unknown_schema", self.known.unknown)] if self.known else []
        return [*decompression, *foreign, *framing, *self.payload_decoder.rules(self.source)]

    @property
    def finds_unknown_fields(self) -> bool:
        """As ``Decoder.finds_unknown_fields``."""
        return self.payload_decoder.finds_unknown_fields

    def with_unknown(self, messages: DataFrame, *, where: str) -> DataFrame:
        """As ``Decoder.with_unknown``."""
        from pyspark.sql import functions as F

        found = self.payload_decoder.with_unknown(messages, self._kept, where=where)
        if not (dropped := self._dropped("u.path")) or UNKNOWN not in found.columns:
            return found
        return found.withColumn(UNKNOWN, F.expr(f"filter({UNKNOWN}, u -> NOT ({dropped}))"))

    def with_unknown_paths(self, messages: DataFrame, *, where: str) -> DataFrame:
        """As ``Decoder.with_unknown_paths``."""
        from pyspark.sql import functions as F

        found = self.payload_decoder.with_unknown_paths(messages, self._kept, where=where)
        if not (dropped := self._dropped("p")) or PATHS not in found.columns:
            return found
        others = f"filter({PATHS}, p -> NOT ({dropped}))"
        return found.withColumn(PATHS, F.expr(f"CASE WHEN size({others}) > 0 THEN {others} END"))

    @property
    def _kept(self) -> StructType:
        """The fields of ``source`` that are columns."""
        from pyspark.sql.types import StructType

        columns = set(self.record.names)
        pairs = zip(self.source.fields, self.named.fields, strict=True)
        return StructType([of_message for of_message, column in pairs if column.name in columns])

    def _dropped(self, path: str) -> str:
        """Spark SQL: whether an unknown field's path is that of a dropped field; empty if no field is dropped."""
        paths = [".".join(steps) for steps, use in self.uses.uses.items() if use.how == DROPPED]
        within = [f"startswith({path}, {literal(dropped + sign)})" for dropped in paths for sign in (".", "[]")]
        return " OR ".join([*(f"{path} = {literal(dropped)}" for dropped in paths), *within])

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
        from kdi_assets.messages.formats.avro.container.decoder import AvroContainerDecoder
        from kdi_assets.messages.formats.registry.schemas import MOST_IDS

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

    def with_payload(self, messages: DataFrame, *, beside: Mapping[str, Column] = MappingProxyType({})) -> DataFrame:
        """Add ``_kdi_payload`` and ``_kdi_frame`` to messages with ``_kdi_value``, and the columns ``beside``."""
        from pyspark.sql import functions as F

        codec = self.stream.compression
        payload = F.col(VALUE) if codec == "none" else _decompressed(messages.sparkSession, codec)
        if self.known:
            return with_frame(messages.withColumns({PAYLOAD: payload, **beside}))
        no_frame = F.expr("CAST(NULL AS STRUCT<reason: STRING, schema_id: BIGINT>)")
        return messages.withColumns({PAYLOAD: payload, FRAME: no_frame, **beside})


def _decompressed(spark: SparkSession, codec: Literal["gzip", "zstd"]) -> Column:
    """The decompressed value; null where the value is not of that codec or too large."""
    return kernel_call(spark, "kdi.formats.Compression", f"un{codec}", "binary", VALUE, str(LIMIT))


def decoder_of(stream: Stream) -> StreamDecoder:
    """The decoder of the stream's messages; a registry may be asked for their schemas.

    Raises:
        FormatMistake: The format has no such records.
        PySparkException: The DDL does not parse.
        KdiError: The registry refuses, or does not answer and the schemas were never fetched before, or a column
            may be masked by a tag of the latest version.
    """
    if isinstance(stream.format, Framed):
        from kdi_assets.messages.formats.registry.schemas import known_schemas

        # The last known version may lack a tag that the latest has.
        known = known_schemas(stream.format.schemas, needs_latest=bool(stream.mask_tagged))
        return _with_known(stream, stream.format, known)
    uses = FieldUses.of(stream)
    if isinstance(stream.format, f.FileRows):
        from kdi_assets.messages.formats.files.decoder import ROW_COORDINATES

        rows = _of_unframed(stream.format.of, uses, salvages=False)
        coordinates = {name: stream.source_struct.path(name) for name in ROW_COORDINATES}
        return replace(_stream_decoder(stream, rows, uses), row_coordinates=coordinates)
    return _stream_decoder(stream, _of_unframed(stream.format, uses, salvages=stream.contract.leaves_out), uses)


def _with_known(stream: Stream, format_: Framed, known: KnownSchemas) -> StreamDecoder:
    uses = FieldUses.of(stream)
    decoder = _of_framed(format_, known, uses, salvages=stream.contract.leaves_out)
    return replace(_stream_decoder(stream, decoder, uses), known=known)


def _stream_decoder(stream: Stream, decoder: Decoder, uses: FieldUses) -> StreamDecoder:
    source = decoder.record_type(stream.record_ddl)
    for path, reason in decoder.left_out.items():
        uses.refuse(steps_of(path), reason)
    if not (decoder.reads_by_name and decoder.decodes_bytes):
        for steps in (steps for steps, use in uses.uses.items() if use.how == TEXT):
            raise FormatMistake(
                f"fields.{path_of(steps)}", "only a field of JSON can become text; drop it, or rename it"
            )
    after = decoder.uses_after(uses)
    after.holds_variants = decoder.reads_by_name
    readable = read_struct(source, after)
    uses.problems.update(after.problems)
    uses.badly_named.update(after.badly_named)
    if decoder.reads_by_name:
        source = readable
    return StreamDecoder(stream, decoder, source, named_as_columns(source, readable.names, after), uses)


def _of_framed(format_: Framed, known: KnownSchemas, uses: FieldUses, *, salvages: bool) -> Decoder:
    match format_:
        case f.AvroRegistry():
            from kdi_assets.messages.formats.avro.decoder import AvroDecoder

            return AvroDecoder.of_registry(known, uses)
        case f.JsonRegistry():
            from kdi_assets.messages.formats.json_schema.decoders import JsonSchemaDecoder

            return JsonSchemaDecoder.of_registry(known, validate=format_.validate, salvages=salvages)
        case f.ProtobufRegistry():
            from kdi_assets.messages.formats.protobuf.decoder import ProtobufDecoder

            return ProtobufDecoder.of_registry(known, format_.message)


def _of_unframed(format_: Unframed | f.Parquet, uses: FieldUses, *, salvages: bool) -> Decoder:
    match format_:
        case f.Files() | f.Parquet():
            from kdi_assets.messages.formats.files.decoder import FilesDecoder, ParquetRowDecoder

            return FilesDecoder(format_, uses.struct) if isinstance(format_, f.Files) else ParquetRowDecoder()
        case f.Json(schema=None):
            from kdi_assets.messages.formats.json import JsonDecoder

            return JsonDecoder(salvages=salvages)
        case f.Json():
            from kdi_assets.messages.formats.json_schema.decoders import JsonSchemaDecoder

            return JsonSchemaDecoder.of_file(format_, salvages=salvages)
        case f.Text() | f.Bytes() | f.Envelope():
            return _of_plain(format_, uses)
        case f.Csv():
            from kdi_assets.messages.formats.csv import CsvDecoder

            return CsvDecoder(format_)
        case f.AvroContainer():
            from kdi_assets.messages.formats.avro.container.decoder import AvroContainerDecoder

            return AvroContainerDecoder.of(format_, uses)
        case f.Avro() | f.AvroSingleObject():
            from kdi_assets.messages.formats.avro.decoder import AvroDecoder

            if isinstance(format_, f.Avro):
                return AvroDecoder.of_file(format_, uses)
            return AvroDecoder.of_single_objects(format_, uses)
        case f.Protobuf():
            from kdi_assets.messages.formats.protobuf.decoder import ProtobufDecoder

            return ProtobufDecoder.of_file(format_)


def _of_plain(format_: f.Text | f.Bytes | f.Envelope, uses: FieldUses) -> Decoder:
    from kdi_assets.messages.formats.plain import EnvelopeDecoder, PlainDecoder

    if isinstance(format_, f.Envelope):
        return EnvelopeDecoder(uses.struct)
    return PlainDecoder("string" if isinstance(format_, f.Text) else "binary")
