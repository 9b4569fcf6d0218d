"""What can be had of a JSON message that the record condemns for a value: each field is judged alone.

A field that does not fit becomes null, and is told of with its value. The same parse and the same rules judge it as
judge a whole message, so that nothing fits here that would not fit there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kdi_assets.formats.decoder import PAYLOAD, UNKNOWN_DDL
from kdi_assets.formats.json_types import narrow, rules_of, wide
from kdi_assets.formats.rules import any_of, literal, name

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

_TEXT = f"CAST({PAYLOAD} AS STRING)"
_END, _CORRUPT = "_k3f71", "_kdi_corrupt"


def salvaged(record: StructType, options: str, beside: str) -> str:
    """Spark SQL of ``struct<record: record, misfits: UNKNOWN_DDL>``; null where the payload is no document, or a field
    that must be there has no value.

    Args:
        options: Spark SQL of the options by which messages are parsed.
        beside: Spark SQL of what a record has beside its fields, from the comma on.
    """
    whole = f"""try_variant_get(try_parse_json(concat('[', {_TEXT}, ',"{_END}"]')), '$', 'array<variant>')"""
    is_one = f"size({whole}) = 2 AND get({whole}, 0) IS NOT NULL"
    document = f"CASE WHEN {is_one} THEN get({whole}, 0) END"
    is_object = "try_variant_get(_kdi_d, '$', 'map<string, variant>') IS NOT NULL"
    parts = f"named_struct('record', {_record(record, (), options, beside)}, 'misfits', CAST(array() AS {UNKNOWN_DDL}))"
    told = f"named_struct('record', _kdi_p.record, 'misfits', {_misfits(record)})"
    missing = any_of([r for r in rules_of("_kdi_p.record", record) if r.reason == "missing_field"])
    kept = f"get(transform(array({parts}), _kdi_p -> CASE WHEN NOT ({missing}) THEN {told} END), 0)"
    # Spark interprets lambdas: what is seldom needed stays out of the code that it writes and the JVM compiles.
    return f"get(transform(array({document}), _kdi_d -> CASE WHEN {is_object} THEN {kept} END), 0)"


def _record(struct: StructType, path: tuple[str, ...], options: str, beside: str = "") -> str:
    """Spark SQL of the struct at a path, with null for every field that does not fit."""
    from pyspark.sql.types import StructType

    fields = []
    for field in struct.fields:
        here = (*path, field.name)
        inner = field.dataType
        if isinstance(inner, StructType) and inner.fields:
            made = f"CASE WHEN {_is_object(here)} THEN {_record(inner, here, options)} END"
        else:
            made = _leaf(field, here, options)
        fields.append(f"{literal(field.name)}, {made}")
    return f"named_struct({', '.join(fields)}{beside})"


def _leaf(field: StructField, path: tuple[str, ...], options: str) -> str:
    """The field as a message would give it that has no other; null if that message were condemned."""
    from pyspark.sql.types import StringType, StructField, StructType

    alone = StructType([StructField(field.name, field.dataType)])
    for step in reversed(path[:-1]):
        alone = StructType([StructField(step, alone)])
    schema = StructType([*wide(alone).fields, StructField(_CORRUPT, StringType())])
    parsed = f"from_json({_TEXT}, {literal(_quoted(schema))}, {options})"
    condemned = any_of(rules_of("_kdi_l", alone))
    value = "_kdi_l" + "".join(f".{name(step)}" for step in path)
    fits = f"_kdi_l.{_CORRUPT} IS NULL AND NOT ({condemned})"
    return f"get(transform(array({parsed}), _kdi_l -> CASE WHEN {fits} THEN {narrow(value, field.dataType)} END), 0)"


def _quoted(type_: StructType) -> str:
    """The fields as DDL, whatever their names."""
    return ", ".join(f"{name(f.name)} {_ddl(f.dataType)}" for f in type_.fields)


def _ddl(type_: DataType) -> str:
    from pyspark.sql import types as t

    match type_:
        case t.StructType():
            return f"struct<{', '.join(f'{name(f.name)}: {_ddl(f.dataType)}' for f in type_.fields)}>"
        case t.ArrayType():
            return f"array<{_ddl(type_.elementType)}>"
        case t.MapType():
            return f"map<{_ddl(type_.keyType)}, {_ddl(type_.valueType)}>"
    return type_.simpleString()


def _misfits(record: StructType) -> str:
    """Spark SQL of the fields that the document has and the salvaged record has not, among those declared."""
    each = []
    for path in _paths(record):
        there = f"try_variant_get(_kdi_d, {_steps(path)}, 'variant')"
        lost = "_kdi_p.record" + "".join(f".{name(step)}" for step in path)
        place = literal(".".join(path))
        entry = f"named_struct('path', {place}, 'place', {place}, 'value', {there})"
        is_there = f"{there} IS NOT NULL AND NOT is_variant_null({there})"
        each.append(f"CASE WHEN {lost} IS NULL AND {is_there} THEN {entry} END")
    return f"CAST(filter(array({', '.join(each)}), _kdi_m -> _kdi_m IS NOT NULL) AS {UNKNOWN_DDL})"


def _paths(struct: StructType, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every field, a struct before those that lie in it."""
    from pyspark.sql.types import StructType

    for field in struct.fields:
        here = (*path, field.name)
        yield here
        if isinstance(field.dataType, StructType):
            yield from _paths(field.dataType, here)


def _is_object(path: tuple[str, ...]) -> str:
    return f"try_variant_get(_kdi_d, {_steps(path)}, 'map<string, variant>') IS NOT NULL"


def _steps(path: tuple[str, ...]) -> str:
    return literal("$" + "".join(f'["{step}"]' for step in path))
