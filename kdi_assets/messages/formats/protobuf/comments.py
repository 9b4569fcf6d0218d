"""The comments of a .proto file's fields, as comments of the record's fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kdi_assets.messages.formats.comments import described

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from pyspark.sql.types import DataType, StructType


def with_protobuf_comments(record: StructType, message: Descriptor, comments: Mapping[str, str]) -> StructType:
    """The record of a message, with the comments of its fields.

    Args:
        comments: By the full names of fields.
    """
    from pyspark.sql.types import StructField, StructType

    fields = message.fields_by_name
    return StructType(
        [
            StructField(
                f.name,
                _protobuf_type(f.dataType, fields[f.name].message_type, comments),
                f.nullable,
                described(f.metadata, comments.get(fields[f.name].full_name)),
            )
            for f in record.fields
        ]
    )


def _protobuf_type(declared: DataType, message: Descriptor | None, comments: Mapping[str, str]) -> DataType:
    from pyspark.sql.types import ArrayType, MapType, StructType

    match declared:
        case StructType() if message is not None:
            return with_protobuf_comments(declared, message, comments)
        case ArrayType():
            return ArrayType(_protobuf_type(declared.elementType, message, comments), declared.containsNull)
        case MapType() if message is not None:  # the message of an entry
            value = _protobuf_type(declared.valueType, message.fields_by_name["value"].message_type, comments)
            return MapType(declared.keyType, value, declared.valueContainsNull)
    return declared


def without_comments(type_: Any) -> Any:
    """A type without metadata: Arrow's types have none, and Spark compares those of a function's results with them."""
    from pyspark.sql import types as t

    match type_:
        case t.StructType():
            fields = [t.StructField(f.name, without_comments(f.dataType), f.nullable) for f in type_.fields]
            return t.StructType(fields)
        case t.ArrayType():
            return t.ArrayType(without_comments(type_.elementType), type_.containsNull)
        case t.MapType():
            return t.MapType(type_.keyType, without_comments(type_.valueType), type_.valueContainsNull)
    return type_
