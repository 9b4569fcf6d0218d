"""Kafka's messages to records: the stream's decoder, checked, and the names that expressions know."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kdi_assets.drain.rules.errors import ShapeMistake
from kdi_assets.formats.decoder import DECODED, DOCUMENT, FRAME, MISFITS, PAYLOAD, RECORD, VALUE, VIOLATION
from kdi_assets.formats.errors import FormatMistake
from kdi_assets.formats.rules import name
from kdi_assets.formats.stream_decoder import StreamDecoder, decoder_of
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

KAFKA_DDL = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
OURS = ("kafka", VALUE, PAYLOAD, FRAME, VIOLATION, DOCUMENT, DECODED, RECORD, MISFITS)
"""The working columns."""
VERDICT = "_kdi_verdict"
ROW, TOMBSTONE, DEAD_LETTER, FILTERED = 0, 1, 2, 3
"""Numbers of verdicts."""


def stream_decoder(stream: Stream) -> StreamDecoder:
    """What decodes the stream's messages, and the type of a record; the JVM of the session in use is asked.

    Raises:
        ShapeMistake: The DDL does not parse, or names a field twice or one that expressions use otherwise, or the
            format has no such records.
        KdiError: The registry that keeps the schemas refuses, or does not answer what was never asked before.
    """
    from pyspark.errors import PySparkException

    try:
        decoder = decoder_of(stream)
    except FormatMistake as refused:
        raise mistake(stream, refused.field, refused.message) from refused
    except PySparkException as refused:
        raise mistake(stream, "schema", first_line(refused)) from refused
    names = [f.name.lower() for f in decoder.record.fields]
    if "kafka" in names:
        raise mistake(stream, "schema", "a field called kafka would hide the struct that expressions know as kafka")
    if unusable := is_unusable(decoder.record):
        raise mistake(stream, "schema", unusable)
    if stream.tombstones == "row" and (needed := [f.name for f in decoder.record.fields if not f.nullable]):
        raise mistake(stream, "tombstones", f"a tombstone has no {', '.join(needed)}, and the schema says NOT NULL")
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise mistake(stream, "schema", f"declared twice: {', '.join(twice)}")
    return decoder


def named(spark: SparkSession, record: StructType) -> DataFrame:
    """The names that expressions know, and nothing in them."""
    from pyspark.sql import functions as F

    kafka = _as_message(spark.createDataFrame([], KAFKA_DDL)).select("kafka")
    return kafka.select("kafka", *(F.lit(None).cast(f.dataType).alias(f.name) for f in record.fields))


def decode(messages: DataFrame, decoder: StreamDecoder) -> DataFrame:
    """Decode what Kafka gives; where tombstones become rows, let them pass as records that are null.

    Args:
        messages: As ``kafka_frame.read_ranges`` gives them.

    Returns:
        The working columns, and the names that expressions know: the record's fields beside ``kafka``; ours begin with
        ``_kdi_``. Lazy.
    """
    from pyspark.sql import functions as F

    decoded = decoder.decode(_as_message(messages))
    if decoder.stream.tombstones == "row":
        decoded = decoded.withColumn(DECODED, F.expr(f"{DECODED} OR {VALUE} IS NULL"))
    fields = [F.col(f"{RECORD}.{name(f.name)}").alias(f.name) for f in decoder.record.fields]
    return decoded.select(*ours(decoded), *fields)


def ours(messages: DataFrame) -> list[str]:
    """The working columns that are there."""
    return [column for column in messages.columns if column in OURS]


def knowing_schemas_of(messages: DataFrame, decoder: StreamDecoder) -> StreamDecoder | None:
    """As ``StreamDecoder.knowing_schemas_of``, of what Kafka gives."""
    return decoder.knowing_schemas_of(_as_message(messages))


def _as_message(messages: DataFrame) -> DataFrame:
    """Pack what Kafka says of a message into ``kafka``, and name its value, so that no field of a record can clash."""
    from pyspark.sql import functions as F

    known = [F.col(c) for c in ("topic", "partition", "offset", "timestamp")]
    known += [F.col("timestampType").alias("timestamp_type"), F.col("key")]
    known.append(F.col("value").isNull().alias("tombstone"))
    if "headers" in messages.columns:
        known.append(F.col("headers"))
    return messages.select(F.struct(*known).alias("kafka"), F.col("value").alias(VALUE))


def is_unusable(declared: DataType, path: str = "") -> str:
    """Why a type cannot be decoded without loss, or written; empty if it can."""
    from pyspark.sql import types as t

    match declared:
        case t.StructType():
            for field in declared.fields:
                here = f"{path}.{field.name}" if path else field.name
                if set(field.name) & set(" ,;{}()\n\t=.'\"`[]"):
                    return f"{here} has a character that a column's name cannot have here (one of ' ,;{{}}()=.\"`[]')"
                if found := is_unusable(field.dataType, here):
                    return found
        case t.ArrayType():
            return is_unusable(declared.elementType, f"{path}[]")
        case t.MapType():
            return is_unusable(declared.keyType, f"{path}[]") or is_unusable(declared.valueType, f"{path}[]")
        case t.CharType() | t.VarcharType():
            return f"{path} is {declared.simpleString()}; declare it string"
        case t.VariantType() | t.NullType() | t.YearMonthIntervalType() | t.DayTimeIntervalType() | t.TimeType():
            return f"{path} is {declared.simpleString()}, which is not supported"
    return ""


def steps_to(path: str, record: StructType) -> tuple[str, ...]:
    """The steps to a field as the record spells them; none if there is no such field."""
    from pyspark.sql.types import StructType

    here: DataType = record
    steps: list[str] = []
    for step in path.split("."):
        fields = here.fields if isinstance(here, StructType) else []
        found = next((f for f in fields if f.name.lower() == step.lower()), None)
        if found is None:
            return ()
        steps.append(found.name)
        here = found.dataType
    return tuple(steps)


def result(field: str) -> str:
    """The working column that holds what the expression in a field of the document gave."""
    return f"_kdi_x_{field}"


def mistake(stream: Stream, field: str, message: str) -> ShapeMistake:
    """The refusal of one field of the document."""
    return ShapeMistake(stream=stream.name, field=field, message=message)


def first_line(refused: PySparkException) -> str:
    """What Spark says, without our working columns among the names that it suggests."""
    line = str(refused).strip().splitlines()[0]
    return re.sub(r"`_kdi_\w+`(\.`[^`]*`)*(, )?", "", line).replace(", ]", "]")
