"""The comments and tags of a .proto file's fields, as comments and tags of the record's fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdi_assets.messages.formats.comments import described, with_tags_of_whole

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from pyspark.sql.types import DataType, StructType

    from kdi_assets.messages.formats.protobuf.descriptors import Descriptors


def with_protobuf_comments(record: StructType, message: Descriptor, of: Descriptors) -> StructType:
    """The record of a message, with the comments and tags of its fields; tags of the message are those of each.

    Args:
        of: The descriptors, which have them by the full names of fields.
    """
    return with_tags_of_whole(_message(record, message, of), of.tags.get(message.full_name, ()))


def _message(record: StructType, message: Descriptor, of: Descriptors) -> StructType:
    from pyspark.sql.types import StructField, StructType

    fields = message.fields_by_name
    return StructType(
        [
            StructField(
                f.name,
                _protobuf_type(f.dataType, fields[f.name].message_type, of),
                f.nullable,
                described(f.metadata, of.comments.get(full := fields[f.name].full_name), of.tags.get(full, ())),
            )
            for f in record.fields
        ]
    )


def _protobuf_type(declared: DataType, message: Descriptor | None, of: Descriptors) -> DataType:
    from pyspark.sql.types import ArrayType, MapType, StructType

    match declared:
        case StructType() if message is not None:
            return _message(declared, message, of)
        case ArrayType():
            return ArrayType(_protobuf_type(declared.elementType, message, of), declared.containsNull)
        case MapType() if message is not None:  # the message of an entry
            value = _protobuf_type(declared.valueType, message.fields_by_name["value"].message_type, of)
            return MapType(declared.keyType, value, declared.valueContainsNull)
    return declared
