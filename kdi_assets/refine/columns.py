"""Columns: which ones the rows of a refined table may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdi_assets.refine.errors import ColumnsFrozen
from kdi_assets.stream.refined_table import RefinedTableSpec

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def refuse_frozen_columns(table: RefinedTableSpec, rows: StructType, kept: StructType) -> None:
    """Refuse rows whose columns the contract does not allow.

    Args:
        rows: The columns of the rows.
        kept: The columns of the table.

    Raises:
        ColumnsFrozen: A column is new, gone, or of another type.
    """
    for rule, policy, found in (
        ("types", table.contract.types, _changed(rows, kept)),
        ("new_columns", table.contract.new_columns, _added(rows, kept)),
    ):
        if policy == "freeze" and found:
            raise ColumnsFrozen(table=table.name, rule=rule, found=", ".join(found))


def other_columns(rows: StructType, kept: StructType) -> list[str]:
    """In words, which columns of some rows are not those of a table; their order makes no difference."""
    return _changed(rows, kept) + _added(rows, kept)


def _added(rows: StructType, kept: StructType) -> list[str]:
    return [f"{f.name} {f.dataType.simpleString()} is new" for f in rows.fields if f.name not in kept.names]


def _changed(rows: StructType, kept: StructType) -> list[str]:
    new, old = ({f.name: f.dataType.simpleString() for f in schema.fields} for schema in (rows, kept))
    return [
        f"{name} {kind} would be {new[name]}" if name in new else f"{name} {kind} would be gone"
        for name, kind in old.items()
        if new.get(name) != kind
    ]
