"""Dates and timestamps outside of the years 1 to 9999: Spark writes them, and most other readers of a table fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kdi_assets.messages.formats.rules import name

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_BOUNDS = {
    "date": "DATE'0001-01-01' AND DATE'9999-12-31'",
    "timestamp": "TIMESTAMP'0001-01-01 00:00:00Z' AND TIMESTAMP'9999-12-31 23:59:59.999999Z'",
    "timestamp_ntz": "TIMESTAMP_NTZ'0001-01-01 00:00:00' AND TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'",
}


def is_out_of_years(value: str, type_: DataType, depth: int = 0) -> str:
    """Spark SQL: whether a time in a value is outside; empty if the type has none.

    Args:
        value: Spark SQL of a value of the type.
        depth: Of arrays and maps around it.
    """
    return " OR ".join(_parts(value, type_, depth))


def _parts(value: str, type_: DataType, depth: int) -> Iterator[str]:
    from pyspark.sql import types as t

    item = f"_kdi_t{depth}"
    match type_:
        case t.StructType():
            for field in type_.fields:
                yield from _parts(f"{value}.{name(field.name)}", field.dataType, depth)
        case t.ArrayType():
            if inner := is_out_of_years(item, type_.elementType, depth + 1):
                yield f"exists({value}, {item} -> {inner})"
        case t.MapType():
            for part, of in (("map_keys", type_.keyType), ("map_values", type_.valueType)):
                if inner := is_out_of_years(item, of, depth + 1):
                    yield f"exists({part}({value}), {item} -> {inner})"
        case _ if bounds := _BOUNDS.get(type_.typeName()):
            yield f"{value} NOT BETWEEN {bounds}"
