"""Protobuf to typed records, in Spark's Python workers: a payload crosses to them once, its record comes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from kdi_assets.formats.decoder import (
    DECODED,
    DOCUMENT,
    FRAME,
    PAYLOAD,
    RECORD,
    UNKNOWN,
    UNKNOWN_DDL,
    with_unknown_of_schemas,
)
from kdi_assets.formats.errors import FormatMistake
from kdi_assets.formats.framing import FIRST_MESSAGE, other_schema_than
from kdi_assets.formats.protobuf import payloads
from kdi_assets.formats.protobuf.columns import spark_record
from kdi_assets.formats.protobuf.compatible import becomes, unknown_paths
from kdi_assets.formats.protobuf.compiler import schema_descriptors
from kdi_assets.formats.protobuf.descriptors import DescriptorMistake, Descriptors
from kdi_assets.formats.protobuf.payloads import Payloads, Reading, decoding
from kdi_assets.formats.registry.schema import Schema
from kdi_assets.formats.registry.schemas import KnownSchemas
from kdi_assets.formats.rules import Rule
from kdi_assets.stream.message_format import Protobuf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class ProtobufDecoder:
    """A message per payload, of one type; ``_kdi_document`` is its record, or the number of the rule why not.

    Attributes:
        field: The document's field that names the descriptors.
        called: What mistakes call them.
        read: What follows from them; raises ``DescriptorMistake``.
    """

    field: str
    called: str
    read: Callable[[], Reading]

    @classmethod
    def of_file(cls, written: Protobuf) -> ProtobufDecoder:
        """Of messages as a set of descriptors has them."""
        return cls("format.protobuf", written.path, lambda: Reading(Payloads(written.descriptors, written.message)))

    @classmethod
    def of_registry(cls, known: KnownSchemas, message: str) -> ProtobufDecoder:
        """Of messages behind an index, in a text that the frame names.

        Args:
            message: Full name of the message that every payload must be; empty: the first of the reader's text.

        Raises:
            FormatMistake: The reader's schema is none of Protobuf.
        """
        reader, called = known.schema_of_reader("PROTOBUF")
        return cls("format.protobuf.registry", called, lambda: registered_reading(reader, known.by_id, message))

    def record_type(self, ddl: str) -> StructType:
        try:
            return spark_record(self._reading.record)
        except DescriptorMistake as refused:
            raise FormatMistake(self.field, f"{self.called}: {refused.message}") from refused

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        columns = [PAYLOAD] if self._writers is None else [PAYLOAD, f"{FRAME}.schema_id"]
        return _with_record(messages, self._reading.of, record, *columns)

    def rules(self, record: StructType) -> list[Rule]:
        unsuitable = [] if self._writers is None else [Rule("incompatible_schema", other_schema_than(self._writers))]
        *others, (reason, field) = self._reading.reasons
        numbered = enumerate(others, 1)
        return [
            *unsuitable,
            *(Rule(reason, f"{DOCUMENT}.{payloads.RULE} = {number}", field) for number, (reason, field) in numbered),
            Rule(reason, "true", field),
        ]

    def with_unknown(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        reading = self._reading
        paths = {
            f"{FRAME}.schema_id = {schema_id}": list(
                unknown_paths(Descriptors(writer), reading.of.message, reading.record).values()
            )
            for schema_id, writer in (self._writers or {}).items()
        }
        return _with_numbers(with_unknown_of_schemas(messages, paths, where=where), where)

    @cached_property
    def _reading(self) -> Reading:
        return self.read()

    @property
    def _writers(self) -> Mapping[int, bytes] | None:
        return self._reading.of.writers


def registered_reading(reader: Schema, by_id: Mapping[int, Schema], message: str | tuple[int, ...]) -> Reading:
    """A message of the reader's text, and which of the schemas write what becomes it.

    Args:
        message: Its full name, or its place as a message index gives it; empty: the first of the text.

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
            continue  # its messages are dead letters that say so
    return Reading(Payloads(read, message, writers))


def _with_record(messages: DataFrame, of: Payloads, record: StructType, *columns: str) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType

    take_code_along()
    decode = decoding(of)
    numbers = StructField(payloads.NUMBERS, ArrayType(StringType()))
    document = StructType([StructField(payloads.RULE, IntegerType()), StructField(payloads.RECORD, record), numbers])
    # Without annotations: PySpark would look for what they name. Not deterministic: else Spark may run it again where
    # its result stands in a condition.
    decoded = cast(Any, arrow_udf)(lambda *given: decode(*given), document).asNondeterministic()
    return (
        messages.withColumn(DOCUMENT, decoded(*map(F.expr, columns)))
        .withColumn(DECODED, F.expr(f"{DOCUMENT}.{payloads.RULE} IS NULL"))
        .withColumn(RECORD, F.expr(f"{DOCUMENT}.{payloads.RECORD}"))
    )


def _with_numbers(messages: DataFrame, where: str) -> DataFrame:
    """Add to ``_kdi_unknown`` what no schema has a name for."""
    from pyspark.sql import functions as F

    numbers = f"{DOCUMENT}.{payloads.NUMBERS}"
    each = (
        f"transform({numbers}, _kdi_n -> named_struct('path', _kdi_n, 'place', _kdi_n, 'value', CAST(NULL AS variant)))"
    )
    both = f"concat(coalesce({UNKNOWN}, CAST(array() AS {UNKNOWN_DDL})), {each})"
    told = f"CASE WHEN {where} AND {numbers} IS NOT NULL THEN {both} ELSE {UNKNOWN} END"
    return messages.withColumn(UNKNOWN, F.expr(told))


def take_code_along() -> None:
    """Send the functions themselves to workers, not the names of their modules.

    A warm driver's workers live on when this package is replaced by a newer one, and executors elsewhere need not have
    it at all.
    """
    from pyspark import cloudpickle

    from kdi_assets.formats import framing, protobuf

    for module in (framing, protobuf):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
