"""The date of a table's rows: DATE in tables that we create, text (``yyyy-MM-dd``) in those of kafka-delta-ingest."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def day_of(column: str = "date") -> str:
    """Spark SQL: a date as DATE; null where text is not a date. Delta skips files by it."""
    return f"TRY_CAST({column} AS DATE)"


def as_dates(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dates as delta-rs reads them from a log, as ``date32``; null where text is not a date."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_date(column.type):
        return column
    parsed = pc.strptime(column.cast(pa.string()), format="%Y-%m-%d", unit="s", error_is_null=True)
    return parsed.cast(pa.date32())
