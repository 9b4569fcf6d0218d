"""Columns: which ones the rows of a refined table may have, and how values of any type are compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from kdi_assets.documents.model.refined_modes import Upsert
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.follow.refine.row_errors import ColumnsFrozen, NameOfOurColumn

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

SEQUENCE, FROM, TO = "sequence", "valid_from", "valid_to"
AT = "sequence_at"
"""Partition and offset of the change in Kafka, and its row's number in the message if there are several: they decide
between changes with one sequence."""
CARRIED = "carried"
"""By column whose value the change did not have (Debezium's unchanged columns), the change that the value is of."""
_REFUSED_BY_DELTA = frozenset(" ,;{}()\n\t=")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_WIDER = frozenset({("float", "double"), *combinations(_INTEGERS, 2)})
"""Pairs of types; the second one has all values of the first."""
EXACT_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of ``to_json`` for values that are compared: by default JSON has milliseconds, and leaves out nulls."""


def row_as_json(rows: DataFrame, names: Sequence[str]) -> Column:
    """Some columns of a row as one text, which differs if a value does; 0.0 and -0.0 of columns are the same."""
    from pyspark.sql import functions as F

    # As JSON, because maps cannot be compared. Of two rows that differ in 0.0 and -0.0 alone, one stays; in columns.
    zero = {f.name: " + 0F" for f in rows.schema.fields if f.dataType.typeName() in ("double", "float")}
    return F.to_json(F.struct(*(F.expr(f"`{name}`{zero.get(name, '')}").alias(name) for name in names)), EXACT_JSON)


def one_value(sql: str) -> str:
    """The SQL of a document where it is one value: Spark refuses ``at DESC``, ``DISTINCT id`` and ``a, b`` there.

    Elsewhere it takes them for a column under another name, a set of values, and a struct or two arguments.
    """
    return f"CASE WHEN true THEN {sql}\nEND"  # a comment at its end would hide what follows in the line


class HasOtherColumns(Exception):
    """The rows have other columns than the table, so all of them are computed again; the first argument says which.

    Attributes:
        only_wider: Whether they are the table's columns, some with wider types.
    """

    def __init__(self, found: str, *, only_wider: bool = False) -> None:
        super().__init__(found)
        self.only_wider = only_wider


def refuse_frozen_columns(table: RefinedTableSpec, rows: StructType, kept: StructType) -> None:
    """Refuse rows whose columns the contract does not allow.

    Args:
        rows: The columns of the rows.
        kept: The columns of the table.

    Raises:
        ColumnsFrozen: A column is new, gone, or of another type.
    """
    for rule, policy, found in (
        ("types", table.contract.types, _changed(rows, kept)),
        ("new_columns", table.contract.new_columns, _added(rows, kept)),
    ):
        if policy == "freeze" and found:
            raise ColumnsFrozen(table=table.name, rule=rule, found=", ".join(found))


def other_columns(rows: StructType, kept: StructType) -> list[str]:
    """In words, which columns of some rows are not those of a table; their order makes no difference."""
    return _changed(rows, kept) + _added(rows, kept)


def are_only_wider(rows: StructType, kept: StructType) -> bool:
    """Whether some rows have the columns of a table, in types that have all values of the table's."""
    new = {f.name: f.dataType for f in rows.fields}
    old = {f.name: f.dataType for f in kept.fields}
    return new.keys() == old.keys() and all(_widens(kind, new[name]) for name, kind in old.items())


def _widens(narrow: DataType, wide: DataType) -> bool:
    from pyspark.sql import types as t

    match narrow, wide:
        case t.StructType(), t.StructType():
            # A cast goes by the places of fields.
            both = zip(narrow.fields, wide.fields, strict=False)
            return narrow.names == wide.names and all(_widens(old.dataType, new.dataType) for old, new in both)
        case t.ArrayType(), t.ArrayType():
            return _widens(narrow.elementType, wide.elementType)
        case t.DecimalType(), t.DecimalType():
            more = wide.scale - narrow.scale
            return more >= 0 and wide.precision - narrow.precision >= more
    names = narrow.simpleString(), wide.simpleString()
    return names[0] == names[1] or names in _WIDER


def _added(rows: StructType, kept: StructType) -> list[str]:
    return [f"{f.name} {f.dataType.simpleString()} is new" for f in rows.fields if f.name not in kept.names]


def _changed(rows: StructType, kept: StructType) -> list[str]:
    new, old = ({f.name: f.dataType.simpleString() for f in schema.fields} for schema in (rows, kept))
    return [
        f"{name} {kind} would be {new[name]}" if name in new else f"{name} {kind} would be gone"
        for name, kind in old.items()
        if new.get(name) != kind
    ]


def kept_columns(columns: Sequence[str], mode: Upsert) -> tuple[str, ...]:
    """The columns of the rows that the table keeps, of all that they have."""
    others = (c for c in columns if not c.startswith("_kdi_"))
    return tuple(dict.fromkeys((*mode.keys, *(mode.column_list or others))))


def made_columns(mode: Upsert) -> frozenset[str]:
    """The names of columns that the mode makes; with history, the sequence becomes the first of a row's span."""
    carried = {CARRIED} if mode.envelope == "debezium" else set()
    return frozenset({SEQUENCE, AT, *carried} if mode.scd_type == 1 else {SEQUENCE, AT, FROM, TO, *carried})


def sequence_column(mode: Upsert) -> str:
    """What ``sequence_by`` names, if it is a column: one that the mode makes under this name has the same values."""
    return mode.sequence_by.strip().strip("`")


def refuse_made_columns(table: str, columns: Sequence[str], mode: Upsert) -> None:
    """Refuse columns of the rows that those of the mode would hide.

    Raises:
        NameOfOurColumn: One of them would be lost.
    """
    for column in kept_columns(columns, mode):
        same_values = column == sequence_column(mode) and column not in mode.keys
        if column.lower() in made_columns(mode) and not same_values:
            raise NameOfOurColumn(table=table, column=column)


def wrong_name(schema: StructType, properties: Mapping[str, str]) -> str:
    """What is wrong with the first name of a column or field that Delta refuses; empty if it takes all of them.

    Args:
        properties: Of the table: with column mapping, Delta takes any character.
    """
    seen = set()
    mapped = properties.get("delta.columnMapping.mode", "none") != "none"
    for path, name in _names(schema):
        if path.lower() in seen:
            return f"two columns are called {path!r}"
        if not mapped and not _REFUSED_BY_DELTA.isdisjoint(name):
            return f"Delta stores no column called {path!r}"
        seen.add(path.lower())
    return ""


def _names(kind: DataType, parent: str = "") -> Iterator[tuple[str, str]]:
    """Path and name of all fields, those of structs within arrays and maps included."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    match kind:
        case StructType():
            for f in kind.fields:
                yield f"{parent}{f.name}", f.name
                yield from _names(f.dataType, f"{parent}{f.name}.")
        case ArrayType():
            yield from _names(kind.elementType, parent)
        case MapType():
            yield from _names(kind.keyType, f"{parent}key.")
            yield from _names(kind.valueType, f"{parent}value.")


def comparable(sql: str, kind: DataType, depth: int = 0) -> str:
    """SQL of a value that Spark can compare, and that differs if the value of ``sql`` does.

    Spark compares no map and no variant. Their JSON would not do: it cuts times off after milliseconds.
    """
    from pyspark.sql.types import ArrayType, MapType, StructType

    if not _has_incomparable(kind):
        return sql
    item = f"_kdi_x{depth}"
    match kind:
        case StructType():
            fields = ", ".join(comparable(f"{sql}.`{f.name}`", f.dataType, depth) for f in kind.fields)
            return f"IF({sql} IS NULL, NULL, struct({fields}))"
        case ArrayType():
            return f"transform({sql}, {item} -> {comparable(item, kind.elementType, depth + 1)})"
        case MapType():
            value = comparable(f"{item}.value", kind.valueType, depth + 1)
            return f"transform(map_entries({sql}), {item} -> struct({item}.key, {value}))"
    return f"to_json({sql})"


def _has_incomparable(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

    match kind:
        case StructType():
            return any(_has_incomparable(f.dataType) for f in kind.fields)
        case ArrayType():
            return _has_incomparable(kind.elementType)
    return isinstance(kind, MapType | VariantType)
