"""Fields that JSON messages have and the record has not, with what they hold: in two steps, as most messages have none.

Where names are left over (``json_names``) the text is parsed again, into a variant, and walked beside the record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdi_assets.formats.catalyst import parsed_json
from kdi_assets.formats.decoder import UNKNOWN, UNKNOWN_DDL
from kdi_assets.formats.json_names import TEXT, names_left
from kdi_assets.formats.rules import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

WHOLE = "_kdi_whole"
"""The document as a variant, where it is to be walked."""
_NONE = f"CAST(array() AS {UNKNOWN_DDL})"


def with_unknown(messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
    """Add the fields that the record has not, each with its value; null is no value, here as in a record.

    Args:
        messages: With ``_kdi_payload`` and ``_kdi_document``, the payload as parsed by the record.
        where: Spark SQL; other messages are not asked, and are documents that the record decoded.

    Returns:
        ``messages`` with ``_kdi_unknown``, as ``kdi_assets.formats.decoder`` describes it.
    """
    from pyspark.sql import functions as F

    spark = messages.sparkSession
    asked = F.when(F.expr(where) & (names_left(spark, record) != 0), parsed_json(spark, TEXT))
    return messages.withColumn(WHOLE, asked).withColumn(UNKNOWN, F.expr(walked(record))).drop(WHOLE)


def walked(record: StructType) -> str:
    """Spark SQL of what ``_kdi_whole`` has and the record has not; null if there is nothing."""
    # Spark interprets lambdas: what is seldom needed stays out of the code that it writes and the JVM compiles.
    found = f"filter(transform(array({WHOLE}), _kdi_w -> {_unknown('_kdi_w', record)}), _kdi_u -> size(_kdi_u) > 0)"
    return f"CASE WHEN {WHOLE} IS NOT NULL THEN get({found}, 0) END"


def _unknown(value: str, declared: DataType, path: str = "''", place: str = "''", depth: int = 0) -> str:
    """Spark SQL of the entries of a variant, none of them null; empty text if the type has no names.

    Args:
        path, place: Spark SQL of where the value stands.
    """
    from pyspark.sql import types as t

    match declared:
        case t.StructType():
            return _of_struct(value, declared, path, place, depth)
        case t.ArrayType():
            item, at = f"_kdi_e{depth}", f"_kdi_a{depth}"
            inner = _unknown(
                item, declared.elementType, f"concat({path}, '[]')", f"concat({place}, '[', {at}, ']')", depth + 1
            )
            elements = f"try_variant_get({value}, '$', 'array<variant>')"
            each = f"transform({elements}, ({item}, {at}) -> {inner})"
        case t.MapType():
            item, at = f"_kdi_e{depth}", f"_kdi_a{depth}"
            inner = _unknown(
                f"{item}.value",
                declared.valueType,
                f"concat({path}, '[]')",
                _bracketed(place, f"{item}.key"),
                depth + 1,
            )
            each = f"transform(map_entries(try_variant_get({value}, '$', 'map<string, variant>')), {item} -> {inner})"
        case _:
            return ""
    return inner and f"coalesce(flatten({each}), {_NONE})"


def _of_struct(value: str, declared: StructType, path: str, place: str, depth: int) -> str:
    key, item = f"_kdi_k{depth}", f"_kdi_v{depth}"
    names = ", ".join(literal(f.name) for f in declared.fields) or "''"
    fields = f"try_variant_get({value}, '$', 'map<string, variant>')"
    others = f"map_filter({fields}, ({key}, {item}) -> {key} NOT IN ({names}) AND NOT is_variant_null({item}))"
    entry = (
        f"named_struct('path', {_below(path, f'{item}.key')}, 'place', {_at(place, f'{item}.key')}, "
        f"'value', {item}.value)"
    )
    found = [f"coalesce(transform(map_entries({others}), {item} -> {entry}), {_NONE})"]
    for field in declared.fields:
        step, called = literal(f'$["{field.name}"]'), literal(field.name)
        below = f"try_variant_get({value}, {step}, 'variant')"
        inner = _unknown(below, field.dataType, _below(path, called), _below(place, called), depth + 1)
        found += [inner] if inner else []
    return f"concat({', '.join(found)})" if len(found) > 1 else found[0]


def _below(path: str, key: str) -> str:
    return f"concat_ws('.', nullif({path}, ''), {key})"


def _at(place: str, key: str) -> str:
    """A place below: in brackets where the key could be taken for several steps, so that no two places are the same."""
    plain = f"{key} <> '' AND NOT contains({key}, '.') AND NOT contains({key}, '[')"
    return f"CASE WHEN {plain} THEN {_below(place, key)} ELSE {_bracketed(place, key)} END"


def _bracketed(place: str, key: str) -> str:
    return f"concat({place}, to_json(array({key})))"
