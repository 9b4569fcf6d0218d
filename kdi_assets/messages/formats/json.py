"""JSON messages to typed records: one pass in the kernel (``kdi_assets/jvm``); no value is changed silently."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from kdi_assets.messages.formats.decoder import (
    DOCUMENT,
    KERNEL_RULE,
    MISFITS,
    PATHS,
    PAYLOAD,
    UNKNOWN,
    UNKNOWN_DDL,
    Decoder,
    with_kernel_record,
)
from kdi_assets.messages.formats.errors import FormatMistake
from kdi_assets.messages.formats.rules import Rule
from kdi_assets.runtime.spark_internals import jvm_type, kernel_call, kernel_object

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

AnyType = TypeVar("AnyType", bound="DataType")
_CLASS = "kdi.json.JsonDecoder"


@dataclass(frozen=True)
class JsonDecoder(Decoder):
    """JSON by a declared record; ``_kdi_document`` is the kernel's result.

    Attributes:
        unless: Spark SQL: which messages must not be decoded, whatever they hold.
        salvages: Whether a value that does not fit its type is left out, and the rest of the message decoded.
    """

    unless: str = "false"
    salvages: bool = False

    finds_unknown_fields = True
    bounds_times = True
    reads_by_name = True

    def record_type(self, ddl: str) -> StructType:
        """The DDL's type; a message must have its ``NOT NULL`` fields."""
        from pyspark.sql.types import StructType

        declared = cast(StructType, StructType.fromDDL(ddl))
        if path := next(_other_keys(declared), ""):
            raise FormatMistake("schema", f"{path} has keys that are not strings, as JSON's are")
        return declared

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        from pyspark.sql.types import StructField, StructType

        found = f"reason string, field string, paths array<string>, misfits {UNKNOWN_DDL}"
        fields = cast(StructType, StructType.fromDDL(found)).fields
        document = StructType([StructField("record", _nullable(record)), *fields])
        read = self._call(messages.sparkSession, "decode", document, record)
        return with_kernel_record(messages, read, unless=self.unless, beside={MISFITS: f"{DOCUMENT}.misfits"})

    def with_unknown(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        from pyspark.sql import functions as F

        found = self._call(messages.sparkSession, "unknown", UNKNOWN_DDL, record)
        return messages.withColumn(UNKNOWN, F.when(F.expr(f"({where}) AND {DOCUMENT}.paths IS NOT NULL"), found))

    def with_unknown_paths(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        from pyspark.sql import functions as F

        return messages.withColumn(PATHS, F.expr(f"CASE WHEN {where} THEN {DOCUMENT}.paths END"))

    def rules(self, record: StructType) -> list[Rule]:
        return [KERNEL_RULE]

    def _call(self, spark: SparkSession, method: str, returns: str | DataType, record: StructType) -> Column:
        decoder = kernel_object(spark, _CLASS, jvm_type(spark, record), self.salvages)
        return kernel_call(spark, _CLASS, method, returns, PAYLOAD, decoder)


def _nullable(declared: AnyType) -> AnyType:
    """The type with everything nullable: messages must have what is NOT NULL, a column of ours need not."""
    from pyspark.sql import types as t

    match declared:
        case t.StructType():
            return t.StructType([t.StructField(f.name, _nullable(f.dataType)) for f in declared])  # type: ignore[return-value]
        case t.ArrayType():
            return t.ArrayType(_nullable(declared.elementType))  # type: ignore[return-value]
        case t.MapType():
            return t.MapType(t.StringType(), _nullable(declared.valueType))  # type: ignore[return-value]
    return declared


def _other_keys(declared: DataType, path: str = "") -> Iterator[str]:
    """Paths of maps whose keys are not strings."""
    from pyspark.sql import types as t

    match declared:
        case t.StructType():
            for field in declared.fields:
                yield from _other_keys(field.dataType, f"{path}.{field.name}" if path else field.name)
        case t.ArrayType():
            yield from _other_keys(declared.elementType, f"{path}[]")
        case t.MapType():
            if not isinstance(declared.keyType, t.StringType):
                yield path
            yield from _other_keys(declared.valueType, f"{path}[]")
