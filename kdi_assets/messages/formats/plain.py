"""Text, bytes and envelope: values and whole messages that are stored as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from kdi_assets.documents.model.source_struct import SourceStruct
from kdi_assets.messages.formats.decoder import DECODED, DOCUMENT, PAYLOAD, RECORD, VALUE, Decoder
from kdi_assets.messages.formats.errors import FormatMistake
from kdi_assets.messages.formats.rules import Rule, literal
from kdi_assets.runtime.spark_internals import kernel_call

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_ENVELOPE = "key binary, value binary, headers array<struct<key: string, value: binary>>"


@dataclass(frozen=True)
class PlainDecoder(Decoder):
    """The payload in one column.

    Attributes:
        kind: ``string`` is checked to be UTF-8; ``binary`` may be anything.
    """

    kind: Literal["string", "binary"]

    def record_type(self, ddl: str) -> StructType:
        from pyspark.sql.types import StructType

        declared = StructType.fromDDL(ddl or f"value {self.kind}")
        if not isinstance(declared, StructType) or [f.dataType.typeName() for f in declared.fields] != [self.kind]:
            raise FormatMistake("schema", f"the record has one column, of type {self.kind}")
        return declared

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        from pyspark.sql import functions as F

        (column,) = record.names
        fits = F.col(PAYLOAD).isNotNull() if self.kind == "binary" else is_utf8(messages.sparkSession)
        one = f"named_struct({literal(column)}, CAST({PAYLOAD} AS {self.kind}))"
        return (
            messages.withColumn(DOCUMENT, F.lit(None))
            .withColumn(DECODED, F.coalesce(fits, F.lit(False)))
            .withColumn(RECORD, F.expr(f"CASE WHEN {DECODED} THEN {one} END"))
        )

    def rules(self, record: StructType) -> list[Rule]:
        return [Rule("invalid_utf8", "true")]


def is_utf8(spark: SparkSession) -> Column:
    """Whether the payload is UTF-8; faster than Spark's ``is_valid_utf8`` for ASCII."""
    return kernel_call(spark, "kdi.json.Text", "isValid", "boolean", PAYLOAD)


@dataclass(frozen=True)
class EnvelopeDecoder(Decoder):
    """Key, payload and headers in a column each; a tombstone's payload is null."""

    struct: SourceStruct

    def record_type(self, ddl: str) -> StructType:
        from pyspark.sql.types import StructType

        declared, envelope = (cast(StructType, StructType.fromDDL(text)) for text in (ddl or _ENVELOPE, _ENVELOPE))
        if [(f.dataType, f.nullable) for f in declared] != [(f.dataType, f.nullable) for f in envelope]:
            types = ", ".join(f.dataType.simpleString() for f in envelope)
            raise FormatMistake("schema", f"the record has three columns, each may be null, of types {types}")
        return declared

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        from pyspark.sql import functions as F

        parts = (self.struct.letter["key"], PAYLOAD, self.struct.letter["headers"])
        whole = ", ".join(f"{literal(column)}, {part}" for column, part in zip(record.names, parts, strict=True))
        return (
            messages.withColumn(DOCUMENT, F.lit(None))
            .withColumn(DECODED, F.expr(f"{PAYLOAD} IS NOT NULL"))
            .withColumn(RECORD, F.expr(f"CASE WHEN {DECODED} OR {VALUE} IS NULL THEN named_struct({whole}) END"))
        )

    def rules(self, record: StructType) -> list[Rule]:
        return []
