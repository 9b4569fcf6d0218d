"""What listeners hear of: runs of streams and refined tables, and their commits."""

from __future__ import annotations

from dataclasses import dataclass

from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.stream.refined_table import RefinedTableSpec
from kdi_assets.stream.stream import Stream

HeardTable = Stream | RefinedTableSpec


@dataclass(frozen=True, slots=True)
class RefinedWrite:
    """A commit of a refinement: the table's version, and how many rows it added."""

    version: int
    rows: int


HeardCommit = LedgerEntry | RefinedWrite
