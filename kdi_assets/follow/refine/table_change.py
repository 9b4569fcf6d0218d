"""What one refinement changes in its table: new rows, and which old ones they replace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from kdi_assets.follow.refine.columns import comparable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kdi_assets.follow.refine.row_counts import RowCounts

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
        why: Why more is replaced than the plan says; empty if it is not.
        counted, unknown: What is counted while the rows are computed; known once they were. Of ``upsert_change``.
    """

    rows: DataFrame
    replaces: WholeTable | NoRows | RowsOfDates | RowsOfKeys | RowsOfFiles
    small_enough: bool = False
    why: str = ""
    counted: RowCounts | None = None
    unknown: RowCounts | None = None


def paired(old: DataFrame, new: DataFrame, unique: Sequence[str]) -> DataFrame:
    """The old and the new form of each row as ``_kdi_old`` and ``_kdi_new``, structs of the columns of ``new``.

    Args:
        old: Its further columns stay beside the forms.
        unique: Columns of which no two rows of one side have the same values; null equals null.
    """
    from pyspark.sql import functions as F

    row, further = ", ".join(f"`{c}`" for c in new.columns), [f"`{c}`" for c in old.columns if c not in new.columns]
    left, right = (
        form.selectExpr(*(f"`{c}` AS {side}_{i}" for i, c in enumerate(unique)), f"struct({row}) AS {side}", *also)
        for side, form, also in ((OLD, old, further), (NEW, new, []))
    )
    same = " AND ".join(f"{OLD}_{i} <=> {NEW}_{i}" for i in range(len(unique)))
    return left.join(right, F.expr(same), "full_outer").selectExpr(OLD, NEW, *further)


def differs(forms: DataFrame) -> str:
    """Of pairs, in SQL: whether the forms are not the same."""
    old, new = (comparable(form, forms.schema[form].dataType) for form in (OLD, NEW))
    return f"NOT ({old} <=> {new})"
