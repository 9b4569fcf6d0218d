"""The decoder of a stream: what its format asks for, behind what its compression and its registry ask for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kdi_assets.formats.avro.container.decoder import AvroContainerDecoder
from kdi_assets.formats.avro.decoder import AvroDecoder, AvroWritersDecoder
from kdi_assets.formats.compression import compression_rules, with_payload
from kdi_assets.formats.csv import CsvDecoder
from kdi_assets.formats.decoder import (
    FRAME,
    MISFITS,
    PATHS,
    UNKNOWN,
    UNKNOWN_DDL,
    VIOLATION,
    Decoder,
    TellsPaths,
    TellsUnknown,
    paths_of,
)
from kdi_assets.formats.errors import TooManySchemas
from kdi_assets.formats.framing import frame_rules, with_frame, without_frame
from kdi_assets.formats.json import JsonDecoder
from kdi_assets.formats.json_schema.decoders import JsonSchemaDecoder
from kdi_assets.formats.plain import EnvelopeDecoder, PlainDecoder
from kdi_assets.formats.protobuf.decoder import ProtobufDecoder
from kdi_assets.formats.registry.schemas import MOST_IDS, KnownSchemas, known_schemas
from kdi_assets.formats.rules import Rule
from kdi_assets.stream.message_format import (
    Avro,
    AvroContainer,
    AvroRegistry,
    AvroSingleObject,
    Bytes,
    Csv,
    Envelope,
    Framed,
    Json,
    JsonRegistry,
    Protobuf,
    ProtobufRegistry,
    Text,
    Unframed,
)
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class StreamDecoder:
    """Values to records: a decoder of the payloads that lie in them.

    Attributes:
        record: The type of a record.
        known: The schemas that messages may name, where each names one.
    """

    stream: Stream
    of_payloads: Decoder
    record: StructType
    known: KnownSchemas | None = None

    def decode(self, messages: DataFrame) -> DataFrame:
        """As ``Decoder.decode``, of messages with ``_kdi_value: binary``; adds ``_kdi_payload``, ``_kdi_frame``,
        ``_kdi_violation`` and ``_kdi_misfits``."""
        from pyspark.sql import functions as F

        nothing = {VIOLATION: F.lit(None).cast("string"), MISFITS: F.lit(None).cast(UNKNOWN_DDL)}
        payloads = self._payloads(messages).withColumns(nothing)
        return self.of_payloads.decode(payloads, self.record)

    def rules(self) -> list[Rule]:
        """As ``Decoder.rules``; they also see ``_kdi_frame``."""
        framing = [*frame_rules(), Rule("unknown_schema", self.known.unknown)] if self.known else []
        return [*compression_rules(self.stream.compression), *framing, *self.of_payloads.rules(self.record)]

    @property
    def tells_unknown(self) -> bool:
        """Whether messages may have fields that the record has not, and ``with_unknown`` tells which."""
        return isinstance(self.of_payloads, TellsUnknown)

    def with_unknown(self, messages: DataFrame, *, where: str) -> DataFrame:
        """As ``TellsUnknown.with_unknown``; as they come where the format has no such fields."""
        of_payloads = self.of_payloads
        if not isinstance(of_payloads, TellsUnknown):
            return messages
        return of_payloads.with_unknown(messages, self.record, where=where)

    def with_paths(self, messages: DataFrame, *, where: str) -> DataFrame:
        """Add ``_kdi_unknown_paths``, of a format that has such fields; the arguments are those of ``with_unknown``."""
        from pyspark.sql import functions as F

        if isinstance(self.of_payloads, TellsPaths):
            return self.of_payloads.with_paths(messages, self.record, where=where)
        found = self.with_unknown(messages, where=where)
        return found.withColumn(PATHS, F.expr(paths_of(UNKNOWN))).drop(UNKNOWN)

    @property
    def unknown_schema(self) -> str:
        """Spark SQL over what ``decode`` gives: whether the message names a schema that is not known here."""
        if isinstance(self.of_payloads, AvroContainerDecoder):
            return self.of_payloads.unknown
        return self.known.unknown if self.known else "false"

    def knowing_schemas_of(self, messages: DataFrame) -> StreamDecoder | None:
        """A decoder that knows more of the schemas that messages name or bring; none if no more of them can be known.

        Args:
            messages: As ``decode`` takes them; they are read.

        Raises:
            TooManySchemas: They name so many that they hardly have frames, or bring too many.
            KdiError: The registry did not say: no message may be judged by that.
        """
        if isinstance(self.of_payloads, AvroContainerDecoder):
            knowing = self.of_payloads.knowing_writers_of(self._payloads(messages), stream=self.stream.name)
            return replace(self, of_payloads=knowing) if knowing else None
        if self.known is None or not isinstance(self.stream.format, Framed):
            return None
        unknown = self._payloads(messages).where(self.known.unknown).selectExpr(f"{FRAME}.schema_id").distinct()
        ids = sorted(row[0] for row in unknown.limit(MOST_IDS + 1).collect())
        if len(ids) > MOST_IDS:
            said = f"name more than {MOST_IDS:,} schemas, as {ids[0]}: they hardly begin with the id of a schema."
            raise TooManySchemas(stream=self.stream.name, said=said)
        more = self.known.and_of(ids)
        return None if more is None else _knowing(self.stream, self.stream.format, more)

    def _payloads(self, messages: DataFrame) -> DataFrame:
        opened = with_payload(messages, self.stream.compression)
        return with_frame(opened) if self.known else without_frame(opened)


def decoder_of(stream: Stream) -> StreamDecoder:
    """What decodes the stream's messages; a registry may be asked for their schemas.

    Raises:
        FormatMistake: The format has no such records.
        PySparkException: The DDL does not parse.
        KdiError: The registry refuses, or does not answer what was never asked before.
    """
    if isinstance(stream.format, Framed):
        return _knowing(stream, stream.format, known_schemas(stream.format.schemas))
    of_payloads = _of_unframed(stream.format, salvages=stream.contract.leaves_out)
    return StreamDecoder(stream, of_payloads, of_payloads.record_type(stream.record_ddl))


def _knowing(stream: Stream, format_: Framed, known: KnownSchemas) -> StreamDecoder:
    of_payloads = _of_framed(format_, known, salvages=stream.contract.leaves_out)
    return StreamDecoder(stream, of_payloads, of_payloads.record_type(stream.record_ddl), known)


def _of_framed(format_: Framed, known: KnownSchemas, *, salvages: bool) -> Decoder:
    match format_:
        case AvroRegistry():
            return AvroWritersDecoder.of_registry(known)
        case JsonRegistry():
            return JsonSchemaDecoder.of_registry(known, validate=format_.validate, salvages=salvages)
        case ProtobufRegistry():
            return ProtobufDecoder.of_registry(known, format_.message)


def _of_unframed(format_: Unframed, *, salvages: bool) -> Decoder:
    match format_:
        case Json(schema=None):
            return JsonDecoder(salvages=salvages)
        case Json():
            return JsonSchemaDecoder.of_file(format_, salvages=salvages)
        case Text():
            return PlainDecoder("string")
        case Bytes():
            return PlainDecoder("binary")
        case Envelope():
            return EnvelopeDecoder()
        case Csv():
            return CsvDecoder(format_)
        case Avro():
            return AvroDecoder(format_)
        case AvroContainer():
            return AvroContainerDecoder(format_)
        case AvroSingleObject():
            return AvroWritersDecoder.of_single_objects(format_)
        case Protobuf():
            return ProtobufDecoder.of_file(format_)
