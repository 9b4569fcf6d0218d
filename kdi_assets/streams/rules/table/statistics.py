"""Statistics: the columns for which a new table keeps the least and the greatest value of each file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kdi_assets.documents.model.message_format import Csv, Files, Json, JsonRegistry
from kdi_assets.documents.model.stream import Stream
from kdi_assets.streams.rules.records import overlap
from kdi_assets.streams.rules.table.column_tree import DATE

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_MOST_COLUMNS = 32
_MOST_DIGITS = 6
"""Of a decimal's fraction. Spark writes a smaller number as 1E-7, and delta-rs reads no number there."""
_FIELD = re.compile(r"[\w.`]+")


def columns_with_statistics(stream: Stream, schema: StructType) -> list[tuple[str, ...]]:
    """The paths of numbers, dates and times outside arrays and maps, those of the coordinates first.

    Without those whose statistics other readers take for other numbers: they would pass over files with rows that a
    filter asks for.
    """
    found = [path for path, type_ in _leaves(schema) if path != (DATE,) and _is_ordered(path, type_, stream)]
    coordinates = tuple(stream.coordinates.split("."))
    return sorted(found, key=lambda path: path[: len(coordinates)] != coordinates)[:_MOST_COLUMNS]


def _leaves(record: StructType, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], DataType]]:
    from pyspark.sql.types import StructType

    for field in record.fields:
        here = (*path, field.name)
        if isinstance(field.dataType, StructType):
            yield from _leaves(field.dataType, here)
        else:
            yield here, field.dataType


def _is_ordered(path: tuple[str, ...], type_: DataType, stream: Stream) -> bool:
    from pyspark.sql import types as t

    match type_:
        case t.DecimalType():
            return type_.scale <= _MOST_DIGITS
        case t.DoubleType() | t.FloatType():
            return not _may_be_nan(".".join(path), stream)
    return isinstance(type_, t.NumericType | t.DateType | t.TimestampType | t.TimestampNTZType)


def _may_be_nan(path: str, stream: Stream) -> bool:
    """Whether a binary fraction may be NaN, which Spark takes for the greatest number, and Delta writes as a text."""
    format_ = stream.format.of if isinstance(stream.format, Files) else stream.format
    if not isinstance(format_, Json | JsonRegistry | Csv):
        return True
    made = list(stream.columns)
    if stream.explode and not _FIELD.fullmatch(stream.explode.sql.strip()):
        made.append(stream.explode.name)
    return any(overlap(path, column) for column in made)
