"""Avro to typed records: raw datums by one schema; behind a fingerprint or a registry's id, by as many as there are.

Spark's ``from_avro`` alone is no validator: it gives a struct of nulls for what it cannot read, and stops reading where
the datum ends, whatever follows. So a mark of our own is put behind the payload, and datum and mark are read together:
only if the mark comes out as it went in, the payload was the datum, all of it and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from kdi_assets.formats.avro.differences import other_meanings, unknown_paths
from kdi_assets.formats.avro.schema_text import in_one_text
from kdi_assets.formats.decoder import DECODED, DOCUMENT, FRAME, PAYLOAD, RECORD, with_unknown_of_schemas
from kdi_assets.formats.errors import FormatMistake
from kdi_assets.formats.framing import other_schema_than
from kdi_assets.formats.registry.schema import Schema
from kdi_assets.formats.registry.schemas import KnownSchemas
from kdi_assets.formats.rules import Rule, any_of, name
from kdi_assets.stream.message_format import Avro, AvroSingleObject, SchemaFile

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

MARK = "9F1C7E52D3A8460B"
"""No beginning of it is an end of it: a payload that is too long or too short by a few bytes cannot give it again."""
DATUM, END = "datum", "end"
_TYPE, _FIXED = "kdi_k9f1c", "kdi_k7e52"
"""Names that no schema has by chance."""
_OPTIONS = {"mode": "PERMISSIVE", "datetimeRebaseMode": "CORRECTED"}
_HEADER = "C301"
_HEADER_BYTES = 10
"""Of a single object: two of its own, then the schema's fingerprint."""
_BLANK = Rule("blank", f"length({PAYLOAD}) = 0")


@dataclass(frozen=True, slots=True)
class AvroDecoder:
    """One datum per message, of one schema; ``_kdi_document`` is datum and mark."""

    written: Avro

    def record_type(self, ddl: str) -> StructType:
        return record_type(self.written.schema, "format.avro.schema_file")

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        return _with_record(messages, datum(PAYLOAD, self.written.schema), record)

    def rules(self, record: StructType) -> list[Rule]:
        return [_BLANK, *_rules(record)]


@dataclass(frozen=True, slots=True)
class AvroWritersDecoder:
    """A datum of one of several schemas, behind what tells which; ``_kdi_document`` is datum and mark.

    Attributes:
        reader: What every datum becomes.
        field: The document's field that names it.
        writers: By the condition (Spark SQL) that tells a message of each.
        datum: Spark SQL: what of the payload is the datum.
        first: What condemns a message before its datum is looked at.
    """

    reader: SchemaFile
    field: str
    writers: Mapping[str, SchemaFile]
    datum: str
    first: list[Rule]

    @classmethod
    def of_single_objects(cls, written: AvroSingleObject) -> AvroWritersDecoder:
        """Behind the fingerprint of a schema.

        Raises:
            FormatMistake: A text is no schema of a record, or does not become what the reader describes.
        """
        reader = written.reader
        record_type(reader, "format.avro.reader")
        for writer in written.writers:
            record_type(writer, "format.avro.schemas")
            if refused := why_refused(reader.text, writer.text):
                message = f"{writer.path} does not become what {reader.path} describes: {refused}"
                raise FormatMistake("format.avro.schemas", message)
        of = {f"startswith({PAYLOAD}, X'{_HEADER}{_fingerprint(w.text)}')": w for w in written.writers}
        single = f"startswith({PAYLOAD}, X'{_HEADER}') AND length({PAYLOAD}) >= {_HEADER_BYTES}"
        foreign = [Rule("not_single_object", f"NOT ({single})"), Rule("unknown_schema", f"NOT ({' OR '.join(of)})")]
        behind = f"substring({PAYLOAD}, {_HEADER_BYTES + 1})"
        return cls(reader, "format.avro.reader", of, behind, [_BLANK, *foreign])

    @classmethod
    def of_registry(cls, known: KnownSchemas) -> AvroWritersDecoder:
        """Behind a registry's frame.

        Raises:
            FormatMistake: The reader's schema is none of Avro.
        """
        reader, usable = _text_of(*known.schema_of_reader("AVRO")), {}
        for schema_id, schema in known.by_id.items():
            with suppress(ValueError, KeyError, TypeError):  # a text that is no schema
                if schema.type == "AVRO":
                    writer = _text_of(schema, str(schema_id))
                    if not why_refused(reader.text, writer.text):
                        usable[schema_id] = writer
        of = {f"{FRAME}.schema_id = {schema_id}": writer for schema_id, writer in usable.items()}
        # An empty payload is a record of nothing, where the schema has such.
        unsuitable = Rule("incompatible_schema", other_schema_than(usable))
        return cls(reader, "format.avro.registry", of, PAYLOAD, [unsuitable])

    def record_type(self, ddl: str) -> StructType:
        return record_type(self.reader, self.field)

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        from pyspark.sql import functions as F

        read = F.when(F.lit(False), datum(self.datum, self.reader))
        for condition, writer in self.writers.items():
            read = read.when(F.expr(condition), datum(self.datum, writer, reader=self.reader))
        return _with_record(messages, read, record)

    def rules(self, record: StructType) -> list[Rule]:
        return [*self.first, *_rules(record)]

    def with_unknown(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        return with_unknown_of(messages, self.writers, self.reader, where)


def _text_of(schema: Schema, called: str) -> SchemaFile:
    return SchemaFile(called, in_one_text(schema))


def _rules(record: StructType) -> list[Rule]:
    return [
        Rule("trailing_bytes", f"{DOCUMENT}.{END} <> X'{MARK}'"),
        *(
            Rule(rule.reason, f"{DOCUMENT}.{END} IS NOT NULL AND {rule.predicate}", rule.field)
            for rule in text_rules(f"{DOCUMENT}.{DATUM}", record)
        ),
        Rule("malformed_avro", "true"),
    ]


def text_rules(value: str, declared: DataType, path: str = "", *, depth: int = 0) -> Iterator[Rule]:
    """What condemns text that is none: Spark would write it, and other readers could not open the table."""
    from pyspark.sql import types as t

    item = f"_kdi_u{depth}"
    match declared:
        case t.StringType():
            yield Rule("invalid_utf8", f"NOT is_valid_utf8({value})", path)
        case t.StructType():
            for field in declared.fields:
                here = f"{path}.{field.name}" if path else field.name
                yield from text_rules(f"{value}.{name(field.name)}", field.dataType, here, depth=depth)
        case t.ArrayType():
            for rule in text_rules(item, declared.elementType, f"{path}[]", depth=depth + 1):
                yield Rule(rule.reason, f"exists({value}, {item} -> {rule.predicate})", rule.field)
        case t.MapType():
            for part, type_ in (("map_keys", declared.keyType), ("map_values", declared.valueType)):
                for rule in text_rules(item, type_, f"{path}[]", depth=depth + 1):
                    yield Rule(rule.reason, f"exists({part}({value}), {item} -> {rule.predicate})", rule.field)


def datum(payload: str, writer: SchemaFile, *, reader: SchemaFile | None = None) -> Column:
    """Datum and mark, as ``reader`` has them; all of it null where the payload is something else."""
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro

    options = {**_OPTIONS, **({"avroSchema": _enclosed(reader.text)} if reader else {})}
    return from_avro(F.expr(f"concat({payload}, X'{MARK}')"), _enclosed(writer.text), options)


def _with_record(messages: DataFrame, document: Column, record: StructType) -> DataFrame:
    from pyspark.sql import functions as F

    no_text = any_of(list(text_rules(f"{DOCUMENT}.{DATUM}", record)))
    return (
        messages.withColumn(DOCUMENT, document)
        .withColumn(DECODED, F.expr(f"coalesce({DOCUMENT}.{END} = X'{MARK}', false) AND NOT ({no_text})"))
        .withColumn(RECORD, F.expr(f"CASE WHEN {DECODED} THEN {DOCUMENT}.{DATUM} END"))
    )


def with_unknown_of(
    messages: DataFrame, writers: Mapping[str, SchemaFile], reader: SchemaFile, where: str
) -> DataFrame:
    """By the schema that a message was written with: ``writers`` are by the condition that tells them."""
    paths = {condition: unknown_paths(writer.text, reader.text) for condition, writer in writers.items()}
    return with_unknown_of_schemas(messages, paths, where=where)


def _enclosed(schema: str) -> str:
    """The schema of a datum with the mark behind it."""
    end = {"type": "fixed", "name": _FIXED, "size": len(bytes.fromhex(MARK))}
    fields = [{"name": DATUM, "type": json.loads(schema)}, {"name": END, "type": end}]
    return json.dumps({"type": "record", "name": _TYPE, "fields": fields})


def record_type(schema: SchemaFile, field: str) -> StructType:
    """What Spark makes of a schema, everything nullable.

    Raises:
        FormatMistake: It is no Avro schema, or none of a record, or one that Spark has no type for.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        found = _type_of(schema.text)
    except Py4JJavaError as refused:
        raise FormatMistake(field, f"{schema.path}: {_first_line(refused.java_exception.getMessage())}") from refused
    except PySparkException as refused:
        raise FormatMistake(field, f"{schema.path}: {_first_line(refused)}") from refused
    if not isinstance(found, StructType):
        raise FormatMistake(field, f"{schema.path} describes no record but {found.simpleString()}")
    return found


@lru_cache(maxsize=64)
def _type_of(schema: str) -> Any:
    from pyspark.sql.types import _parse_datatype_json_string

    jvm = _jvm()
    declared = jvm.org.apache.spark.sql.avro.SchemaConverters.toSqlType(_parsed(schema)).dataType()
    return _parse_datatype_json_string(declared.asNullable().json())


@lru_cache(maxsize=64)
def _fingerprint(schema: str) -> str:
    """CRC-64-AVRO of the schema's canonical form, in the order of bytes that a message has it."""
    found = _jvm().org.apache.avro.SchemaNormalization.parsingFingerprint("CRC-64-AVRO", _parsed(schema))
    return bytes(found).hex().upper()


@lru_cache(maxsize=64)
def why_refused(reader: str, writer: str) -> str:
    """Why what one schema wrote cannot be read by the other, or would be read as something else; empty if it can."""
    from py4j.protocol import Py4JJavaError

    judge = _jvm().org.apache.avro.SchemaCompatibility
    try:
        found = judge.checkReaderWriterCompatibility(_parsed(reader), _parsed(writer))
    except Py4JJavaError as refused:  # registries keep schemas of times when less was asked of them
        return _first_line(refused.java_exception.getMessage())
    if str(found.getType().toString()) == "COMPATIBLE":
        return "; ".join(f"{path}: another unit or scale" for path in other_meanings(writer, reader))
    return "; ".join(f"{i.getLocation()}: {i.getMessage()}" for i in found.getResult().getIncompatibilities())


def _first_line(said: object) -> str:
    return str(said).strip().splitlines()[0]


def _parsed(schema: str) -> Any:
    return _jvm().org.apache.avro.Schema.Parser().parse(schema)


def _jvm() -> Any:
    from pyspark import SparkContext

    return cast(Any, SparkContext._active_spark_context)._jvm
