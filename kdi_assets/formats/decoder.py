"""The seam between formats and drains: what a decoder does, and which one a stream has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from kdi_assets.formats.rules import Rule, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

VALUE = "_kdi_value"
"""The message's value, as Kafka keeps it."""
PAYLOAD = "_kdi_payload"
"""What of the value is decoded: the same, or what it holds compressed; null where it holds nothing that can be."""
FRAME = "_kdi_frame"
"""What stood before the payload, ``struct<reason: string, schema_id: bigint>``: why there is no frame, or the id of the
schema; null where the stream's messages have none."""
DOCUMENT = "_kdi_document"
"""What the decoder saw in the payload, for its own rules alone; of a type of its own."""
VIOLATION = "_kdi_violation"
"""Where the payload is not as its schema says, a path, empty for all of it; null where it is, or is not asked."""
DECODED = "_kdi_decoded"
RECORD = "_kdi_record"
UNKNOWN = "_kdi_unknown"
"""What a decoded message has and the record has not, of the type ``UNKNOWN_DDL``: the field's path, the one place in
this message where it stands, with indexes and keys, and what it holds, if that is known; null if there is nothing."""
PATHS = "_kdi_unknown_paths"
"""The paths alone, ``array<string>``: sorted, each once; null if there is nothing."""
MISFITS = "_kdi_misfits"
"""What a decoded message has and its record has not, because it does not suit the type; like ``_kdi_unknown``."""
RESCUED = "_kdi_rescued"
"""What a row keeps of that, as JSON; null if there is nothing."""
UNKNOWN_DDL = "array<struct<path: string, place: string, value: variant>>"


def paths_of(column: str) -> str:
    """Spark SQL: the paths in a column of ``UNKNOWN_DDL``, as ``_kdi_unknown_paths`` has them."""
    return f"CASE WHEN size({column}) > 0 THEN sort_array(array_distinct({column}.path)) END"


def with_unknown_of_schemas(messages: DataFrame, paths: Mapping[str, Sequence[str]], *, where: str) -> DataFrame:
    """Add ``_kdi_unknown``: the fields that the writer's schema has and the reader's has not, without their values.

    Args:
        paths: Of the unknown fields, by the condition (Spark SQL) that tells messages of a schema.
        where: As ``TellsUnknown.with_unknown`` takes it.
    """
    from pyspark.sql import functions as F

    cases = [f"WHEN {where} AND {schema} THEN {_entries(some)}" for schema, some in paths.items() if some]
    none = f"CAST(NULL AS {UNKNOWN_DDL})"
    return messages.withColumn(UNKNOWN, F.expr(f"CASE {' '.join(cases)} ELSE {none} END" if cases else none))


def _entries(paths: Sequence[str]) -> str:
    each = (f"named_struct('path', {p}, 'place', {p}, 'value', CAST(NULL AS variant))" for p in map(literal, paths))
    return f"array({', '.join(each)})"


@runtime_checkable
class TellsUnknown(Protocol):
    """A decoder that knows which fields messages have beside those of the record."""

    def with_unknown(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        """Add ``_kdi_unknown``.

        Args:
            messages: As ``Decoder.decode`` gives them.
            where: Spark SQL; no other message is asked, and these were decoded.
        """
        ...


@runtime_checkable
class TellsPaths(TellsUnknown, Protocol):
    """One that has the paths of such fields cheaper than what they hold."""

    def with_paths(self, messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
        """Add ``_kdi_unknown_paths``; the arguments are those of ``with_unknown``."""
        ...


class Decoder(Protocol):
    """Payloads to records, with a reason for every payload that gives none."""

    def record_type(self, ddl: str) -> StructType:
        """The type of a record.

        Args:
            ddl: What the stream's document declares; empty if nothing.

        Raises:
            FormatMistake: The format has no such records.
            PySparkException: The DDL does not parse.
        """
        ...

    def decode(self, messages: DataFrame, record: StructType) -> DataFrame:
        """Add the record of every message, or the fact that it has none.

        Args:
            messages: ``_kdi_payload: binary``, ``_kdi_value: binary``, ``kafka`` as expressions know it, and anything
                else.
            record: What ``record_type`` answered.

        Returns:
            ``messages`` with ``_kdi_document``, ``_kdi_decoded: boolean`` (never null) and ``_kdi_record: record``
            (null where not decoded, unless it is a tombstone's), beside columns of its own; ``_kdi_violation: string``,
            null as it comes, may be another. Nothing runs here, and no payload is parsed twice.
        """
        ...

    def rules(self, record: StructType) -> list[Rule]:
        """Why a message that ``decode`` did not decode is none, most telling first; the last one always holds.

        Their predicates see ``_kdi_payload``, ``_kdi_document`` and ``_kdi_violation``. They may cost much: they are
        for messages that are condemned already.
        """
        ...
