"""The table's columns compared with the stream's: which differences are refused, and which types may be widened.

Source: Delta protocol, "Type Widening"; of its changes, those that a write makes by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.message_format import Framed
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.coordinates import quoted_path
from kdi_assets.messages.formats.rules import name
from kdi_assets.streams.rules.errors import SchemaDisagrees
from kdi_assets.streams.rules.table.column_tree import DATE
from kdi_assets.streams.rules.table.table_rows import keeps_otherwise, may_lack

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, DecimalType, StructType

PROPERTY = "delta.enableTypeWidening"
"""The property of tables whose columns may be widened."""
_INTEGERS = ("byte", "short", "integer", "long")
_DIGITS, _DIGITS_OF_A_LONG = 38, 19


def refuse_other_schema(stream: Stream, log: TableLog, wanted: StructType) -> None:
    """Refuse a table whose columns are not the stream's; columns and fields are compared by name, not by place.

    A column that only the table has stays null, if someone declared the stream's record. The latest version of a
    registry's subject is not declared: if it lost a field, the column would be emptied unseen. A type that differs
    would change silently, or fail in the middle of a write.

    Args:
        wanted: The columns that the stream gives.

    Raises:
        SchemaDisagrees: With every difference.
    """
    found = of_table(log)
    compared = list(_of_fields(found, wanted, "", stream))
    differences = [*(d for d, _ in compared), *_only_in_table(found, wanted, stream), *_partitioning(log, wanted)]
    lacks = PROPERTY if stream.contract.types == "evolve" and log.configuration.get(PROPERTY) != "true" else ""
    if lacks:
        said = "to which other readers must agree: delta-rs reads no rows of it from then on"
        differences.append(f"`contract.types: evolve` needs the table's property {PROPERTY} = true, {said}")
    if differences:
        missing = tuple(column for _, column in compared if column)
        raise SchemaDisagrees(
            stream=stream.name, uri=log.uri, differences=tuple(differences), missing=missing, lacks=lacks
        )


def of_table(log: TableLog) -> StructType:
    """The table's columns."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(dict(log.schema))


def _partitioning(log: TableLog, wanted: StructType) -> Iterator[str]:
    columns, given = log.partition_columns, {f.name.lower() for f in wanted.fields}
    if DATE not in columns:
        by = ", ".join(columns) or "nothing"
        yield f"the table is partitioned by {by} and not by {DATE}, so it must be rewritten"
    for column in columns:
        if column.lower() not in given:
            yield f"the table is partitioned by {column}, and the stream does not give it"


def _only_in_table(found: StructType, wanted: StructType, stream: Stream) -> Iterator[str]:
    """What is wrong with columns that the stream does not give."""
    given = {f.name.lower() for f in wanted.fields}
    for f in (f for f in found.fields if f.name.lower() not in given):
        if not f.nullable:
            yield f"column {f.name} is NOT NULL, and the stream does not give it"
        elif follows_latest(stream):
            pinned = "is not in the latest version that is known of the schema (`version:` pins another one)"
            yield f"column {f.name} {pinned}"


def _of_fields(found: StructType, given: StructType, path: str, stream: Stream) -> Iterator[tuple[str, str]]:
    """Each difference among the columns that the stream gives, and the column that would mend it as DDL, if one would.

    Args:
        path: Of the struct with these fields, with a dot at its end; empty for the table itself.
    """
    there, new = ({f.name.lower(): f for f in struct.fields} for struct in (found, given))
    for n, f in new.items():
        here = f"{path}{f.name}"
        if n in there:
            yield from _of_types(there[n].dataType, f.dataType, here, stream)
        elif stream.contract.new_columns != "evolve" and not may_lack(here, stream):
            yield f"column {here} is not in the table", f"{quoted_path(here)} {_ddl(f.dataType)}"
    if path:
        for f in (f for n, f in there.items() if n not in new):
            yield f"column {path}{f.name} is not in the stream", ""


def _of_types(found: DataType, given: DataType, path: str, stream: Stream) -> Iterator[tuple[str, str]]:
    """The differences that keep a column of the table from holding the stream's values, also after a commit's change.

    Args:
        path: Of the column.
    """
    from pyspark.sql import types as t

    match found, given:
        case t.StructType(), t.StructType():
            yield from _of_fields(found, given, f"{path}.", stream)
            return
        case t.ArrayType(), t.ArrayType():
            yield from _of_types(found.elementType, given.elementType, f"{path}.element", stream)
            return
        case t.MapType(), t.MapType() if _type(found.keyType) == _type(given.keyType):
            yield from _of_types(found.valueType, given.valueType, f"{path}.value", stream)
            return
    widening = stream.contract.types == "evolve" and widens(found, given)
    if _type(found) != _type(given) and not widening and not keeps_otherwise(path, found, given, stream):
        yield f"column {path} is {_type(found)} in the table and {_type(given)} in the stream", ""


def follows_latest(stream: Stream) -> bool:
    """Whether the record is the registry's latest version, and the document declares none."""
    return isinstance(stream.format, Framed) and stream.format.schemas.version is None and not stream.record_ddl


def _ddl(declared: DataType) -> str:
    """The type for a statement: names may have characters that Spark's own text of a type does not quote."""
    from pyspark.sql import types as t

    match declared:
        case t.StructType():
            return f"struct<{', '.join(f'{name(f.name)}: {_ddl(f.dataType)}' for f in declared.fields)}>"
        case t.ArrayType():
            return f"array<{_ddl(declared.elementType)}>"
        case t.MapType():
            return f"map<{_ddl(declared.keyType)}, {_ddl(declared.valueType)}>"
    return declared.simpleString()


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
