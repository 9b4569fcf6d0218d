"""Which fields JSON messages have and the record has not, told by their names alone wherever that can be.

Most messages with unknown fields have them at the top of the document: the names there, less those of the record, are
what is unknown, once it is sure that nothing lies below and none of them is null. Where it is not, the message is
walked (``json_unknown``), which costs more than to decode it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kdi_assets.formats.catalyst import occurrences, parsed_json
from kdi_assets.formats.decoder import PATHS
from kdi_assets.formats.json_names import TEXT, UNCOUNTED, fields_with_names, names_left, values_of, values_within
from kdi_assets.formats.json_unknown import WHOLE, walked
from kdi_assets.formats.rules import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_LEFT, _NULLS, _TOLD = "_kdi_left", "_kdi_nulls", "_kdi_told"
_STEP = re.compile(r"[\w-]+")


def with_paths(messages: DataFrame, record: StructType, *, where: str) -> DataFrame:
    """Add the paths of the fields that the record has not; the arguments are those of ``json_unknown.with_unknown``.

    Returns:
        ``messages`` with ``_kdi_unknown_paths``, as ``kdi_assets.formats.decoder`` describes it.
    """
    from pyspark.sql import functions as F

    spark = messages.sparkSession
    left = F.when(F.expr(where), names_left(spark, record))
    nulls = F.when(F.expr(f"{_LEFT} <> 0"), occurrences(spark, TEXT, "null"))
    countable = f"{_LEFT} > 0 OR {_LEFT} = {UNCOUNTED}"
    asked = F.when(F.expr(f"{_LEFT} <> 0 AND {_TOLD} IS NULL"), parsed_json(spark, TEXT))
    by_walk = f"sort_array(array_distinct({walked(record)}.path))"
    return (
        messages.withColumn(_LEFT, left)
        .withColumn(_NULLS, nulls)
        .withColumn(_TOLD, F.expr(f"CASE WHEN {countable} THEN sort_array({_names(record)}) END"))
        .withColumn(WHOLE, asked)
        .withColumn(PATHS, F.expr(f"CASE WHEN size({_TOLD}) > 0 THEN {_TOLD} WHEN {_TOLD} IS NULL THEN {by_walk} END"))
        .drop(WHOLE, _LEFT, _NULLS, _TOLD)
    )


def _names(record: StructType) -> str:
    """Spark SQL of the unknown names at the top; null where something may be unknown below, or they are not sure."""
    known = f"array({', '.join(literal(f.name) for f in record.fields)})"
    # All that was left over are these names and nulls, so that nothing is left below.
    counted = f"{_LEFT} = size(others) + {_NULLS}"
    # As many nulls as fields that are there and have no value: no other one is null.
    sure = f"({_NULLS} = 0 OR {_NULLS} = declared - {values_of(record)})"
    once = "declared + size(others) = size(names)"
    rest = _let(
        "declared",
        f"size(array_intersect(names, {known}))",
        f"CASE WHEN {counted} AND {sure} THEN others WHEN {once} AND {_nothing_below(record)} "
        f"THEN CASE WHEN {sure} THEN others ELSE {_not_null(known)} END END",
    )
    told = f"CASE WHEN {_NULLS} = 0 AND {counted} THEN others ELSE {rest} END"
    return _let("names", f"json_object_keys({TEXT})", _let("others", f"array_except(names, {known})", told))


def _nothing_below(record: StructType) -> str:
    """Spark SQL: whether the texts of the fields in which something may have a name leave no name over, either."""
    names = [f.name for f in fields_with_names(record)]
    if not names:
        return "true"
    if not all(_STEP.fullmatch(name) for name in names):
        return "false"
    # They come without blanks.
    texts = ", ".join(f"get_json_object({TEXT}, {literal(f'$.{name}')})" for name in names)
    named, nulls = _occurrences("below", '":'), _occurrences("below", '":null')
    return _let("below", f"concat_ws(' ', {texts})", f"{named} - {nulls} = {values_within(record)}")


def _not_null(known: str) -> str:
    fields = f"map_filter(from_json({TEXT}, 'map<string, string>'), (k, v) -> v IS NOT NULL)"
    return f"coalesce(array_except(map_keys({fields}), {known}), others)"


def _occurrences(text: str, part: str) -> str:
    return f"(octet_length({text}) - octet_length(replace({text}, {literal(part)}, ''))) div {len(part)}"


def _let(variable: str, value: str, then: str) -> str:
    """Spark SQL with a value that has a name. A column each would be planned and compiled in every drain."""
    return f"get(transform(array({value}), {variable} -> {then}), 0)"
