"""The contract of a refined table: which columns its rows may have."""

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
    new, old = ({f.name: f.dataType.simpleString() for f in schema.fields} for schema in (rows, kept))
    added = [f"{name} {new[name]} is new" for name in new if name not in old]
    other = [
        f"{name} {kind} would be {new[name]}" if name in new else f"{name} {kind} would be gone"
        for name, kind in old.items()
        if new.get(name) != kind
    ]
    for rule, policy, found in (
        ("types", table.contract.types, other),
        ("new_columns", table.contract.new_columns, added),
    ):
        if policy == "freeze" and found:
            raise ColumnsFrozen(table=table.name, rule=rule, found=", ".join(found))
