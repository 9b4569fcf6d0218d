"""What listeners hear of: runs of streams, refined and served tables, and their commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol

from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.served_table import ServedTableSpec
from kdi_assets.documents.model.stream import Stream

HeardTable = Stream | RefinedTableSpec | ServedTableSpec


class HeardCommit(Protocol):
    """A commit of any table."""

    @property
    def version(self) -> int:
        """Of the table; of a served table, of the Delta table whose rows the database has now."""
        ...

    @property
    def rows(self) -> int:
        """How many rows it added, or upserted."""
        ...


class HeardLetters(Protocol):
    """The dead-letter table that a commit counts on."""

    @property
    def version(self) -> int: ...


class HeardLedgerCommit(HeardCommit, Protocol):
    """A ledger commit of a stream's table; see ``LedgerEntry``."""

    @property
    def messages(self) -> int: ...
    @property
    def message_bytes(self) -> int: ...
    @property
    def ranges(self) -> Sequence[object]: ...
    @property
    def bytes(self) -> int: ...
    @property
    def dead_letters(self) -> int: ...
    @property
    def letters_by_date(self) -> Mapping[date, int]: ...
    @property
    def dead_letters_at(self) -> HeardLetters | None: ...


@dataclass(frozen=True, slots=True)
class FollowerWrite:
    """A commit of a refined or served table.

    Attributes:
        version, rows: As of ``HeardCommit``.
    """

    version: int
    rows: int
