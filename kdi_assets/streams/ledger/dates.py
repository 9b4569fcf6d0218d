"""The date of a table's rows: DATE in tables that we create, text (``yyyy-MM-dd``) in those of kafka-delta-ingest."""

from __future__ import annotations

from contextlib import suppress
from datetime import date
from typing import TYPE_CHECKING

from kdi_assets.delta.storage import names_in

if TYPE_CHECKING:
    import pyarrow as pa


def day_of(column: str = "date") -> str:
    """Spark SQL: a date as DATE; null where text is not a date. Delta skips files by it."""
    return f"TRY_CAST({column} AS DATE)"


def oldest_date(uri: str) -> date | None:
    """The oldest date for which the table's folder has a folder, without reading the log; ``None`` without any.

    Raises:
        OSError: The storage does not answer.
    """
    return min((day for name in names_in(uri) if (day := _date_of(name))), default=None)


def _date_of(folder: str) -> date | None:
    column, _, value = folder.partition("=")
    with suppress(ValueError):  # rows without a date, of another writer
        return date.fromisoformat(value) if column == "date" else None
    return None


def as_dates(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dates as delta-rs reads them from a log, as ``date32``; null where text is not a date."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_date(column.type):
        return column
    parsed = pc.strptime(column.cast(pa.string()), format="%Y-%m-%d", unit="s", error_is_null=True)
    return parsed.cast(pa.date32())
