"""The columns of the table beside those that the stream gives: what may differ, what is refused, what may be widened.

Source: Delta protocol, "Type Widening"; of the changes that it allows, those that a write makes by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdi_assets.drain.rules.errors import SchemaDisagrees
from kdi_assets.drain.rules.shape import DATE
from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.stream.message_format import Framed
from kdi_assets.stream.message_rules import Contract
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, DecimalType, StructType

PROPERTY = "delta.enableTypeWidening"
"""Of tables whose columns may be widened."""
_INTEGERS = ("byte", "short", "integer", "long")
_DIGITS, _DIGITS_OF_A_LONG = 38, 19


def refuse_other_schema(stream: Stream, log: TableLog, wanted: StructType) -> None:
    """Refuse a table whose columns are not the stream's.

    A column that only the table has is left null, if someone has written down what the stream gives. Where that is the
    latest version of a registry's subject nobody has: one that has lost a field would empty its column unseen. A type
    that differs would be changed in silence, or fail in the middle of a write.

    Args:
        wanted: The columns that the stream gives.

    Raises:
        SchemaDisagrees: With every difference.
    """
    from pyspark.sql.types import StructType

    found = {f.name.lower(): f for f in StructType.fromJson(dict(log.schema)).fields}
    given = {f.name.lower(): f for f in wanted.fields}
    may_gain = stream.contract.new_columns == "evolve"
    differences = [f"column {f.name} is not in the table" for n, f in given.items() if n not in found and not may_gain]
    differences += [
        f"column {f.name} is {_type(found[n].dataType)} in the table and {_type(f.dataType)} in the stream"
        for n, f in given.items()
        if n in found and not _agree(found[n].dataType, f.dataType, stream.contract)
    ]
    differences += [
        f"column {f.name} is NOT NULL, and the stream does not give it"
        for n, f in found.items()
        if n not in given and not f.nullable
    ]
    differences += [
        f"column {f.name} is not in the latest version that is known of the schema (`version:` pins another one)"
        for n, f in found.items()
        if n not in given and f.nullable and _follows_latest(stream)
    ]
    if DATE not in log.partition_columns:
        by = ", ".join(log.partition_columns) or "nothing"
        differences.append(f"the table is partitioned by {by} and not by {DATE}, so it must be written anew")
    if stream.contract.types == "evolve" and log.configuration.get(PROPERTY) != "true":
        said = "to which other readers must agree: delta-rs reads no rows of it from then on"
        differences.append(f"`contract.types: evolve` needs the table's property {PROPERTY} = true, {said}")
    if differences:
        raise SchemaDisagrees(stream=stream.name, uri=log.uri, differences=tuple(differences))


def _agree(found: DataType, given: DataType, contract: Contract) -> bool:
    """Whether a column of the table takes what the stream gives, as it is or as the commit may make it."""
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
    """Whether the record is whatever a registry has as the latest, and nobody wrote down what it is."""
    return isinstance(stream.format, Framed) and stream.format.schemas.version is None and not stream.record_ddl


def _type(declared: DataType) -> str:
    return declared.simpleString().lower()  # without nullability, which Delta checks row by row


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
