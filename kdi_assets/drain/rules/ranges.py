"""Dates and timestamps outside of the years 1 to 9999, whatever made them: Spark writes them, and most readers fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kdi_assets.drain.rules.records import result_column, value_of
from kdi_assets.formats.decoder import RECORD
from kdi_assets.formats.field_uses import DROPPED
from kdi_assets.formats.rules import Rule, name
from kdi_assets.formats.stream_decoder import StreamDecoder
from kdi_assets.stream.message_format import Files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

REASON = "out_of_range"
_BOUNDS = {
    "date": "DATE'0001-01-01' AND DATE'9999-12-31'",
    "timestamp": "TIMESTAMP'0001-01-01 00:00:00Z' AND TIMESTAMP'9999-12-31 23:59:59.999999Z'",
    "timestamp_ntz": "TIMESTAMP_NTZ'0001-01-01 00:00:00' AND TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'",
}


def range_rules(evaluated: DataFrame, decoder: StreamDecoder) -> list[Rule]:
    """The rules for the values that the table gets, of a decoded message.

    Args:
        evaluated: The result of ``evaluate``.
    """
    if isinstance(decoder.stream.format, Files):
        return []  # the rows of the files are judged, as messages of their own
    expressions = [f"columns.{path}" for path in decoder.stream.columns]
    schema = evaluated.schema if expressions else None
    found = [(f, value_of(f), schema[result_column(f)].dataType["v"].dataType) for f in expressions if schema]  # type: ignore[index]
    if not decoder.payload_decoder.bounds_times:
        dropped = {steps for steps, use in decoder.uses.uses.items() if use.how == DROPPED}
        for f in decoder.record.fields:
            if decoder.uses.message_steps((f.name,)) not in dropped:
                found.append((f.name, f"{RECORD}.{name(f.name)}", f.dataType))
    return [Rule(REASON, outside, path) for path, value, type_ in found if (outside := _outside(value, type_))]


def _outside(value: str, type_: DataType, depth: int = 0) -> str:
    """Spark SQL: whether a time in a value is outside; empty if the type has none."""
    return " OR ".join(_parts(value, type_, depth))


def _parts(value: str, type_: DataType, depth: int) -> Iterator[str]:
    from pyspark.sql import types as t

    item = f"_kdi_t{depth}"
    match type_:
        case t.StructType():
            for field in type_.fields:
                yield from _parts(f"{value}.{name(field.name)}", field.dataType, depth)
        case t.ArrayType():
            if inner := _outside(item, type_.elementType, depth + 1):
                yield f"exists({value}, {item} -> {inner})"
        case t.MapType():
            for part, of in (("map_keys", type_.keyType), ("map_values", type_.valueType)):
                if inner := _outside(item, of, depth + 1):
                    yield f"exists({part}({value}), {item} -> {inner})"
        case _ if bounds := _BOUNDS.get(type_.typeName()):
            yield f"{value} NOT BETWEEN {bounds}"
