"""Rows in the form that the table has: columns and fields by name, in the table's order, at every depth.

A table that kafka-delta-ingest filled keeps its form: text for the date, another order of fields, coordinates without a
timestamp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdi_assets.documents.model.stream import Stream
from kdi_assets.streams.rules.table.column_tree import DATE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType


def in_table_form(rows: DataFrame, table: StructType, stream: Stream) -> DataFrame:
    """The rows as the table keeps them; the same frame if all their columns have this form already.

    Args:
        rows: With columns that ``refuse_other_schema`` accepts for the table.

    Returns:
        The columns of the rows that the table has, in its order and spelling, then the others. A column or a field
        that only the table has is left out, or null. Lazy.
    """
    from pyspark.sql import functions as F

    given, found = {f.name.lower(): f for f in rows.schema.fields}, {f.name.lower(): f for f in table.fields}
    if all(f.dataType.simpleString() == found[n].dataType.simpleString() for n, f in given.items() if n in found):
        return rows
    known = [n for n in found if n in given]
    return rows.select(
        *(
            _as(F.col(f"`{given[n].name}`"), given[n].dataType, found[n].dataType, n, stream).alias(found[n].name)
            for n in known
        ),
        *(F.col(f"`{f.name}`") for n, f in given.items() if n not in found),
    )


def keeps_otherwise(path: str, found: DataType, given: DataType, stream: Stream) -> bool:
    """Whether a table may keep a column's values in this type, although its stream gives another one."""
    from pyspark.sql import types as t

    coordinates = stream.coordinates.lower()
    match found, given:
        case t.StringType(), t.DateType():
            return path.lower() == DATE  # as `yyyy-MM-dd`
        case t.LongType(), t.IntegerType():
            return path.lower() == f"{coordinates}.partition"
        case t.LongType(), t.TimestampType():
            return path.lower() == f"{coordinates}.timestamp"  # in microseconds, as kafka-delta-ingest gives it
    return False


def may_lack(path: str, stream: Stream) -> bool:
    """Whether a table may do without a field that its stream gives."""
    return path.lower() == f"{stream.coordinates}.timestamp".lower()


def _as(value: Column, given: DataType, found: DataType, path: str, stream: Stream) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql import types as t

    if given.simpleString() == found.simpleString():
        return value
    match given, found:
        case t.StructType(), t.StructType():
            fields = _fields(value, given, found, path, stream)
            return F.when(value.isNotNull(), F.struct(*fields))
        case t.ArrayType(), t.ArrayType():
            inner = given.elementType, found.elementType, f"{path}.element"
            return F.transform(value, lambda each: _as(each, *inner, stream))
        case t.MapType(), t.MapType():
            inner = given.valueType, found.valueType, f"{path}.value"
            return F.transform_values(value, lambda _, each: _as(each, *inner, stream))
    if not keeps_otherwise(path, found, given, stream):
        return value
    return F.unix_micros(value) if isinstance(given, t.TimestampType) else value.cast(found)


def _fields(value: Column, given: StructType, found: StructType, path: str, stream: Stream) -> list[Column]:
    """The fields of a struct: those of the table, then those that the commit adds to it."""
    from pyspark.sql import functions as F

    own, fields = {f.name.lower(): f for f in given.fields}, []
    for f in found.fields:
        mine = own.pop(f.name.lower(), None)
        here = f"{path}.{f.name}"
        as_found = _as(value[mine.name], mine.dataType, f.dataType, here, stream) if mine else F.lit(None)
        fields.append((as_found if mine else as_found.cast(f.dataType)).alias(f.name))
    return fields + [value[f.name].alias(f.name) for f in own.values() if not may_lack(f"{path}.{f.name}", stream)]
