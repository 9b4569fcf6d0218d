"""What one refinement changes in its table: new rows, and which old ones they replace."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Everything:
    """All rows are replaced."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """Rows are only added."""


@dataclass(frozen=True, slots=True)
class OfDates:
    """The rows of some dates are replaced."""

    dates: frozenset[date]


@dataclass(frozen=True, slots=True)
class OfKeys:
    """The rows with some keys are replaced.

    Attributes:
        keys: The key columns, each combination once, null included.
        dates: The rows with these keys are on these dates only; ``None``: on any.
    """

    keys: DataFrame
    dates: frozenset[date] | None = None


@dataclass(frozen=True, slots=True)
class TableChange:
    """New rows, in the columns of the table, and what they replace."""

    rows: DataFrame
    replaces: Everything | Nothing | OfDates | OfKeys
