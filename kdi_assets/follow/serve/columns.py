"""The columns that are served, and their names in Spark SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kdi_assets.documents.model.served_table import MAX_NAME_BYTES, ServedTableSpec
from kdi_assets.follow.serve.errors import ColumnNotServed
from kdi_assets.messages.formats.rules import name as quoted_name

ServedType = str | Mapping[str, Any]
"""A type as Delta's schema JSON has it: ``"long"``, or an object with ``type`` struct, array or map."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the Delta table."""

    name: str
    type: ServedType

    @property
    def sql(self) -> str:
        """Its name in Spark SQL."""
        return quoted_name(self.name)


def served_columns(served: ServedTableSpec, schema: Mapping[str, Any]) -> list[Column]:
    """The columns to serve, in the Delta table's order.

    Args:
        schema: Delta's schema JSON.

    Raises:
        ColumnNotServed: The Delta table lacks a column that the document names, or a name is too long.
    """
    there = {field["name"]: Column(field["name"], field["type"]) for field in schema["fields"]}
    for name in (*served.keys, *served.columns):
        if name not in there:
            raise ColumnNotServed(target=served.name, column=name, reason="the Delta table does not have it")
    found = [column for name, column in there.items() if not served.columns or name in served.columns]
    for column in found:
        if len(column.name.encode()) > MAX_NAME_BYTES or column.name.startswith("_kdi_"):
            reason = f"names in the database have at most {MAX_NAME_BYTES} bytes and do not begin with _kdi_"
            raise ColumnNotServed(target=served.name, column=column.name, reason=reason)
    return found


def key_columns(served: ServedTableSpec, columns: Sequence[Column]) -> list[Column]:
    """The key columns, in the document's order."""
    by_name = {column.name: column for column in columns}
    return [by_name[name] for name in served.keys]
