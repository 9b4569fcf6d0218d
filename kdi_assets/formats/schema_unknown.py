"""Unknown fields where schemas tell of them: those that the writer's schema has and the reader's has not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kdi_assets.formats.decoder import UNKNOWN, UNKNOWN_DDL
from kdi_assets.formats.rules import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_unknown(messages: DataFrame, paths: Mapping[str, Sequence[str]], *, where: str) -> DataFrame:
    """Add ``_kdi_unknown``; the values are not read, so they are null.

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
