"""The data files of a table by partition, from its log: what is small, what is closed. No JVM.

Works for every Delta table. Ours are partitioned by ``date``, or not at all (dead letters, archives).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from kdi_assets.delta.log import TableLog
from kdi_assets.messages.formats.rules import literal
from kdi_assets.messages.formats.rules import name as quoted_name

if TYPE_CHECKING:
    import pyarrow as pa

WHOLE_TABLE = "whole table"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Data files at one version.

    Attributes:
        small: Files below half of the target size.
        well_sized_bytes: Bytes in files between half and twice the target size.
    """

    files: int = 0
    bytes: int = 0
    small: int = 0
    well_sized_bytes: int = 0

    def __add__(self, other: FileFacts) -> FileFacts:
        return FileFacts(
            self.files + other.files,
            self.bytes + other.bytes,
            self.small + other.small,
            self.well_sized_bytes + other.well_sized_bytes,
        )


@dataclass(frozen=True, slots=True)
class PartFiles:
    """The files of one partition of a table; of the whole table if it is not partitioned.

    Attributes:
        label: The partition for people: ``2026-01-31``.
        where: Spark SQL that selects it; empty for a table without partitions.
        newest: When the youngest of its files was written.
    """

    label: str
    where: str
    facts: FileFacts
    newest: datetime

    def is_closed(self, now: datetime, after_seconds: float) -> bool:
        """Whether nothing was written to it for so long."""
        return self.newest <= now - timedelta(seconds=after_seconds)


def parts_of(log: TableLog, *, target_bytes: int) -> tuple[PartFiles, ...]:
    """The partitions of the table at the log's version, in the order of their labels.

    Args:
        target_bytes: The size that files should have.
    """
    files = log.data_files
    if not files.num_rows:
        return ()
    columns = [f"partition.{name}" for name in log.partition_columns]
    sums = (
        _marked(files, target_bytes)
        .group_by(columns)
        .aggregate(
            [
                ("size_bytes", "count"),
                ("size_bytes", "sum"),
                ("small", "sum"),
                ("well_sized", "sum"),
                ("modification_time", "max"),
            ]
        )
    )
    found = (_part(row, columns) for row in sums.to_pylist())
    return tuple(sorted(found, key=lambda part: part.label))


def facts_of(parts: tuple[PartFiles, ...]) -> FileFacts:
    """The facts of all partitions together."""
    return sum((part.facts for part in parts), FileFacts())


def _marked(files: pa.Table, target: int) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    size = files["size_bytes"]
    fits = pc.and_(pc.greater_equal(size, target / 2), pc.less_equal(size, target * 2))
    small = pc.less(size, target / 2).cast(pa.int64())
    return files.append_column("small", small).append_column("well_sized", pc.if_else(fits, size, 0))


def _part(row: Mapping[str, Any], columns: list[str]) -> PartFiles:
    values = {column.removeprefix("partition."): row[column] for column in columns}
    written = row["modification_time_max"]
    newest = written if isinstance(written, datetime) else _EPOCH + timedelta(milliseconds=written)
    return PartFiles(
        label=", ".join(str(value) for value in values.values()) or WHOLE_TABLE,
        where=" AND ".join(_equals(name, value) for name, value in values.items()),
        facts=FileFacts(row["size_bytes_count"], row["size_bytes_sum"], row["small_sum"], row["well_sized_sum"]),
        newest=newest if newest.tzinfo else newest.replace(tzinfo=UTC),
    )


def _equals(column: str, value: object) -> str:
    quoted = quoted_name(column)
    match value:
        case None:
            return f"{quoted} IS NULL"
        case date():
            return f"{quoted} = DATE'{value.isoformat()}'"
        case bool() | int():
            return f"{quoted} = {value}"
    return f"{quoted} = {literal(str(value))}"
