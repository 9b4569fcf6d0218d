"""Avro to typed records: datums of one schema, or of several that a fingerprint or a registry's id names.

The kernel (``kdi_assets/jvm``) decodes them, except for types that it does not read and for the datums of a container.
Those are for Spark's ``from_avro``, which does not validate: it gives a struct of nulls for bytes that it cannot read,
and stops where the datum ends, whatever follows. So a mark is appended to the payload, and datum and mark are read
together: the payload was exactly one datum only if the mark comes out unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from kdi_assets.documents.model.message_format import Avro, AvroSingleObject, SchemaFile
from kdi_assets.messages.formats.avro.docs import with_avro_docs
from kdi_assets.messages.formats.avro.readable import parsable, readable
from kdi_assets.messages.formats.avro.schema_text import in_one_text, other_meanings, unknown_paths
from kdi_assets.messages.formats.comments import without_comments
from kdi_assets.messages.formats.decoder import (
    DECODED,
    DOCUMENT,
    FRAME,
    KERNEL_RULE,
    PAYLOAD,
    RECORD,
    Decoder,
    with_kernel_record,
    with_unknown_of_schemas,
)
from kdi_assets.messages.formats.errors import FormatMistake
from kdi_assets.messages.formats.field_uses import FieldUses
from kdi_assets.messages.formats.framing import other_schema_than
from kdi_assets.messages.formats.registry.schemas import KnownSchemas
from kdi_assets.messages.formats.rules import Rule, any_of, name
from kdi_assets.runtime.spark_internals import (
    avro_fingerprint,
    avro_in_kernel,
    avro_incompatibilities,
    avro_type,
    kernel_call,
    kernel_object,
)
from kdi_assets.wording import first_line

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

MARK = "9F1C7E52D3A8460B"
"""No start of it is an end of it: a payload a few bytes too long or too short cannot reproduce it."""
DATUM, END = "datum", "end"
_TYPE, _FIXED = "kdi_k9f1c", "kdi_k7e52"
"""Names that no schema has by chance."""
_OPTIONS = {"mode": "PERMISSIVE", "datetimeRebaseMode": "CORRECTED"}
_HEADER = "C301"
_HEADER_BYTES = 10
"""Of a single object: two fixed bytes, then the schema's fingerprint."""
BLANK = Rule("blank", f"length({PAYLOAD}) = 0")


@dataclass(frozen=True)
class AvroDecoder(Decoder):
    """A datum per message.

    ``_kdi_document`` is the kernel's result; without the kernel it is ``struct<datum, end>``: the datum and the mark.

    Attributes:
        reader: The schema that every datum becomes.
        field: The document's field that names it.
        writers: The schemas of datums, by the condition (Spark SQL) that its messages meet.
        first_rules: Rules that come before those of the datum.
        datum: Spark SQL: the datum's bytes.
        finds_unknown_fields: Whether the writers' schemas may have other fields than the reader's.
    """

    reader: SchemaFile
    field: str
    writers: Mapping[str, SchemaFile]
    first_rules: list[Rule]
    datum: str = PAYLOAD
    finds_unknown_fields: bool = True

    @classmethod
    def of_file(cls, format_: Avro, uses: FieldUses) -> AvroDecoder:
        """Datums of one schema."""
        writer = _parsable(format_.schema)
        reader = SchemaFile(writer.path, readable(writer.text, uses))
        return cls(reader, "format.avro.schema_file", {"true": writer}, [BLANK], finds_unknown_fields=False)

    @classmethod
    def of_single_objects(cls, format_: AvroSingleObject, uses: FieldUses) -> AvroDecoder:
        """Datums after the fingerprint of their schema.

        Raises:
            FormatMistake: A text is not a schema of a record, or its datums do not become the reader's records.
        """
        reader = _parsable(format_.reader)
        reader = SchemaFile(reader.path, readable(reader.text, uses))
        record_type(reader, "format.avro.reader")
        for writer in map(_parsable, format_.writers):
            record_type(SchemaFile(writer.path, readable(writer.text, FieldUses())), "format.avro.schemas")
            if refused := why_refused(reader.text, writer.text):
                message = f"{writer.path} does not become what {reader.path} describes: {refused}"
                raise FormatMistake("format.avro.schemas", message)
        # A fingerprint is that of the text as it is.
        writers = {f"startswith({PAYLOAD}, X'{_HEADER}{_fingerprint(w.text)}')": _parsable(w) for w in format_.writers}
        single = f"startswith({PAYLOAD}, X'{_HEADER}') AND length({PAYLOAD}) >= {_HEADER_BYTES}"
        known = " OR ".join(writers)
        rules = [BLANK, Rule("not_single_object", f"NOT ({single})"), Rule("unknown_schema", f"NOT ({known})")]
        return cls(reader, "format.avro.reader", writers, rules, f"substring({PAYLOAD}, {_HEADER_BYTES + 1})")

    @classmethod
    def of_registry(cls, known: KnownSchemas, uses: FieldUses) -> AvroDecoder:
        """Datums after a registry's frame; an empty payload may be a record without fields.

        Raises:
            FormatMistake: The reader's schema is not of type Avro.
        """
        schema, label = known.schema_of_reader("AVRO")
        reader, writers = SchemaFile(label, readable(parsable(in_one_text(schema)), uses)), {}
        for schema_id, schema in known.by_id.items():
            with suppress(ValueError, KeyError, TypeError):  # a text that is not a schema
                if schema.type == "AVRO" and not why_refused(reader.text, text := parsable(in_one_text(schema))):
                    writers[schema_id] = SchemaFile(str(schema_id), text)
        by_condition = {f"{FRAME}.schema_id = {schema_id}": writer for schema_id, writer in writers.items()}
        incompatible = Rule("incompatible_schema", other_schema_than(writers))
        return cls(reader, "format.avro.registry", by_condition, [incompatible])

    def record_type(self, ddl: str) -> StructType:
        return record_type(self.reader, self.field)

    def uses_after(self, uses: FieldUses) -> FieldUses:
        return uses.after_first_level()

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        if self._in_kernel:
            return with_kernel_record(messages, _read_by_kernel(messages.sparkSession, self, without_comments(record)))
        return (
            messages.withColumn(DOCUMENT, read_by_writer(self.datum, self.writers, self.reader))
            .withColumn(DECODED, is_datum(record))
            .withColumn(RECORD, _when_decoded(f"{DOCUMENT}.{DATUM}"))
        )

    def rules(self, record: StructType) -> list[Rule]:
        if self._in_kernel:
            return [*self.first_rules, KERNEL_RULE, Rule("malformed_avro", "true")]
        return [*self.first_rules, *datum_rules(record)]

    @cached_property
    def _in_kernel(self) -> bool:
        return avro_in_kernel(self.reader.text)

    def with_unknown(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        return with_unknown_of_writers(messages, self.writers, self.reader, where)


_KERNEL_CLASS = "kdi.avro.AvroDecoder"


def _read_by_kernel(spark: SparkSession, decoder: AvroDecoder, record: StructType) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    texts = [StructField(name, StringType()) for name in ("reason", "field")]
    document = StructType([StructField("record", record), *texts])
    read = F.when(F.lit(False), F.lit(None).cast(document))
    for condition, writer in decoder.writers.items():
        of_writer = kernel_object(spark, _KERNEL_CLASS, writer.text, decoder.reader.text)
        read = read.when(
            F.expr(condition), kernel_call(spark, _KERNEL_CLASS, "decode", document, decoder.datum, of_writer)
        )
    return read


def read_by_writer(datum: str, writers: Mapping[str, SchemaFile], reader: SchemaFile) -> Column:
    """``struct<datum, end>``: the datum as the reader's schema has it; all null where the bytes are no datum.

    Args:
        datum: Spark SQL: its bytes.
        writers: Schemas of datums by the condition (Spark SQL) that their messages meet.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro

    marked = F.expr(f"concat({datum}, X'{MARK}')")
    read = F.when(F.lit(False), from_avro(marked, _enclosed(reader.text), _OPTIONS))
    for condition, writer in writers.items():
        resolved = {} if writer.text == reader.text else {"avroSchema": _enclosed(reader.text)}
        read = read.when(F.expr(condition), from_avro(marked, _enclosed(writer.text), {**_OPTIONS, **resolved}))
    return read


def _enclosed(schema: str) -> str:
    """The schema of a datum and the mark after it."""
    end = {"type": "fixed", "name": _FIXED, "size": len(bytes.fromhex(MARK))}
    fields = [{"name": DATUM, "type": json.loads(schema)}, {"name": END, "type": end}]
    return json.dumps({"type": "record", "name": _TYPE, "fields": fields})


def is_datum(type_: DataType) -> Column:
    """Whether ``_kdi_document`` holds a datum of this type, all of it and nothing else."""
    from pyspark.sql import functions as F

    no_text = any_of(list(_text_rules(f"{DOCUMENT}.{DATUM}", type_)))
    return F.expr(f"coalesce({DOCUMENT}.{END} = X'{MARK}', false) AND NOT ({no_text})")


def datum_rules(type_: DataType, path: str = "") -> Iterator[Rule]:
    """Why ``_kdi_document`` holds no datum of this type; ``path`` is the datum's in the record."""
    yield Rule("trailing_bytes", f"{DOCUMENT}.{END} <> X'{MARK}'")
    for rule in _text_rules(f"{DOCUMENT}.{DATUM}", type_, path):
        yield Rule(rule.reason, f"{DOCUMENT}.{END} IS NOT NULL AND {rule.predicate}", rule.field)
    yield Rule("malformed_avro", "true")


def _text_rules(value: str, declared: DataType, path: str = "", *, depth: int = 0) -> Iterator[Rule]:
    """Strings must be UTF-8: Spark would write others, and other readers could not open the table."""
    from pyspark.sql import types as t

    item = f"_kdi_u{depth}"
    match declared:
        case t.StringType():
            yield Rule("invalid_utf8", f"NOT is_valid_utf8({value})", path)
        case t.StructType():
            for field in declared.fields:
                here = f"{path}.{field.name}" if path else field.name
                yield from _text_rules(f"{value}.{name(field.name)}", field.dataType, here, depth=depth)
        case t.ArrayType():
            for rule in _text_rules(item, declared.elementType, f"{path}[]", depth=depth + 1):
                yield Rule(rule.reason, f"exists({value}, {item} -> {rule.predicate})", rule.field)
        case t.MapType():
            for part, type_ in (("map_keys", declared.keyType), ("map_values", declared.valueType)):
                for rule in _text_rules(item, type_, f"{path}[]", depth=depth + 1):
                    yield Rule(rule.reason, f"exists({part}({value}), {item} -> {rule.predicate})", rule.field)


def with_unknown_of_writers(
    messages: DataFrame, writers: Mapping[str, SchemaFile], reader: SchemaFile, where: str
) -> DataFrame:
    """Add ``_kdi_unknown`` from the schema that a message was written with; the arguments are as elsewhere here."""
    paths = {condition: unknown_paths(writer.text, reader.text) for condition, writer in writers.items()}
    return with_unknown_of_schemas(messages, paths, where=where)


def _when_decoded(sql: str) -> Column:
    from pyspark.sql import functions as F

    return F.expr(f"CASE WHEN {DECODED} THEN {sql} END")


def record_type(schema: SchemaFile, field: str) -> StructType:
    """Spark's type for a schema, everything nullable.

    Raises:
        FormatMistake: It is no Avro schema, or not of a record, or Spark has no type for it.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        found = _type_of(schema.text)
    except (Py4JJavaError, PySparkException) as refused:
        reason = refused.java_exception.getMessage() if isinstance(refused, Py4JJavaError) else refused
        raise FormatMistake(field, f"{schema.path}: {first_line(reason)}") from refused
    if not isinstance(found, StructType):
        raise FormatMistake(field, f"{schema.path} describes no record but {found.simpleString()}")
    return with_avro_docs(found, schema.text)


@lru_cache(maxsize=64)
def _type_of(schema: str) -> Any:
    return avro_type(schema)


@lru_cache(maxsize=64)
def _fingerprint(schema: str) -> str:
    """CRC-64-AVRO of the schema's canonical form, in hex, in the byte order of messages."""
    return avro_fingerprint(schema).hex().upper()


@lru_cache(maxsize=64)
def why_refused(reader: str, writer: str) -> str:
    """Why datums of the writer's schema cannot be read by the reader's, or would change meaning; empty if they can."""
    from py4j.protocol import Py4JJavaError

    try:
        found = avro_incompatibilities(reader, writer)
    except Py4JJavaError as refused:  # registries keep old schemas that today's parser refuses
        return first_line(refused.java_exception.getMessage())
    if found is None:
        return "; ".join(f"{path}: another unit or scale" for path in other_meanings(writer, reader))
    return "; ".join(found)


def _parsable(schema: SchemaFile) -> SchemaFile:
    return SchemaFile(schema.path, parsable(schema.text))
