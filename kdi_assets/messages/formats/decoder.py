"""What a decoder of a format does, and the working columns that decoders share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from kdi_assets.messages.formats.field_uses import FieldUses
from kdi_assets.messages.formats.rules import Rule, literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

VALUE = "_kdi_value"
"""The message's value, as Kafka keeps it."""
PAYLOAD = "_kdi_payload"
"""The bytes that are decoded: the value, decompressed and without its frame; null where there are none."""
FRAME = "_kdi_frame"
"""The registry's frame, ``struct<reason: string, schema_id: bigint>``: why it is missing, or the schema's id; null in
streams without a registry."""
DOCUMENT = "_kdi_document"
"""What the decoder made of the payload, for its own rules; each format has its own type."""
MISFIT_NUMBER = "_kdi_misfit_number"
"""Of CSV: the first decimal or binary fraction that its column does not hold, as the kernel's ``Numbers`` says it."""
VIOLATION = "_kdi_violation"
"""Path of the field that violates the schema, empty for the whole payload; null if nothing does or nobody validates."""
WRONG_SHARD = "_kdi_wrong_shard"
"""Whether the source says that another topic partition should have the message; only where a source can say so."""
DECODED = "_kdi_decoded"
RECORD = "_kdi_record"
UNKNOWN = "_kdi_unknown"
"""Fields that a decoded message has and its record lacks, of type ``UNKNOWN_DDL``: the path, the place in this message
(with indexes and keys), and the value if the format has it; null if there are none."""
PATHS = "_kdi_unknown_paths"
"""Only the paths of these fields, ``array<string>``: sorted, without duplicates; null if there are none."""
MISFITS = "_kdi_misfits"
"""Values that were left out of the record because they do not fit its type; typed like ``_kdi_unknown``."""
RESCUED = "_kdi_rescued"
"""The unknown fields and misfits that a row keeps, as JSON; null if there are none."""
UNKNOWN_DDL = "array<struct<path: string, place: string, value: variant>>"
KERNEL_RULE = Rule("", f"{DOCUMENT}.reason IS NOT NULL", reason_sql=f"{DOCUMENT}.reason", field_sql=f"{DOCUMENT}.field")
"""The reason that the kernel (``kdi_assets/jvm``) gives in ``_kdi_document``."""


def with_kernel_record(
    messages: DataFrame, document: Column, *, unless: str = "false", beside: Mapping[str, str] = MappingProxyType({})
) -> DataFrame:
    """The messages with what the kernel made of them, and their records.

    Args:
        document: The kernel's ``struct<record, reason: string, …>``; null without a payload.
        unless: Spark SQL over it; where it is true, there is no record either.
        beside: Further columns, Spark SQL over it.
    """
    from pyspark.sql import functions as F

    is_record = f"{DOCUMENT} IS NOT NULL AND {DOCUMENT}.reason IS NULL AND NOT ({unless})"
    # The condition twice, and not another column that reads the first one: Spark analyses each frame as a whole.
    columns = {DECODED: is_record, RECORD: f"CASE WHEN {is_record} THEN {DOCUMENT}.record END", **beside}
    return messages.withColumn(DOCUMENT, document).withColumns({name: F.expr(sql) for name, sql in columns.items()})


class Decoder(ABC):
    """Payloads to records, with a reason for every payload that becomes none."""

    finds_unknown_fields: bool = False
    """Whether ``with_unknown`` can find fields that the record lacks."""
    bounds_times: bool = False
    """Whether no date and timestamp of a record is outside of the years 1 to 9999."""
    reads_by_name: bool = False
    """Whether ``decode`` takes a record without some fields of ``record_type``, and passes over those in messages."""
    decodes_bytes: bool = True
    """Whether payloads are bytes; otherwise they are rows of files, as Spark has read them."""
    left_out: Mapping[str, str] = MappingProxyType({})
    """Path of a field that the schema has and no column can hold, to the reason; ``record_type`` is without it."""
    unknown_schema: str = "false"
    """Spark SQL over the result of ``decode``: whether the message itself brings a schema that is not known yet."""

    @abstractmethod
    def record_type(self, ddl: str) -> StructType:
        """The type of a record.

        Args:
            ddl: The stream document's schema; may be empty.

        Raises:
            FormatMistake: The format has no such records.
            PySparkException: The DDL does not parse.
        """

    def uses_after(self, uses: FieldUses) -> FieldUses:
        """What is left of a document's uses of fields for the record of ``record_type``: here all of it."""
        return uses

    @abstractmethod
    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        """Decode each payload once. Lazy.

        Args:
            messages: ``_kdi_payload: binary``, ``_kdi_value: binary``, the source's struct, and any other columns.
            record: The result of ``record_type``.

        Returns:
            ``messages`` with ``_kdi_document``, ``_kdi_decoded: boolean`` (never null) and ``_kdi_record: record``
            (null where not decoded, except for a tombstone), and columns of the decoder; ``_kdi_violation: string`` and
            ``_kdi_misfits``, null before, may be set.
        """

    @abstractmethod
    def rules(self, record: StructType) -> list[Rule]:
        """Why a message was not decoded, the most precise reason first; the last rule always holds.

        The predicates see ``_kdi_payload``, ``_kdi_document``, ``_kdi_misfit_number`` and ``_kdi_violation``. They run
        only on messages that were not decoded, so they may be expensive.
        """

    def with_unknown(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        """Add ``_kdi_unknown`` if the decoder finds unknown fields.

        Args:
            messages: The result of ``decode``.
            where: Spark SQL: which of the decoded messages to look at.
        """
        return messages

    def with_unknown_paths(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        """Add ``_kdi_unknown_paths``; the arguments are those of ``with_unknown``."""
        from pyspark.sql import functions as F

        found = self.with_unknown(messages, record, where=where)
        return found.withColumn(PATHS, F.expr(paths_of(UNKNOWN))).drop(UNKNOWN)


def paths_of(column: str) -> str:
    """Spark SQL: the paths in a column of ``UNKNOWN_DDL``, as ``_kdi_unknown_paths`` has them."""
    return f"CASE WHEN size({column}) > 0 THEN sort_array(array_distinct({column}.path)) END"


def with_unknown_of_schemas(messages: DataFrame, paths: Mapping[str, Sequence[str]], *, where: str) -> DataFrame:
    """Add ``_kdi_unknown``: the fields of the writer's schema that the reader's schema lacks, without their values.

    Args:
        paths: Unknown fields by schema; a schema is given as the condition (Spark SQL) that its messages meet.
        where: As in ``Decoder.with_unknown``.
    """
    from pyspark.sql import functions as F

    cases = [
        f"WHEN {where} AND {schema} THEN array({', '.join(map(entry_without_value, map(literal, some)))})"
        for schema, some in paths.items()
        if some
    ]
    none = f"CAST(NULL AS {UNKNOWN_DDL})"
    return messages.withColumn(UNKNOWN, F.expr(f"CASE {' '.join(cases)} ELSE {none} END" if cases else none))


def entry_without_value(path: str) -> str:
    """Spark SQL: an element of ``_kdi_unknown``, of the path (Spark SQL)."""
    return f"named_struct('path', {path}, 'place', {path}, 'value', CAST(NULL AS variant))"
