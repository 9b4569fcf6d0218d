"""Protobuf to typed records: in the kernel (``kdi_assets/jvm``), or in Spark's Python workers.

In Python workers only where the kernel does not read the message's type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from kdi_assets.documents.model.message_format import Protobuf
from kdi_assets.messages.formats import framing, protobuf
from kdi_assets.messages.formats.comments import without_comments
from kdi_assets.messages.formats.decoder import (
    DECODED,
    DOCUMENT,
    FRAME,
    KERNEL_RULE,
    PAYLOAD,
    RECORD,
    UNKNOWN,
    UNKNOWN_DDL,
    Decoder,
    entry_without_value,
    with_kernel_record,
    with_unknown_of_schemas,
)
from kdi_assets.messages.formats.errors import FormatMistake
from kdi_assets.messages.formats.framing import FIRST_MESSAGE, other_schema_than
from kdi_assets.messages.formats.protobuf import payloads
from kdi_assets.messages.formats.protobuf.columns import spark_record
from kdi_assets.messages.formats.protobuf.comments import with_protobuf_comments
from kdi_assets.messages.formats.protobuf.compatible import becomes, left_out_paths, unknown_paths
from kdi_assets.messages.formats.protobuf.descriptors import DescriptorMistake, Descriptors, schema_descriptors
from kdi_assets.messages.formats.protobuf.kernel import kernel_description
from kdi_assets.messages.formats.protobuf.payloads import Payloads, Reading, decoding
from kdi_assets.messages.formats.protobuf.records import Record
from kdi_assets.messages.formats.registry.schema import Schema
from kdi_assets.messages.formats.registry.schemas import KnownSchemas
from kdi_assets.messages.formats.rules import Rule
from kdi_assets.runtime.spark_internals import kernel_call, kernel_object
from kdi_assets.runtime.worker_code import send_by_value

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class ProtobufDecoder(Decoder):
    """A message per payload, of one type; ``_kdi_document`` is its record, or why there is none.

    The kernel gives reason and field; Python workers give the number of a rule.

    Attributes:
        field: The document's field that names the descriptors.
        label: Their name in error messages.
        read: Reads the descriptors; raises ``DescriptorMistake``.
    """

    field: str
    label: str
    read: Callable[[], Reading]

    bounds_times = True
    finds_unknown_fields = True

    @classmethod
    def of_file(cls, format_: Protobuf) -> ProtobufDecoder:
        """The message of a set of descriptors."""
        return cls("format.protobuf", format_.path, lambda: Reading(Payloads(format_.descriptors, format_.message)))

    @classmethod
    def of_registry(cls, known: KnownSchemas, message: str) -> ProtobufDecoder:
        """Messages after a message index, of the schemas that frames name.

        Args:
            message: Full name of the message that every payload must be; empty: the first of the reader's schema.

        Raises:
            FormatMistake: The reader's schema is not of type Protobuf.
        """
        reader, label = known.schema_of_reader("PROTOBUF")
        return cls("format.protobuf.registry", label, lambda: registered_reading(reader, known.by_id, message))

    def record_type(self, ddl: str) -> StructType:
        try:
            reading = self._reading
            message = reading.descriptors.message(reading.payloads.message)
            return with_protobuf_comments(spark_record(reading.record), message, reading.descriptors)
        except DescriptorMistake as refused:
            raise FormatMistake(self.field, f"{self.label}: {refused.message}") from refused

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        columns = [PAYLOAD] if self._writers is None else [PAYLOAD, f"{FRAME}.schema_id"]
        if self._described is not None:
            read = _read_by_kernel(messages.sparkSession, self._described, without_comments(record), *columns)
            return with_kernel_record(messages, read)
        return _with_record(messages, self._reading.payloads, without_comments(record), *columns)

    def rules(self, record: StructType) -> list[Rule]:
        framed = [] if self._writers is None else [Rule("incompatible_schema", other_schema_than(self._writers))]
        if self._described is not None:
            return [*framed, KERNEL_RULE, Rule(payloads.MALFORMED, "true")]
        *others, (reason, field) = self._reading.reasons
        numbered = enumerate(others, 1)
        return [
            *framed,
            *(Rule(reason, f"{DOCUMENT}.{payloads.RULE} = {number}", field) for number, (reason, field) in numbered),
            Rule(reason, "true", field),
        ]

    def with_unknown(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        reading = self._reading
        read = Record(tuple(field for field in reading.record.fields if field.name in record.names))
        message = reading.payloads.message
        paths: dict[str, list[str]] = {}
        for schema_id, text in (self._writers or {}).items():
            writer = Descriptors(text)
            known = unknown_paths(writer, message, read).values()
            paths[f"{FRAME}.schema_id = {schema_id}"] = [*known, *left_out_paths(writer, message)]
        return _with_numbers(with_unknown_of_schemas(messages, paths, where=where), where)

    @cached_property
    def _reading(self) -> Reading:
        return self.read()

    @cached_property
    def _described(self) -> str | None:
        """The record for the kernel; ``None`` if Python workers decode."""
        return kernel_description(self._reading)

    @property
    def left_out(self) -> Mapping[str, str]:  # type: ignore[override]
        return self._reading.record.left_out

    @property
    def _writers(self) -> Mapping[int, bytes] | None:
        return self._reading.payloads.writers


def registered_reading(reader: Schema, by_id: Mapping[int, Schema], message: str | tuple[int, ...]) -> Reading:
    """A message of the reader's schema, and the schemas whose messages become it.

    Args:
        message: Its full name, or the path of a message index; empty: the first of the schema.

    Raises:
        DescriptorMistake: There is no such message, or no table can hold it.
    """
    read = schema_descriptors(reader)
    if not isinstance(message, str) or not message:
        message = Descriptors(read).message_at(message or FIRST_MESSAGE) or ""
    record = Reading(Payloads(read, message)).record
    writers: dict[int, bytes] = {}
    for schema_id, schema in by_id.items():
        try:
            written = schema_descriptors(schema)
            if becomes(Descriptors(written), message, record):
                writers[schema_id] = written
        except DescriptorMistake:
            continue  # its messages become dead letters, reason incompatible_schema
    return Reading(Payloads(read, message, writers))


_KERNEL_CLASS = "kdi.protobuf.ProtobufDecoder"


def _read_by_kernel(spark: SparkSession, described: str, record: StructType, *columns: str) -> Column:
    from pyspark.sql.types import ArrayType, StringType, StructField, StructType

    text = StringType()
    reasons = [StructField("reason", text), StructField("field", text)]
    numbers = StructField(payloads.NUMBERS, ArrayType(text))
    document = StructType([StructField(payloads.RECORD, record), *reasons, numbers])
    decoder = kernel_object(spark, _KERNEL_CLASS, described)
    method = "decode" if columns == (PAYLOAD,) else "decodeIndexed"
    return kernel_call(spark, _KERNEL_CLASS, method, document, *columns, decoder)


def _with_record(messages: DataFrame, of: Payloads, record: StructType, *columns: str) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType

    send_by_value(framing, protobuf)
    decode = decoding(of)
    numbers = StructField(payloads.NUMBERS, ArrayType(StringType()))
    document = StructType([StructField(payloads.RULE, IntegerType()), StructField(payloads.RECORD, record), numbers])
    # A lambda, because PySpark would evaluate annotations. Not deterministic: otherwise Spark may run it twice where a
    # condition uses its result.
    decoded = cast(Any, arrow_udf)(lambda *columns: decode(*columns), document).asNondeterministic()
    return (
        messages.withColumn(DOCUMENT, decoded(*map(F.expr, columns)))
        .withColumn(DECODED, F.expr(f"{DOCUMENT}.{payloads.RULE} IS NULL"))
        .withColumn(RECORD, F.expr(f"{DOCUMENT}.{payloads.RECORD}"))
    )


def _with_numbers(messages: DataFrame, where: str) -> DataFrame:
    """Add the fields that no schema names to ``_kdi_unknown``."""
    from pyspark.sql import functions as F

    numbers = f"{DOCUMENT}.{payloads.NUMBERS}"
    each = f"transform({numbers}, _kdi_n -> {entry_without_value('_kdi_n')})"
    both = f"concat(coalesce({UNKNOWN}, CAST(array() AS {UNKNOWN_DDL})), {each})"
    unknown = f"CASE WHEN {where} AND {numbers} IS NOT NULL THEN {both} ELSE {UNKNOWN} END"
    return messages.withColumn(UNKNOWN, F.expr(unknown))
