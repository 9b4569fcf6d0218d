"""Messages that name files, and rows of files, as decoders.

A message is decoded if all of its files were read and every row is good. That is known before the pass that writes:
``streams.rules.files`` reads the files and puts what it found into ``FilesDecoder.known``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kdi_assets.documents.model.message_format import Files
from kdi_assets.documents.model.source_struct import SourceStruct
from kdi_assets.messages.formats.decoder import DECODED, DOCUMENT, PAYLOAD, RECORD, Decoder
from kdi_assets.messages.formats.rules import Rule, name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

RESULT_DDL = "struct<reason: string, field: string, rows: bigint, nothing: boolean, unmet: array<string>>"
"""What is known of a message: why it is a dead letter, how many rows it becomes, whether it names nothing to read, and
the numbers of the expectations that one of its rows does not meet."""
_KEY = ("_kdi_at_partition", "_kdi_at_offset")
ROW_COORDINATES = ("index", "count")
"""Further coordinates of a row of a file."""
ROW_NAMES_DDL = "file string, index int, count int"
"""What the source's struct has of a row of a file, besides the message."""


@dataclass(frozen=True)
class FilesDecoder(Decoder):
    """Messages to what is known of their files.

    Attributes:
        known: ``partition: int, offset: bigint, result``: of the messages of a plan; ``None``: of no message yet.
        files: The files of the messages that become rows, as ``streams.rules.file_rows`` places them.
        seen: By file, ``LookedAt.state`` before the first pass.
    """

    format: Files
    struct: SourceStruct
    known: DataFrame | None = field(default=None, compare=False)
    files: Sequence[Any] = field(default=(), compare=False)
    seen: Mapping[str, tuple[int, int]] = field(default_factory=dict, compare=False)

    def record_type(self, ddl: str) -> StructType:
        from pyspark.sql.types import StructType

        return StructType()

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        from pyspark.sql import functions as F

        if self.known is None:
            with_result = messages.withColumn(DOCUMENT, F.expr(f"CAST(NULL AS {RESULT_DDL})"))
        else:
            path = self.struct.path
            known = F.broadcast(self.known.toDF(*_KEY, DOCUMENT))
            at = F.expr(f"{path('partition')} = {_KEY[0]} AND {path('offset')} = {_KEY[1]}")
            with_result = messages.join(known, at, "left").drop(*_KEY)
        decoded = f"coalesce({DOCUMENT} IS NOT NULL AND {DOCUMENT}.reason IS NULL, false)"
        return with_result.withColumn(DECODED, F.expr(decoded)).withColumn(RECORD, F.lit(None).cast(record))

    def rules(self, record: StructType) -> list[Rule]:
        reason, detail = (f"coalesce({DOCUMENT}.{part}, '')" for part in ("reason", "field"))
        return [Rule("unreadable_file", "true", reason_sql=reason, field_sql=detail)]


@dataclass(frozen=True)
class ParquetRowDecoder(Decoder):
    """Rows of Parquet files: the payload is the record already, as a struct."""

    reads_by_name = True
    decodes_bytes = False

    def record_type(self, ddl: str) -> StructType:
        from typing import cast

        from pyspark.sql.types import StructType

        return cast(StructType, StructType.fromDDL(ddl))

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        from pyspark.sql import functions as F

        missing = " OR ".join(f"{PAYLOAD}.{name(f.name)} IS NULL" for f in record.fields if not f.nullable)
        return (
            messages.withColumn(DOCUMENT, F.lit(None))
            .withColumn(DECODED, F.expr(f"NOT coalesce({missing or 'false'}, true)"))
            .withColumn(RECORD, F.col(PAYLOAD))
        )

    def rules(self, record: StructType) -> list[Rule]:
        needed = [f.name for f in record.fields if not f.nullable]
        missing = [Rule("missing_field", f"{PAYLOAD}.{name(n)} IS NULL", n) for n in needed]
        return [*missing, Rule("missing_field", "true")]
