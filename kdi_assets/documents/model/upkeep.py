"""Upkeep of a table as documents declare it: compaction, clustering, whether the schedule includes it. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, Field

from kdi_assets.documents.model.field_types import ColumnPath, Declared, Seconds, wrong

USUAL_FILE_BYTES = 128 * 2**20
"""Bytes of a compacted file, if the document has no ``target_file_size``."""
HOURS = 3600.0


def _each_once(columns: tuple[str, ...]) -> tuple[str, ...]:
    if len({c.lower() for c in columns}) < len(columns):
        raise wrong("a column is named twice", "each column once")
    if "date" in (c.lower() for c in columns):
        raise wrong("date cannot order rows: all rows of a file have the same date", "other columns")
    return columns


@dataclass(frozen=True, slots=True)
class Upkeep(Declared):
    """How a table is kept in shape."""

    scheduled: Annotated[bool, Field(strict=True, examples=[True])] = True
    """Whether the scheduled runs include the table; `kdi upkeep` works without it."""
    closed_after_seconds: Annotated[
        Seconds,
        Field(validation_alias="closed_after", json_schema_extra={"default": "6 hours"}, examples=["6 hours"]),
    ] = 6 * HOURS
    """A date is closed when nothing was written to it for this time. Closed dates are compacted as soon as two of their
    files are small."""
    small_files: Annotated[int, Field(strict=True, ge=2, examples=[50])] = 50
    """A date that is still written to is compacted when it has more small files than this. A file is small below half
    of the target size."""
    cluster_by: Annotated[tuple[ColumnPath, ...], AfterValidator(_each_once), Field(examples=[["session_id"]])] = ()
    """Columns by whose values the rows of a closed date are ordered (Z-order), once. The table must keep statistics of
    these columns."""


def first_kept_date(keep_days: int | None, now: datetime) -> date | None:
    """The oldest date (UTC) of which rows are kept at ``now``; ``None``: of all."""
    return None if keep_days is None else now.astimezone(UTC).date() - timedelta(days=keep_days)
