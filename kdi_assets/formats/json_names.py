"""Names in the text of a JSON message beside the values that its record found: what the text names more is unknown.

Whatever has a name in the text is followed by ``":``; as many of these as the record found values leave no name over.
It errs to one side alone: a text that counts more (a quotation mark before a colon inside a string, a name that stands
twice) is looked at for nothing, and one with an unknown field always counts more.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from kdi_assets.formats.catalyst import occurrences
from kdi_assets.formats.decoder import DOCUMENT, PAYLOAD
from kdi_assets.formats.rules import name

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

TEXT = f"CAST({PAYLOAD} AS STRING)"
WITHOUT_DOCUMENT, UNCOUNTED = -2, -1
"""Decoded by leaving values out, so that there are none to count; or with blanks before what may be a name's colon."""
_BLANKS = (" ", "\t", "\n", "\r")


def names_left(spark: SparkSession, record: StructType) -> Column:
    """How many names are left over: 0 if no field is unknown; ``UNCOUNTED`` or ``WITHOUT_DOCUMENT`` if not known."""
    from pyspark.sql import functions as F

    apart = reduce(or_, (occurrences(spark, TEXT, f"{blank}:") > 0 for blank in _BLANKS))
    left = occurrences(spark, TEXT, '":') - F.expr(f"{values_of(record)} + {values_within(record)}")
    nulls = occurrences(spark, TEXT, '":null') + occurrences(spark, TEXT, '": null')
    told = F.when(F.expr(f"{DOCUMENT} IS NULL"), WITHOUT_DOCUMENT).when(apart, UNCOUNTED)
    # First what most messages are: nulls are not counted in them.
    return told.when(left == 0, 0).when(left == nulls, 0).otherwise(left)


def values_of(record: StructType) -> str:
    """Spark SQL of how many of a record's fields have a value."""
    return _sum(f"CASE WHEN {_field(f)} IS NOT NULL THEN 1 ELSE 0 END" for f in record.fields)


def values_within(record: StructType) -> str:
    """Spark SQL of how many named values lie in these, at any depth."""
    return _sum(f"coalesce({_named(_field(f), f.dataType)}, 0)" for f in fields_with_names(record))


def fields_with_names(record: StructType) -> list[StructField]:
    """The fields in whose values something may have a name."""
    return [f for f in record.fields if _named(_field(f), f.dataType) != "0"]


def _field(field: StructField) -> str:
    return f"{DOCUMENT}.{name(field.name)}"


def _sum(terms: Iterable[str]) -> str:
    return f"({' + '.join(terms) or '0'})"


def _named(value: str, declared: DataType, depth: int = 0) -> str:
    """Spark SQL of how many named values a value holds, at any depth; 0 where it can hold none."""
    from pyspark.sql import types as t

    item, sum_ = f"_kdi_i{depth}", f"_kdi_s{depth}"
    match declared:
        case t.StructType():
            fields = ((f"{value}.{name(f.name)}", f.dataType) for f in declared.fields)
            each = (
                f"CASE WHEN {inner} IS NOT NULL THEN 1 + {_named(inner, type_, depth)} ELSE 0 END"
                for inner, type_ in fields
            )
            # A record without fields can hold names, and none that it has.
            return f"({' + '.join(each) or '0'})"
        case t.ArrayType():
            inner = _named(item, declared.elementType, depth + 1)
            added = f"{sum_} + CASE WHEN {item} IS NOT NULL THEN {inner} ELSE 0 END"
            return "0" if inner == "0" else f"aggregate({value}, 0, ({sum_}, {item}) -> {added})"
        case t.MapType():
            inner = _named(item, declared.valueType, depth + 1)
            added = f"{sum_} + CASE WHEN {item} IS NOT NULL THEN 1 + {inner} ELSE 0 END"
            return f"aggregate(map_values({value}), 0, ({sum_}, {item}) -> {added})"
    return "0"
