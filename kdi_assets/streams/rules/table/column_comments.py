"""Comments of the table's columns: those of the record's fields, by the schema or the document, which expressions lose.

They are written when the table is created, and with a column that it gains. A commit that only changed comments would
make running drains plan again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from kdi_assets.documents.model.message_format import Files
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.formats.comments import COMMENT
from kdi_assets.streams.rules.records import stream_decoder
from kdi_assets.streams.rules.table.column_tree import DATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField, StructType


def commented(columns: StructType, stream: Stream) -> StructType:
    """The table's columns with the comments of the record's fields, at every depth, and ours.

    A column that the document computes has no comment of the field that it replaces.
    """
    from pyspark.sql.types import StructType

    record = stream_decoder(stream.of_file_rows if isinstance(stream.format, Files) else stream).record
    found = _commented(columns, record, "", frozenset(path.lower() for path in stream.columns))
    ours = {DATE: "date of the row, UTC", stream.coordinates: "coordinates of the message"}
    return StructType([_with_comment(f, ours.get(f.name, "")) for f in found.fields])


def with_new_commented(rows: DataFrame, table: StructType, stream: Stream) -> DataFrame:
    """The rows; columns that the table does not have yet have their comments."""
    from pyspark.sql import functions as F

    there = {f.name.lower() for f in table.fields}
    if all(f.name.lower() in there for f in rows.schema.fields):
        return rows
    new = {f.name: f.metadata for f in commented(rows.schema, stream).fields if f.name.lower() not in there}
    columns = ((c, F.col(f"`{c}`")) for c in rows.columns)
    return rows.select(*(column.alias(c, metadata=new[c]) if c in new else column for c, column in columns))


def _commented(columns: DataType, record: DataType, path: str, computed: Collection[str]) -> Any:
    """A type with the comments of the record's.

    Args:
        path: Of the struct with these fields, with a dot at its end; empty for the table itself.
    """
    from pyspark.sql import types as t

    match columns, record:
        case t.StructType(), t.StructType():
            fields = {f.name: f for f in record.fields if f"{path}{f.name}".lower() not in computed}
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
    type_ = _commented(column.dataType, field.dataType, f"{path}{column.name}.", computed)
    return _with_comment(StructField(column.name, type_, column.nullable), field.metadata.get(COMMENT, ""))


def _with_comment(column: StructField, comment: str) -> StructField:
    from pyspark.sql.types import StructField

    metadata = {COMMENT: comment} if comment else column.metadata
    return StructField(column.name, column.dataType, column.nullable, metadata)
