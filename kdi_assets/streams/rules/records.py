"""A source's messages to records: the stream's decoder, and the names that expressions know."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kdi_assets import wording
from kdi_assets.documents.model.message_format import FileRows, Files, Framed, Parquet
from kdi_assets.documents.model.message_rules import path_of
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.formats.decoder import (
    DECODED,
    DOCUMENT,
    FRAME,
    MISFIT_NUMBER,
    MISFITS,
    PAYLOAD,
    RECORD,
    VALUE,
    VIOLATION,
    WRONG_SHARD,
)
from kdi_assets.messages.formats.errors import FormatMistake
from kdi_assets.messages.formats.field_uses import ELEMENTS
from kdi_assets.messages.formats.rules import Rule, literal, name
from kdi_assets.messages.formats.stream_decoder import StreamDecoder, decoder_of
from kdi_assets.messages.source import messages_ddl
from kdi_assets.runtime.spark_internals import empty_frame
from kdi_assets.streams.rules.errors import ShapeMistake

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

OF_FILE = ("file", "index", "count")
"""What the source's struct has of a row of a file besides: the file, the row's number in its message, and the number of
rows."""
_TIME = re.compile(r"\btime\(")
"""A time of day in a type; only Avro has it, which gives its text."""
_WORKING = (VALUE, PAYLOAD, FRAME, VIOLATION, DOCUMENT, MISFIT_NUMBER, DECODED, RECORD, MISFITS, WRONG_SHARD)


def no_messages(spark: SparkSession, decoder: StreamDecoder) -> DataFrame:
    """An empty frame of what the decoder decodes, to check expressions."""
    from pyspark.sql import functions as F

    format_, messages = decoder.stream.format, messages_ddl(decoder.stream)
    if not isinstance(format_, FileRows):
        return empty_frame(spark, messages)
    from kdi_assets.messages.formats.files.decoder import ROW_NAMES_DDL

    rows = empty_frame(spark, f"{messages}, {ROW_NAMES_DDL}")
    return rows.withColumn("value", F.lit(None).cast(decoder.source)) if isinstance(format_.of, Parquet) else rows


def stream_decoder(stream: Stream) -> StreamDecoder:
    """The decoder of the stream's messages, with the type of a record. It uses the active session's JVM.

    Raises:
        ShapeMistake: The DDL does not parse, or declares a field twice or with a name that is taken, or the format has
            no such records.
        KdiError: The schema registry refuses, or does not answer and nothing is cached.
    """
    from pyspark.errors import PySparkException

    try:
        decoder = decoder_of(stream)
    except FormatMistake as refused:
        raise mistake(stream, refused.field, refused.message) from refused
    except PySparkException as refused:
        raise mistake(stream, "schema", first_line(refused)) from refused
    _refuse_fields(stream, decoder)
    if stream.tombstones == "row" and (needed := [f.name for f in decoder.record.fields if not f.nullable]):
        raise mistake(stream, "tombstones", f"a tombstone has no {', '.join(needed)}, and the schema says NOT NULL")
    return decoder


def _refuse_fields(stream: Stream, decoder: StreamDecoder) -> None:
    """Refuse fields that cannot be columns, unless the document leaves them out, renames them or evolves with a schema.

    Raises:
        ShapeMistake: With the first of them.
    """
    uses = decoder.uses
    if isinstance(stream.format, Files):
        return
    evolves = stream.contract.new_columns == "evolve"
    if uses.problems and not (evolves and isinstance(stream.format, Framed)):
        path, reason = next(iter(uses.problems.items()))
        named, *inside = path.split(ELEMENTS)  # a document names no field inside of arrays and maps
        key = f'"{named}"' if "`" in named else named  # nothing in YAML begins with a backtick
        or_rename = f", or {{{key}: {{rename: name}}}}" if named in uses.badly_named else ""
        add = f"add fields: {{{key}: drop}} to leave it out{or_rename}"
        message = f"{path} {reason}" if inside else reason
        raise ShapeMistake(stream=stream.name, field=f"fields.{named}", message=message, change=add)
    of_time = (f for f in decoder.source.fields if stream.record_ddl and _TIME.search(f.dataType.simpleString()))
    if timed := next(of_time, None):
        raise mistake(stream, "schema", f"{timed.name} is {timed.dataType.simpleString()}, which is not supported")
    if not evolves and (unused := [path_of(steps) for steps in uses.uses if steps not in uses.found]):
        raise mistake(stream, f"fields.{unused[0]}", "messages have no such field")


def named(spark: SparkSession, stream: Stream, record: StructType) -> DataFrame:
    """An empty frame with the names that expressions know."""
    from pyspark.sql import functions as F

    struct = stream.source_struct.name
    nothing = _as_message(empty_frame(spark, messages_ddl(stream)), stream)
    return nothing.select(struct, *(F.lit(None).cast(f.dataType).alias(f.name) for f in record.fields))


def decode(messages: DataFrame, decoder: StreamDecoder) -> DataFrame:
    """Decode messages. Under ``tombstones: row`` a tombstone counts as decoded, and its record is null.

    A message of a wrong shard counts as not decoded: its producer may put it into the right one, too.

    Args:
        messages: As ``reader.read_ranges`` gives them.

    Returns:
        The working columns, which are the source's struct and those that begin with ``_kdi_``, and the record's fields.
        Lazy.
    """
    from pyspark.sql import functions as F

    decoded = decoder.decode(_as_message(messages, decoder.stream))
    if decoder.stream.tombstones == "row":
        decoded = decoded.withColumn(DECODED, F.expr(f"{DECODED} OR {VALUE} IS NULL"))
    if WRONG_SHARD in decoded.columns:
        decoded = decoded.withColumn(DECODED, F.expr(f"{DECODED} AND NOT coalesce({WRONG_SHARD}, false)"))
    fields = [f"{RECORD}.{name(f.name)} AS {name(f.name)}" for f in decoder.record.fields]
    return decoded.selectExpr(*map(name, working_columns(decoded, decoder.stream)), *fields)


def working_columns(messages: DataFrame, stream: Stream) -> list[str]:
    """The working columns that the frame has."""
    return [column for column in messages.columns if column in (stream.source_struct.name, *_WORKING)]


def with_schemas_of(messages: DataFrame, decoder: StreamDecoder) -> StreamDecoder | None:
    """``StreamDecoder.with_schemas_of`` for messages as ``reader.read_ranges`` gives them."""
    return decoder.with_schemas_of(_as_message(messages, decoder.stream))


def _as_message(messages: DataFrame, stream: Stream) -> DataFrame:
    """Pack what the source says of a message into its struct, and rename its value, so that no field can clash."""
    struct = stream.source_struct
    known = {**struct.known, **{c: c for c in OF_FILE if c in messages.columns}}
    packed = ", ".join(f"{literal(field)}, {sql}" for field, sql in known.items())
    by_source = [f"wrong_shard AS {WRONG_SHARD}"] if "wrong_shard" in messages.columns else []
    # As SQL: a column of PySpark is three calls of the JVM.
    return messages.selectExpr(f"named_struct({packed}) AS {name(struct.name)}", f"value AS {VALUE}", *by_source)


def steps_to(path: str, record: StructType) -> tuple[str, ...]:
    """The steps to a field, as the record spells them; empty if there is no such field."""
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


def overlap(one: str, other: str) -> bool:
    """Whether one path is the other one, lies in it, or contains it. Case does not matter."""
    first, second = f"{one.lower()}.", f"{other.lower()}."
    return first.startswith(second) or second.startswith(first)


def result_column(field: str) -> str:
    """The working column that holds the result of the expression in a field of the document.

    It is a struct ``{v}``, null where the message is not decoded or the expression raised.
    """
    return f"_kdi_x_{field}"


def value_of(field: str) -> str:
    """Spark SQL: the value of the expression in a field of the document."""
    return f"{name(result_column(field))}.v"


def is_true(field: str) -> str:
    """Spark SQL: the condition in a field of the document is true; neither false, nor null, nor raised."""
    return f"coalesce({value_of(field)}, false)"


def failed(field: str) -> Rule:
    """The reason of a decoded message for which the expression in a field of the document raised."""
    return Rule("expression_failed", f"{name(result_column(field))} IS NULL", field)


def mistake(stream: Stream, field: str, message: str) -> ShapeMistake:
    """The error of one field of the document."""
    return ShapeMistake(stream=stream.name, field=field, message=message)


def refused_sql(stream: Stream, field: str, refused: PySparkException) -> ShapeMistake:
    """The error of an expression that Spark refuses."""
    named = (refused.getMessageParameters() or {}).get("objectName", "").replace("`", "")
    if instead := stream.source_struct.instead_of(named):
        message = f"{named} is of another kind of source than the stream's"
        return ShapeMistake(stream=stream.name, field=field, message=message, change=f"write {instead}")
    return mistake(stream, field, first_line(refused))


def first_line(refused: PySparkException) -> str:
    """The first line of Spark's message, without working columns among the names that it suggests."""
    line = wording.first_line(refused)
    return re.sub(r"`_kdi_\w+`(\.`[^`]*`)*(, )?", "", line).replace(", ]", "]")
