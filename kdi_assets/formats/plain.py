"""Text, bytes, envelope: values and whole messages that land as they are, to be decoded later or never."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from kdi_assets.formats.catalyst import is_ascii
from kdi_assets.formats.decoder import DECODED, DOCUMENT, PAYLOAD, RECORD, VALUE
from kdi_assets.formats.errors import FormatMistake
from kdi_assets.formats.rules import Rule, literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_TEXT = f"CAST({PAYLOAD} AS STRING)"
_ASCII = "_kdi_ascii"
_ENVELOPE = "key binary, value binary, headers array<struct<key: string, value: binary>>"


@dataclass(frozen=True, slots=True)
class PlainDecoder:
    """The payload in one column.

    Attributes:
        kind: ``string``: UTF-8, checked; ``binary``: whatever it is.
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
        value = _TEXT if self.kind == "string" else PAYLOAD
        one = f"named_struct({literal(column)}, {value})"
        return (
            messages.withColumn(DOCUMENT, F.lit(None))
            .withColumn(DECODED, self._fits(messages))
            .withColumn(RECORD, F.expr(f"CASE WHEN {DECODED} THEN {one} END"))
        )

    def rules(self, record: StructType) -> list[Rule]:
        return [Rule("invalid_utf8", "true")]

    def _fits(self, messages: DataFrame) -> Column:
        from pyspark.sql import functions as F

        if self.kind == "binary":
            return F.expr(f"{PAYLOAD} IS NOT NULL")
        utf8 = is_ascii(messages.sparkSession, _TEXT) | F.expr(f"is_valid_utf8({_TEXT})")
        return F.coalesce(utf8, F.lit(False))


@dataclass(frozen=True, slots=True)
class EnvelopeDecoder:
    """Key, payload and headers in a column each; a tombstone has all of them but the payload."""

    def record_type(self, ddl: str) -> StructType:
        from pyspark.sql.types import StructType

        declared, envelope = (cast(StructType, StructType.fromDDL(said)) for said in (ddl or _ENVELOPE, _ENVELOPE))
        if [(f.dataType, f.nullable) for f in declared] != [(f.dataType, f.nullable) for f in envelope]:
            types = ", ".join(f.dataType.simpleString() for f in envelope)
            raise FormatMistake("schema", f"the record has three columns, each may be null, of types {types}")
        return declared

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        from pyspark.sql import functions as F

        parts = ("kafka.key", PAYLOAD, "kafka.headers")
        whole = ", ".join(f"{literal(column)}, {part}" for column, part in zip(record.names, parts, strict=True))
        return (
            messages.withColumn(DOCUMENT, F.lit(None))
            .withColumn(DECODED, F.expr(f"{PAYLOAD} IS NOT NULL"))
            .withColumn(RECORD, F.expr(f"CASE WHEN {DECODED} OR {VALUE} IS NULL THEN named_struct({whole}) END"))
        )

    def rules(self, record: StructType) -> list[Rule]:
        return []
