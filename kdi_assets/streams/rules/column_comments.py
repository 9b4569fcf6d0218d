"""Comments and tags of the table's columns: those of the record's fields, by the schema or the document, which
expressions lose.

They are written when the table is created, and with a column that it gains. A commit that only changed comments would
make running drains plan again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kdi_assets.documents.model.message_format import Files
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.formats.comments import COMMENT, described, tags_of
from kdi_assets.streams.rules.records import stream_decoder
from kdi_assets.streams.rules.shape import elements_of
from kdi_assets.streams.rules.table.column_tree import DATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructField, StructType


def commented(columns: StructType, stream: Stream, spark: SparkSession) -> StructType:
    """The table's columns with the comments and tags of the record's fields, at every depth, and ours.

    A column that the document computes has the tags, but not the comment of the field that it replaces.
    """
    from pyspark.sql.types import StructType

    found = _commented(columns, _row(stream, spark), "", frozenset(path.lower() for path in stream.columns))
    found = _tagged(found, {path.lower(): tags for path, tags in stream.tags.items()}, "")
    ours = {DATE: "date of the row, UTC", stream.coordinates: "coordinates of the message"}
    return StructType([_described(f, ours.get(f.name, "")) for f in found.fields])


def _row(stream: Stream, spark: SparkSession) -> StructType:
    """The fields of a row before expressions change it."""
    decoder = stream_decoder(stream.of_file_rows if isinstance(stream.format, Files) else stream)
    elements = elements_of(decoder, spark)
    return elements.row_of(decoder.record, {})[0] if elements else decoder.record


def with_new_commented(rows: DataFrame, table: StructType, stream: Stream) -> DataFrame:
    """The rows; columns that the table does not have yet have their comments and tags."""
    from pyspark.sql import functions as F

    there = {f.name.lower() for f in table.fields}
    if all(f.name.lower() in there for f in rows.schema.fields):
        return rows
    found = commented(rows.schema, stream, rows.sparkSession)
    new = {f.name: f.metadata for f in found.fields if f.name.lower() not in there}
    columns = ((c, F.col(f"`{c}`")) for c in rows.columns)
    return rows.select(*(column.alias(c, metadata=new[c]) if c in new else column for c, column in columns))


def _commented(columns: DataType, record: DataType, path: str, computed: Collection[str]) -> Any:
    """A type with the comments and tags of the record's.

    Args:
        path: Of the struct with these fields, with a dot at its end; empty for the table itself.
    """
    from pyspark.sql import types as t

    match columns, record:
        case t.StructType(), t.StructType():
            fields = {f.name: f for f in record.fields}
            return t.StructType([_field(f, fields.get(f.name), path, computed) for f in columns.fields])
        case t.ArrayType(), t.ArrayType():
            inner = _commented(columns.elementType, record.elementType, path, computed)
            return t.ArrayType(inner, columns.containsNull)
        case t.MapType(), t.MapType():
            inner = _commented(columns.valueType, record.valueType, path, computed)
            return t.MapType(columns.keyType, inner, columns.valueContainsNull)
    return columns


def _field(column: StructField, field: StructField | None, path: str, computed: Collection[str]) -> StructField:
    from pyspark.sql.types import StructField

    if field is None:
        return column
    here, tags = f"{path}{column.name}", tags_of(field.metadata)
    if here.lower() in computed:
        return _described(column, "", tags)
    type_ = _commented(column.dataType, field.dataType, f"{here}.", computed)
    found = StructField(column.name, type_, column.nullable, column.metadata)
    return _described(found, field.metadata.get(COMMENT, ""), tags)


def _tagged(columns: StructType, tags: Mapping[str, Sequence[str]], path: str) -> StructType:
    """The columns with further tags by path, in lower case."""
    from pyspark.sql.types import StructField, StructType

    fields = []
    for f in columns.fields:
        here = f"{path}{f.name}".lower()
        type_ = _tagged(f.dataType, tags, f"{here}.") if isinstance(f.dataType, StructType) else f.dataType
        found = StructField(f.name, type_, f.nullable, f.metadata)
        fields.append(_described(found, "", tags.get(here, ())))
    return StructType(fields)


def _described(column: StructField, comment: str, tags: Collection[str] = ()) -> StructField:
    from pyspark.sql.types import StructField

    return StructField(column.name, column.dataType, column.nullable, described(column.metadata, comment, tags))
