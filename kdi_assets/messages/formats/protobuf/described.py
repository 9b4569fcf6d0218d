"""The descriptor that ptars reads messages by: the same bytes, in types that ptars reads exactly.

ptars does not read Protobuf's own types exactly, and an invalid time ends the process. So a time becomes a pair of
numbers, an enumeration a number, JSON and messages without fields bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdi_assets.messages.formats.protobuf.records import (
    Duration,
    Empty,
    Enumeration,
    Field,
    FieldType,
    JsonField,
    MapOf,
    Record,
    Repeated,
    Scalar,
    Timestamp,
)

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

# Protobuf's numbers of its types.
_INT64, _INT32, _MESSAGE, _BYTES = 3, 5, 11, 12
_PAIR = Record((Field("seconds", 1, Scalar(_INT64), False), Field("nanos", 2, Scalar(_INT32), False)))


def described(record: Record) -> Descriptor:
    """The message of a record, for ptars."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    wrappers = _wrappers()
    file = FileDescriptorProto(name="kdi.proto", package="kdi", syntax="proto3", dependency=[wrappers.name])
    full_name = _describe(record, file)
    pool = DescriptorPool()
    for one in (wrappers, file):
        pool.AddSerializedFile(one.SerializeToString())
    return pool.FindMessageTypeByName(full_name.removeprefix("."))


def field_name(place: int) -> str:
    """The name there of the field at this place of its record."""
    return f"f{place}"


def _describe(record: Record, file: FileDescriptorProto) -> str:
    """Add a message for a record; returns its full name."""
    name = f"M{len(file.message_type)}"
    message = file.message_type.add(name=name)
    for place, field in enumerate(record.fields):
        described = message.field.add(name=field_name(place), number=field.number)
        match field.type:
            case Repeated(of):
                described.label = described.LABEL_REPEATED
                _type(of, described, file)
            case MapOf(key, value):
                described.label = described.LABEL_REPEATED
                described.type = _MESSAGE
                described.type_name = f".kdi.{name}.{_entry(message, place, key, value, file)}"
            case type_:
                described.label = described.LABEL_OPTIONAL
                _type(type_, described, file)
                if field.can_be_absent and described.type != _MESSAGE:
                    described.proto3_optional = True
                    described.oneof_index = len(message.oneof_decl)
                    message.oneof_decl.add(name=f"_{field_name(place)}")
    return f".kdi.{name}"


def _entry(message: DescriptorProto, place: int, key: Scalar, value: FieldType, file: FileDescriptorProto) -> str:
    entry = message.nested_type.add(name=f"F{place}Entry")
    entry.options.map_entry = True
    for number, (name, type_) in enumerate((("key", key), ("value", value)), 1):
        part = entry.field.add(name=name, number=number, label=1)
        _type(type_, part, file)
    return str(entry.name)


def _type(type_: FieldType, described: FieldDescriptorProto, file: FileDescriptorProto) -> None:
    match type_:
        case Scalar(number, ""):
            described.type = number
        case Scalar(_, wrapper):
            described.type, described.type_name = _MESSAGE, f".{wrapper}"
        case Enumeration():
            described.type = _INT32
        case JsonField() | Empty():
            described.type = _BYTES
        case Timestamp() | Duration():
            described.type, described.type_name = _MESSAGE, _describe(_PAIR, file)
        case Record():
            described.type, described.type_name = _MESSAGE, _describe(type_, file)


def _wrappers() -> FileDescriptorProto:
    from google.protobuf import wrappers_pb2
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto()
    wrappers_pb2.DESCRIPTOR.CopyToProto(file)
    return file
