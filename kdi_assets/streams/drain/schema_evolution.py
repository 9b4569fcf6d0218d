"""Schema evolution: the record of a stream whose contract lets its table gain columns.

The table says what was gained: its columns and fields of structs that the document does not give are fields of the
record, too.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.message_format import Json, JsonRegistry
from kdi_assets.documents.model.message_rules import Contract
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.messages.formats.comments import COMMENT, TAGS
from kdi_assets.messages.formats.decoder import MISFITS, UNKNOWN
from kdi_assets.messages.formats.errors import SubjectVersionUnknown
from kdi_assets.messages.formats.field_uses import FORBIDDEN, OF_CHANGE_FEED, FieldUses, named_as_messages, read_struct
from kdi_assets.messages.formats.stream_decoder import StreamDecoder
from kdi_assets.runtime.spark_internals import ddl_of, kernel_call
from kdi_assets.streams.rules.errors import SchemaDisagrees, ShapeMistake
from kdi_assets.streams.rules.judge import field_values
from kdi_assets.streams.rules.records import overlap, stream_decoder
from kdi_assets.streams.rules.shape import columns_of
from kdi_assets.streams.rules.table.table_schema import follows_latest, refuse_other_schema, widened, widens
from kdi_assets.streams.rules.tag_masks import has_schema, masks_of
from kdi_assets.streams.rules.tally import Counts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

_log = logging.getLogger(__name__)
SAMPLE_MESSAGES = 20_000
"""From so many messages of a plan the types of new columns are inferred."""
MOST_FIELDS = 200
"""An object with more fields does not become a struct: messages make up its keys."""
MOST_LEVELS = 50
"""Fields that lie deeper, and values of more levels, are not looked at: Spark reads types by recursion, and a thread
whose stack ends takes the JVM with it; its JSON of a schema has at most 1,000 levels, and three for a struct."""
_QUOTED = re.compile(r"`(?:[^`]|``)*`|OBJECT<")
_DIGITS_OF_A_DOUBLE = 15


def evolved(stream: Stream, lake: str, spark: SparkSession) -> Stream:
    """The stream with a record that has what its table gained; the stream itself if the table gained nothing.

    Raises:
        ShapeMistake: The document does not work.
    """
    follows = stream.contract.evolves and follows_latest(stream)
    if not follows and not _learns_from_messages(stream):
        return stream
    log = TableLog.open(stream.table_uri(lake))
    if log is None:
        return stream
    return _of_newest_version(stream, log, spark) if follows else _with_gained(stream, log, spark)


def _with_gained(stream: Stream, log: TableLog, spark: SparkSession) -> Stream:
    """The stream with a record that has what its table gained, if it learns from messages."""
    if not _learns_from_messages(stream):
        return stream
    from pyspark.sql.types import StructType

    record = stream_decoder(stream).record
    grown = _grown(record, columns_of(stream, spark), StructType.fromJson(dict(log.schema)), stream.contract)
    return stream if grown == record else _of_record(stream, grown, spark)


def _of_newest_version(stream: Stream, log: TableLog, spark: SparkSession) -> Stream:
    """The stream with the newest version of its subject that the table can follow.

    A version that lost a field, changed a type or is not a record does not stop the stream: the version before it reads
    its messages. Those that cannot become its record are dead letters, and new fields are counted as unknown.
    """
    from kdi_assets.messages.formats.registry.schemas import version_numbers

    format_: Any = stream.format
    why: KdiError | None = None
    older = () if stream.mask_tagged else version_numbers(format_.schemas)[1:]  # they may lack a tag
    for number in (None, *older):
        version = replace(stream, format=replace(format_, schemas=replace(format_.schemas, version=number)))
        try:
            found = _with_gained(version, log, spark)
            refuse_other_schema(found, log, columns_of(found, spark))
        except (ShapeMistake, SchemaDisagrees, SubjectVersionUnknown) as refused:
            why = why or refused
            continue
        if number is not None:
            _log.warning("%s  The stream follows %s.", why, followed(version))
        return found
    return stream  # its drain refuses it


def followed(stream: Stream) -> str:
    """The subject and version of a stream that does not follow the latest one, for people."""
    schemas = stream.format.schemas  # type: ignore[union-attr]
    return f"version {schemas.version} of {schemas.subject}"


def gaining(messages: DataFrame, decoder: StreamDecoder, counts: Counts, *, now: datetime) -> Stream | None:
    """The stream with a record that gained fields or wider types from its messages; ``None`` if it gains nothing.

    Args:
        counts: Of the pass that judged the messages by the decoder's record.
    """
    stream, grown = decoder.stream, decoder.record
    if not _learns_from_messages(stream):
        return None
    if stream.contract.new_columns == "evolve":
        grown = _with_fields(grown, messages, decoder, counts, now)
    if stream.contract.types == "evolve" and counts.dead_letters:
        grown = _with_types(grown, messages, stream, now)
    return None if grown == decoder.record else _of_record(stream, grown, messages.sparkSession)


def _with_types(record: StructType, messages: DataFrame, stream: Stream, now: datetime) -> StructType:
    """The record with wider types, for the values that do not suit its types."""
    from pyspark.sql import functions as F

    leaving_out = replace(stream, contract=replace(stream.contract, types="discard_value"))
    left_out = field_values(messages, stream_decoder(leaving_out), MISFITS, now=now)
    # Each type by itself: two types without a common one may each widen the column.
    each = left_out.limit(SAMPLE_MESSAGES).select(F.inline(MISFITS))
    types = (
        each.where(_is_flat(messages.sparkSession))
        .select("path", F.schema_of_variant("value").alias("type"))
        .distinct()
        .collect()
    )
    for row in sorted(types):
        steps = FieldUses.of(stream).column_steps(tuple(row["path"].split(".")))
        record = _retyped(record, list(steps), variant_type(str(row["type"])))
    return record


def _retyped(struct: StructType, steps: list[str], of_values: DataType) -> StructType:
    from pyspark.sql.types import StructField, StructType

    def inner(type_: DataType) -> DataType:
        if len(steps) == 1:
            return widened(type_, of_values)
        return _retyped(type_, steps[1:], of_values) if isinstance(type_, StructType) else type_

    return StructType(
        [
            StructField(f.name, inner(f.dataType), f.nullable, f.metadata) if f.name == steps[0] else f
            for f in struct.fields
        ]
    )


def _with_fields(
    record: StructType, messages: DataFrame, decoder: StreamDecoder, counts: Counts, now: datetime
) -> StructType:
    """The record with the unknown fields of its messages.

    A field is left out if its values are all empty, if their types have no common one, or if its name cannot be a
    column's or is taken. All are left out if there are more than an entry names: messages then make up the names.
    """
    unknown = counts.unknown.fields
    if not unknown or unknown.others:
        return record
    stream = decoder.stream
    wanted, masks = columns_of(stream, messages.sparkSession), masks_of(stream, decoder.record)
    taken = ("date", stream.source_struct.name, *OF_CHANGE_FEED)
    for path, of_values in sorted(_types(field_values(messages, decoder, UNKNOWN, now=now)).items()):
        type_ = _usable(of_values)
        steps = decoder.uses.column_steps(tuple(path.split(".")))
        free = path.lower() not in taken and not path.lower().startswith("_kdi_") and len(steps) <= MOST_LEVELS
        if type_ is not None and free and not any(overlap(path.replace("[]", ""), mask) for mask in masks):
            record = _with_field(record, wanted, list(steps), type_)
    return record


def _learns_from_messages(stream: Stream) -> bool:
    """Whether the record gains what messages have. In other formats it gains what their schema has.

    Messages do not say which of their fields are tagged.
    """
    tags_are_known = not (stream.mask_tagged and has_schema(stream))
    return stream.contract.evolves and isinstance(stream.format, Json | JsonRegistry) and tags_are_known


def _of_record(stream: Stream, record: StructType, spark: SparkSession) -> Stream:
    of_messages = named_as_messages(record, FieldUses.of(stream).uses)
    return replace(stream, record_ddl=ddl_of(spark, of_messages))


def _grown(record: StructType, wanted: StructType, found: StructType, contract: Contract) -> StructType:
    """The record with the table's further columns and wider types.

    Args:
        wanted: The columns that the document gives, or the fields of one of its structs.
        found: The same of the table.
    """
    from pyspark.sql.types import StructType

    given, there = _by_name(wanted), _by_name(found)
    kept = [
        _inside(f, given[n].dataType, there[n].dataType, contract)
        if (n := f.name.lower()) in given and n in there
        else f
        for f in record.fields
    ]
    if contract.new_columns != "evolve":
        return StructType(kept)
    known = {f.name.lower() for f in record.fields} | given.keys()
    gained = [f for n, f in there.items() if n not in known and _can_be_read(f)]
    return StructType([*kept, *(_plain(f) for f in gained)])


def _inside(field: StructField, wanted: DataType, found: DataType, contract: Contract) -> StructField:
    from pyspark.sql import types as t

    def grown(type_: DataType, given: DataType, there: DataType) -> DataType:
        match type_, given, there:
            case t.StructType(), t.StructType(), t.StructType():
                return _grown(type_, given, there, contract)
            case t.ArrayType(), t.ArrayType(), t.ArrayType():
                element = grown(type_.elementType, given.elementType, there.elementType)
                return t.ArrayType(element, type_.containsNull)
            case t.MapType(), t.MapType(), t.MapType():
                value = grown(type_.valueType, given.valueType, there.valueType)
                return t.MapType(type_.keyType, value, type_.valueContainsNull)
        return there if contract.types == "evolve" and type_ == given and widens(type_, there) else type_

    return t.StructField(field.name, grown(field.dataType, wanted, found), field.nullable, field.metadata)


def _can_be_read(field: StructField) -> bool:
    from pyspark.sql.types import StructType

    struct = StructType([field])
    return read_struct(struct, FieldUses()) == struct


def _plain(field: StructField) -> StructField:
    """The field without Delta's metadata, such as the column's number."""
    from pyspark.sql.types import StructField, StructType

    said = {key: field.metadata[key] for key in (COMMENT, TAGS) if key in field.metadata}
    type_ = field.dataType
    if isinstance(type_, StructType):
        type_ = StructType([_plain(f) for f in type_.fields])
    return StructField(field.name, type_, field.nullable, said)


def _by_name(struct: StructType) -> dict[str, StructField]:
    return {f.name.lower(): f for f in struct.fields}


def _types(found: DataFrame) -> dict[str, DataType]:
    """Path of an unknown field to the common type of its values."""
    from pyspark.sql import functions as F

    each = found.limit(SAMPLE_MESSAGES).select(F.inline(UNKNOWN))
    types = (
        each.where(_is_flat(found.sparkSession))
        .groupBy("path")
        .agg(F.schema_of_variant_agg("value").alias("type"))
        .collect()
    )
    return {row["path"]: variant_type(str(row["type"])) for row in types}


def variant_type(ddl: str) -> DataType:
    """The type that ``schema_of_variant`` or ``schema_of_variant_agg`` names."""
    from pyspark.sql.types import DataType

    return DataType.fromDDL(_QUOTED.sub(lambda found: "STRUCT<" if found[0] == "OBJECT<" else found[0], ddl))


def _is_flat(spark: SparkSession) -> Column:
    """Whether the column ``value`` has at most ``MOST_LEVELS``."""
    return kernel_call(spark, "kdi.json.Depth", "within", "boolean", "value", str(MOST_LEVELS))


def _usable(of_values: DataType) -> DataType | None:
    """The type of a column for values of a type; ``None`` if there is none."""
    from pyspark.sql import types as t

    match of_values:
        case t.StructType():
            kept: dict[str, t.StructField] = {}
            for field in of_values.fields:
                type_ = _usable(field.dataType)
                if type_ is not None and _can_be_named(field.name):
                    kept.setdefault(field.name.lower(), t.StructField(field.name, type_))
            return t.StructType(list(kept.values())) if kept and len(of_values.fields) <= MOST_FIELDS else None
        case t.ArrayType():
            element = _usable(of_values.elementType)
            return None if element is None else t.ArrayType(element)
        case t.DecimalType():
            if of_values.scale:
                return (
                    t.DoubleType() if of_values.precision <= _DIGITS_OF_A_DOUBLE else t.DecimalType(38, of_values.scale)
                )
            return t.LongType() if of_values.precision <= 18 else t.DecimalType(38, 0)
        case t.BooleanType() | t.LongType() | t.DoubleType() | t.StringType():
            return of_values
    return None


def _can_be_named(name: str) -> bool:
    return bool(name) and name.isprintable() and len(name) <= 255 and FORBIDDEN.isdisjoint(name)


def _with_field(struct: StructType, wanted: StructType, steps: list[str], type_: DataType) -> StructType:
    """The struct with one more field; unchanged if the name is taken or cannot be a column's."""
    from pyspark.sql.types import StructField, StructType

    first, *rest = steps
    if not rest:
        taken = _by_name(struct).keys() | _by_name(wanted).keys()
        if first.lower() in taken or not _can_be_named(first):
            return struct
        return StructType([*struct.fields, StructField(first, type_)])
    name, depth = first.removesuffix("[]" * first.count("[]")), first.count("[]")
    given = _by_name(wanted).get(name.lower())
    fields = [
        StructField(f.name, _with_inner(f.dataType, given.dataType, depth, rest, type_), f.nullable, f.metadata)
        if f.name == name and given is not None
        else f
        for f in struct.fields
    ]
    return StructType(fields)


def _with_inner(inside: DataType, wanted: DataType, depth: int, steps: list[str], type_: DataType) -> DataType:
    """The type with one more field in the struct that lies inside it, below so many arrays and maps."""
    from pyspark.sql import types as t

    match inside, wanted:
        case t.StructType(), t.StructType() if depth == 0:
            return _with_field(inside, wanted, steps, type_)
        case t.ArrayType(), t.ArrayType() if depth > 0:
            element = _with_inner(inside.elementType, wanted.elementType, depth - 1, steps, type_)
            return t.ArrayType(element, inside.containsNull)
        case t.MapType(), t.MapType() if depth > 0:
            value = _with_inner(inside.valueType, wanted.valueType, depth - 1, steps, type_)
            return t.MapType(inside.keyType, value, inside.valueContainsNull)
    return inside
