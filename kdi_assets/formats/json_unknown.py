"""Fields that JSON messages have and the record has not: told in two steps, because most messages have none.

The first step counts. Whatever has a name in the text is followed by ``":``; as many of these as the record found
values leave no name over. It errs to one side alone: a text that counts more (a quotation mark before a colon inside a
string, a name that stands twice, a blank before a colon) is walked for nothing, and one with an unknown field always
counts more. Only then the text is parsed again, into a variant, and walked beside the record.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from kdi_assets.formats.catalyst import occurrences, parsed_json
from kdi_assets.formats.decoder import DOCUMENT, PAYLOAD, UNKNOWN, UNKNOWN_DDL
from kdi_assets.formats.rules import literal, name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_TEXT = f"CAST({PAYLOAD} AS STRING)"
_WHOLE = "_kdi_whole"
_BLANKS = (" ", "\t", "\n", "\r")
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
    asked = F.when(F.expr(where) & _may_have_unknown(spark, record), parsed_json(spark, _TEXT))
    # Spark interprets lambdas: what is seldom needed stays out of the code that it writes and the JVM compiles.
    walked = f"filter(transform(array({_WHOLE}), _kdi_w -> {_unknown('_kdi_w', record)}), _kdi_u -> size(_kdi_u) > 0)"
    found = f"CASE WHEN {_WHOLE} IS NOT NULL THEN get({walked}, 0) END"
    return messages.withColumn(_WHOLE, asked).withColumn(UNKNOWN, F.expr(found)).drop(_WHOLE)


def _may_have_unknown(spark: SparkSession, record: StructType) -> Column:
    """Whether there may be an unknown field; false only if there is none."""
    from pyspark.sql import functions as F

    apart = reduce(or_, (occurrences(spark, _TEXT, f"{blank}:") > 0 for blank in _BLANKS))
    named = occurrences(spark, _TEXT, '":')
    nulls = occurrences(spark, _TEXT, '":null') + occurrences(spark, _TEXT, '": null')
    values = F.expr(_values(DOCUMENT, record))
    return F.when(apart, True).when(named == values, False).otherwise(named - nulls != values)


def _values(value: str, declared: DataType, depth: int = 0) -> str:
    """Spark SQL of how many named values a value holds, at any depth; 0 where it can hold none."""
    from pyspark.sql import types as t

    item, sum_ = f"_kdi_i{depth}", f"_kdi_s{depth}"
    match declared:
        case t.StructType():
            fields = ((f"{value}.{name(f.name)}", f.dataType) for f in declared.fields)
            each = (
                f"CASE WHEN {inner} IS NOT NULL THEN 1 + {_values(inner, type_, depth)} ELSE 0 END"
                for inner, type_ in fields
            )
            return f"({' + '.join(each)})" if declared.fields else "0"
        case t.ArrayType():
            inner = _values(item, declared.elementType, depth + 1)
            added = f"{sum_} + CASE WHEN {item} IS NOT NULL THEN {inner} ELSE 0 END"
            return "0" if inner == "0" else f"aggregate({value}, 0, ({sum_}, {item}) -> {added})"
        case t.MapType():
            inner = _values(item, declared.valueType, depth + 1)
            added = f"{sum_} + CASE WHEN {item} IS NOT NULL THEN 1 + {inner} ELSE 0 END"
            return f"aggregate(map_values({value}), 0, ({sum_}, {item}) -> {added})"
    return "0"


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
