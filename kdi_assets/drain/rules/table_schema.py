"""The table's columns compared with the stream's: which differences are refused, and which types may be widened.

Source: Delta protocol, "Type Widening"; of its changes, those that a write makes by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdi_assets.drain.rules.column_tree import DATE
from kdi_assets.drain.rules.errors import SchemaDisagrees
from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.stream.message_format import Framed
from kdi_assets.stream.message_rules import Contract
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, DecimalType, StructType

PROPERTY = "delta.enableTypeWidening"
"""The property of tables whose columns may be widened."""
_INTEGERS = ("byte", "short", "integer", "long")
_DIGITS, _DIGITS_OF_A_LONG = 38, 19


def refuse_other_schema(stream: Stream, log: TableLog, wanted: StructType) -> None:
    """Refuse a table whose columns are not the stream's.

    A column that only the table has stays null, if someone declared the stream's record. The latest version of a
    registry's subject is not declared: if it lost a field, the column would be emptied unseen. A type that differs
    would change silently, or fail in the middle of a write.

    Args:
        wanted: The columns that the stream gives.

    Raises:
        SchemaDisagrees: With every difference.
    """
    differences = _of_columns(stream, log, wanted)
    if DATE not in log.partition_columns:
        by = ", ".join(log.partition_columns) or "nothing"
        differences.append(f"the table is partitioned by {by} and not by {DATE}, so it must be rewritten")
    if stream.contract.types == "evolve" and log.configuration.get(PROPERTY) != "true":
        said = "to which other readers must agree: delta-rs reads no rows of it from then on"
        differences.append(f"`contract.types: evolve` needs the table's property {PROPERTY} = true, {said}")
    if differences:
        raise SchemaDisagrees(stream=stream.name, uri=log.uri, differences=tuple(differences))


def _of_columns(stream: Stream, log: TableLog, wanted: StructType) -> list[str]:
    """What differs between the table's columns and the wanted ones."""
    from pyspark.sql.types import StructType

    found = {f.name.lower(): f for f in StructType.fromJson(dict(log.schema)).fields}
    given = {f.name.lower(): f for f in wanted.fields}
    only_table = [f for n, f in found.items() if n not in given]
    both = [(f, found[n]) for n, f in given.items() if n in found]
    may_gain = stream.contract.new_columns == "evolve"
    latest = "is not in the latest version that is known of the schema (`version:` pins another one)"
    return [
        *(f"column {f.name} is not in the table" for n, f in given.items() if n not in found and not may_gain),
        *(
            f"column {f.name} is {_type(there.dataType)} in the table and {_type(f.dataType)} in the stream"
            for f, there in both
            if not _agree(there.dataType, f.dataType, stream.contract)
        ),
        *(f"column {f.name} is NOT NULL, and the stream does not give it" for f in only_table if not f.nullable),
        *(f"column {f.name} {latest}" for f in only_table if f.nullable and _follows_latest(stream)),
    ]


def _agree(found: DataType, given: DataType, contract: Contract) -> bool:
    """Whether a column of the table can hold the stream's values, as it is or after a change by the commit."""
    from pyspark.sql import types as t

    match found, given:
        case t.StructType(), t.StructType():
            there = {f.name.lower(): f.dataType for f in found.fields}
            new = {f.name.lower(): f.dataType for f in given.fields}
            as_they_are = contract.new_columns != "evolve"
            names = list(there) == list(new) if as_they_are else there.keys() <= new.keys()
            return names and all(_agree(there[n], new[n], contract) for n in there)
        case t.ArrayType(), t.ArrayType():
            return _agree(found.elementType, given.elementType, contract)
        case t.MapType(), t.MapType():
            keys = _type(found.keyType) == _type(given.keyType)
            return keys and _agree(found.valueType, given.valueType, contract)
    return _type(found) == _type(given) or (contract.types == "evolve" and widens(found, given))


def _follows_latest(stream: Stream) -> bool:
    """Whether the record is the registry's latest version, and the document declares none."""
    return isinstance(stream.format, Framed) and stream.format.schemas.version is None and not stream.record_ddl


def _type(declared: DataType) -> str:
    return declared.simpleString().lower()  # without nullability, which Delta checks row by row


def widens(narrow: DataType, wide: DataType) -> bool:
    """Whether a column may change from the narrow type to the wide one."""
    from pyspark.sql import types as t

    match narrow, wide:
        case (t.FloatType(), t.DoubleType()) | (t.DateType(), t.TimestampNTZType()):
            return True
        case t.DecimalType(), t.DecimalType():
            more = wide.scale - narrow.scale
            return narrow != wide and more >= 0 and wide.precision - narrow.precision >= more
    both = narrow.typeName(), wide.typeName()
    return all(name in _INTEGERS for name in both) and _INTEGERS.index(both[0]) < _INTEGERS.index(both[1])


def widened(declared: DataType, of_values: DataType) -> DataType:
    """The wider type for the declared one and for values that do not suit it; the declared type if there is none.

    Args:
        of_values: The type of these values, by ``schema_of_variant``.
    """
    from pyspark.sql import types as t

    match declared, of_values:
        case t.StructType(), t.StructType():
            values = {f.name: f.dataType for f in of_values.fields}
            return t.StructType(
                [
                    t.StructField(f.name, widened(f.dataType, values[f.name]), f.nullable, f.metadata)
                    if f.name in values
                    else f
                    for f in declared.fields
                ]
            )
        case t.ArrayType(), t.ArrayType():
            return t.ArrayType(widened(declared.elementType, of_values.elementType), declared.containsNull)
        case t.FloatType(), t.DoubleType() | t.DecimalType() | t.LongType():
            return t.DoubleType()
        case t.DecimalType(), t.DecimalType():
            return _decimal(declared, of_values.precision - of_values.scale, of_values.scale)
        case t.DecimalType(), t.LongType():
            return _decimal(declared, _DIGITS_OF_A_LONG, 0)
        case ((t.ByteType() | t.ShortType() | t.IntegerType()), t.LongType()):
            return t.LongType()
    return declared


def _decimal(declared: DecimalType, whole: int, scale: int) -> DecimalType:
    from pyspark.sql.types import DecimalType

    digits, fraction = max(declared.precision - declared.scale, whole), max(declared.scale, scale)
    return DecimalType(digits + fraction, fraction) if digits + fraction <= _DIGITS else declared
