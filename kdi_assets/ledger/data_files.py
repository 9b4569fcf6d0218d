"""How many data files a table has, how large, and how many of them are small; from its log, no JVM, no data file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kdi_assets.ledger.log import TableLog

SMALL_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The data files of a table at one version.

    Attributes:
        small: Files below ``SMALL_BYTES`` that another such file shares the date with: those that could be one. A date
            with a single small file has what it needs.
    """

    count: int = 0
    bytes: int = 0
    small: int = 0


def data_files(log: TableLog) -> DataFiles:
    """Count the files at the log's version."""
    import pyarrow.compute as pc

    files = log.data_files
    if not files.num_rows:
        return DataFiles()
    small = files.filter(pc.less(files["size_bytes"], SMALL_BYTES))
    places = [name for name in small.column_names if name.startswith("partition.")]
    together = small.group_by(places).aggregate([("size_bytes", "count")])["size_bytes_count"]
    shared = pc.sum(together.filter(pc.greater(together, 1))).as_py()
    return DataFiles(files.num_rows, pc.sum(files["size_bytes"]).as_py(), shared or 0)
