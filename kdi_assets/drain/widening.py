"""Widening: the types that a column may become in the commit of the rows, and which one takes what messages hold.

Source: Delta protocol, "Type Widening"; of the changes that it allows, those that a write makes by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, DecimalType

PROPERTY = "delta.enableTypeWidening"
"""Of tables whose columns may be widened."""
_INTEGERS = ("byte", "short", "integer", "long")
_DIGITS, _DIGITS_OF_A_LONG = 38, 19


def widens(narrow: DataType, wide: DataType) -> bool:
    """Whether a column of the one type may become the other."""
    from pyspark.sql import types as t

    match narrow, wide:
        case (t.FloatType(), t.DoubleType()) | (t.DateType(), t.TimestampNTZType()):
            return True
        case t.DecimalType(), t.DecimalType():
            more = wide.scale - narrow.scale
            return narrow != wide and more >= 0 and wide.precision - narrow.precision >= more
    both = narrow.typeName(), wide.typeName()
    return all(name in _INTEGERS for name in both) and _INTEGERS.index(both[0]) < _INTEGERS.index(both[1])


def widened(declared: DataType, told: DataType) -> DataType:
    """The type that takes what is declared and what was told of values; the declared one where no wider type does.

    Args:
        told: What ``schema_of_variant_agg`` says of values that do not suit the declared type.
    """
    from pyspark.sql import types as t

    match declared, told:
        case t.StructType(), t.StructType():
            values = {f.name: f.dataType for f in told.fields}
            return t.StructType(
                [
                    t.StructField(f.name, widened(f.dataType, values[f.name]), f.nullable, f.metadata)
                    if f.name in values
                    else f
                    for f in declared.fields
                ]
            )
        case t.ArrayType(), t.ArrayType():
            return t.ArrayType(widened(declared.elementType, told.elementType), declared.containsNull)
        case t.FloatType(), t.DoubleType() | t.DecimalType() | t.LongType():
            return t.DoubleType()
        case t.DecimalType(), t.DecimalType():
            return _decimal(declared, told.precision - told.scale, told.scale)
        case t.DecimalType(), t.LongType():
            return _decimal(declared, _DIGITS_OF_A_LONG, 0)
        case ((t.ByteType() | t.ShortType() | t.IntegerType()), t.LongType()):
            return t.LongType()
    return declared


def _decimal(declared: DecimalType, whole: int, scale: int) -> DecimalType:
    from pyspark.sql.types import DecimalType

    digits, fraction = max(declared.precision - declared.scale, whole), max(declared.scale, scale)
    return DecimalType(digits + fraction, fraction) if digits + fraction <= _DIGITS else declared
