"""JSON messages to typed records: one pass in the kernel (``kdi_assets/jvm``), and nothing changed in silence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from kdi_assets.formats.catalyst import from_kernel
from kdi_assets.formats.decoder import DECODED, DOCUMENT, MISFITS, PATHS, PAYLOAD, RECORD, UNKNOWN, UNKNOWN_DDL
from kdi_assets.formats.errors import FormatMistake
from kdi_assets.formats.rules import Rule

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

AnyType = TypeVar("AnyType", bound="DataType")
_CLASS = "kdi.json.JsonDecoder"


@dataclass(frozen=True, slots=True)
class JsonDecoder:
    """JSON by a declared record; ``_kdi_document`` is what the kernel says of the message.

    Attributes:
        unless: Spark SQL: whether a message is not to be decoded, whatever it holds.
        salvages: Whether a value that does not suit its type is left out, and the message is decoded all the same.
    """

    unless: str = "false"
    salvages: bool = False

    def record_type(self, ddl: str) -> StructType:
        """What the DDL says; ``NOT NULL`` fields must be there."""
        from pyspark.sql.types import StructType

        declared = cast(StructType, StructType.fromDDL(ddl))
        if path := next(_other_keys(declared), ""):
            raise FormatMistake("schema", f"{path} has keys that are no strings, as JSON's are")
        return declared

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField, StructType

        told = cast(StructType, StructType.fromDDL(f"paths array<string>, misfits {UNKNOWN_DDL}")).fields
        texts = [StructField(name, StringType()) for name in ("reason", "field")]
        document = StructType([StructField("record", _nullable(record)), *texts, *told])
        is_record = f"{DOCUMENT} IS NOT NULL AND {DOCUMENT}.reason IS NULL AND NOT ({self.unless})"
        return (
            messages.withColumn(DOCUMENT, self._call(messages.sparkSession, "decode", document, record))
            .withColumn(DECODED, F.expr(is_record))
            .withColumn(RECORD, F.expr(f"CASE WHEN {DECODED} THEN {DOCUMENT}.record END"))
            .withColumn(MISFITS, F.expr(f"{DOCUMENT}.misfits"))
        )

    def with_unknown(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        from pyspark.sql import functions as F

        found = self._call(messages.sparkSession, "unknown", UNKNOWN_DDL, record)
        return messages.withColumn(UNKNOWN, F.when(F.expr(f"({where}) AND {DOCUMENT}.paths IS NOT NULL"), found))

    def with_paths(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        from pyspark.sql import functions as F

        return messages.withColumn(PATHS, F.expr(f"CASE WHEN {where} THEN {DOCUMENT}.paths END"))

    def rules(self, record: StructType) -> list[Rule]:
        told = Rule(
            "", f"{DOCUMENT}.reason IS NOT NULL", reason_sql=f"{DOCUMENT}.reason", field_sql=f"{DOCUMENT}.field"
        )
        return [told]

    def _call(self, spark: SparkSession, method: str, gives: str | DataType, record: StructType) -> Column:
        return from_kernel(spark, _CLASS, method, PAYLOAD, gives=gives, built_with=(record, self.salvages))


def _nullable(declared: AnyType) -> AnyType:
    """The type with everything nullable: what must be there is asked of messages, not of tables."""
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
    """Paths of maps whose keys are no strings."""
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
