"""What listeners hear of: runs of streams, refined and served tables, and their commits."""

from __future__ import annotations

from dataclasses import dataclass

from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.stream.refined_table import RefinedTableSpec
from kdi_assets.stream.served_table import ServedTableSpec
from kdi_assets.stream.stream import Stream

HeardTable = Stream | RefinedTableSpec | ServedTableSpec


@dataclass(frozen=True, slots=True)
class FollowerWrite:
    """A commit of a refined or served table.

    Attributes:
        version: Of the refined table; or of the Delta table whose rows the database has now.
        rows: How many rows it added, or upserted.
    """

    version: int
    rows: int


HeardCommit = LedgerEntry | FollowerWrite
