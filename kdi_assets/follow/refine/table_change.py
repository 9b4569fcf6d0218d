"""What one refinement changes in its table: new rows, and which old ones they replace."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

OLD, NEW = "_kdi_old", "_kdi_new"


@dataclass(frozen=True, slots=True)
class WholeTable:
    """All rows are replaced."""


@dataclass(frozen=True, slots=True)
class NoRows:
    """Rows are only added."""


@dataclass(frozen=True, slots=True)
class RowsOfDates:
    """The rows of some dates are replaced."""

    dates: frozenset[date]


@dataclass(frozen=True, slots=True)
class RowsOfKeys:
    """The rows with some keys are replaced.

    Attributes:
        keys: The key columns, each combination once, null included.
        unique: Columns of which no two rows of the table have the same values.
        files: Delta's actions of the files that are written again: all that hold these rows, and perhaps others.
    """

    keys: DataFrame
    unique: tuple[str, ...]
    files: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class RowsOfFiles:
    """The rows of some files get new forms.

    Attributes:
        forms: All rows of the files and all new ones: ``_kdi_old`` and ``_kdi_new``, structs of the table's columns;
            null for a row that was not, or will not be in the table.
        files: Delta's actions of the files that are written again.
    """

    forms: DataFrame
    files: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """Of an upsert, if upstream rows were only added.

    Attributes:
        changes: How many changes were read.
        late_changes: How many of them were older than what the table had of their keys.
        unknown_values: How many rows of their keys now have a null for a value that no message had.
    """

    changes: int = 0
    late_changes: int = 0
    unknown_values: int = 0


@dataclass(frozen=True, slots=True)
class TableChange:
    """New rows, in the columns of the table, and what they replace.

    Attributes:
        small_enough: One task can write all files.
        counted, unknown: What is counted while the rows are computed; known once they were.
    """

    rows: DataFrame
    replaces: WholeTable | NoRows | RowsOfDates | RowsOfKeys | RowsOfFiles
    small_enough: bool = False
    counted: Observation | None = None
    unknown: Observation | None = None
