"""Values that Spark writes, and at which most other readers of a table fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kdi_assets.messages.formats.rules import name

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_BOUNDS = {
    "date": "DATE'0001-01-01' AND DATE'9999-12-31'",
    "timestamp": "TIMESTAMP'0001-01-01 00:00:00Z' AND TIMESTAMP'9999-12-31 23:59:59.999999Z'",
    "timestamp_ntz": "TIMESTAMP_NTZ'0001-01-01 00:00:00' AND TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'",
}


def is_out_of_years(value: str, type_: DataType) -> str:
    """Spark SQL: whether a time in a value is outside of the years 1 to 9999; empty if the type has none.

    Args:
        value: Spark SQL of a value of the type.
    """
    return _any_part(value, type_, _out_of_years)


def is_not_utf8(value: str, type_: DataType) -> str:
    """Spark SQL: whether a text in a value is not UTF-8; arguments and empty text as in ``is_out_of_years``."""
    return _any_part(value, type_, _not_utf8)


def _out_of_years(value: str, type_: DataType) -> str:
    bounds = _BOUNDS.get(type_.typeName())
    return f"{value} NOT BETWEEN {bounds}" if bounds else ""


def _not_utf8(value: str, type_: DataType) -> str:
    from pyspark.sql.types import StringType

    return f"NOT is_valid_utf8({value})" if isinstance(type_, StringType) else ""


def _any_part(value: str, type_: DataType, test: Callable[[str, DataType], str], depth: int = 0) -> str:
    """Spark SQL: whether the test holds for a part of a value; empty if none of its types has one.

    Args:
        test: Spark SQL of a value and its type; empty if no value of the type is meant.
        depth: Of arrays and maps around it.
    """
    return " OR ".join(_parts(value, type_, test, depth))


def _parts(value: str, type_: DataType, test: Callable[[str, DataType], str], depth: int) -> Iterator[str]:
    from pyspark.sql import types as t

    item = f"_kdi_t{depth}"
    match type_:
        case t.StructType():
            for field in type_.fields:
                yield from _parts(f"{value}.{name(field.name)}", field.dataType, test, depth)
        case t.ArrayType():
            if inner := _any_part(item, type_.elementType, test, depth + 1):
                yield f"exists({value}, {item} -> {inner})"
        case t.MapType():
            for part, of in (("map_keys", type_.keyType), ("map_values", type_.valueType)):
                if inner := _any_part(item, of, test, depth + 1):
                    yield f"exists({part}({value}), {item} -> {inner})"
        case _ if found := test(value, type_):
            yield found
