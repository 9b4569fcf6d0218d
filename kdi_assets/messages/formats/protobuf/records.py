"""The types of a message's fields, as a tree made from descriptors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kdi_assets.messages.formats.protobuf.descriptors import DescriptorMistake

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

MOST_FIELDS = 10_000
HIGHEST_NUMBER = 1_000_000
"""Of a field: ptars finds columns by a list as long as the highest field number of a message."""
SCALARS = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "fixed64",
    7: "fixed32",
    8: "bool",
    9: "string",
    12: "bytes",
    13: "uint32",
    15: "sfixed32",
    16: "sfixed64",
    17: "sint32",
    18: "sint64",
}
"""Protobuf's type numbers; enumerations are 14, messages 11, groups 10."""
_GROUP, _MESSAGE, _ENUM = 10, 11, 14
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_DOCUMENTS = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar; ``wrapper``: full name of the message around it, e.g. ``google.protobuf.Int64Value``."""

    type: int
    wrapper: str = ""


@dataclass(frozen=True, slots=True)
class Enumeration:
    """Names of numbers; of several names for one number the first."""

    names: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Timestamp:
    """``google.protobuf.Timestamp``."""


@dataclass(frozen=True, slots=True)
class Duration:
    """``google.protobuf.Duration``."""


@dataclass(frozen=True, slots=True)
class JsonField:
    """``google.protobuf.Struct``, ``Value`` or ``ListValue``: any JSON."""

    full_name: str


@dataclass(frozen=True, slots=True)
class Empty:
    """A message without fields: present or absent."""


@dataclass(frozen=True, slots=True)
class Record:
    """A message.

    Attributes:
        syntax: Of the file with the message: ``proto2``, ``proto3`` or ``editions``.
        left_out: Path of a field inside that no column can hold, to the reason; it is not among the fields. Only of the
            outermost message.
    """

    fields: tuple[Field, ...]
    syntax: str = field(default="proto3", compare=False)
    left_out: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Repeated:
    """A repeated field."""

    of: FieldType


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map."""

    key: Scalar
    value: FieldType


FieldType = Scalar | Enumeration | Timestamp | Duration | JsonField | Empty | Record | Repeated | MapOf


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message.

    Attributes:
        can_be_absent: Whether absence differs from the default value, so that it becomes null.
        oneof: The same number for all fields of a ``oneof``, different for others of the message; -1 outside of one.
    """

    name: str
    number: int
    type: FieldType
    can_be_absent: bool
    required: bool = False
    oneof: int = field(default=-1, compare=False)


def record_of(message: Descriptor) -> Record:
    """The tree of a message; raises ``DescriptorMistake`` if no table can hold any of it."""
    reader = _MessageReader()
    try:
        record = reader.record(message, "", ())
    except _LeftOut as reason:
        raise DescriptorMistake(f"{message.full_name} {reason}") from reason
    if isinstance(record, Record):
        return Record(record.fields, record.syntax, reader.left_out)
    raise DescriptorMistake(f"{message.full_name} has no fields", "a message that has some")


class _LeftOut(Exception):
    """No column can hold a field, for this reason."""


class _MessageReader:
    """Reads one message and counts its fields; a nested type counts at each of its places."""

    def __init__(self) -> None:
        self._fields = 0
        self._syntaxes: dict[str, str] = {}
        self.left_out: dict[str, str] = {}

    def record(self, message: Descriptor, path: str, above: tuple[str, ...]) -> Record | Empty:
        """The message at a path.

        Args:
            above: The full names of the messages around it.
        """
        if message.full_name in above:
            way = " → ".join((*above[above.index(message.full_name) :], message.full_name))
            raise _LeftOut(f"contains itself ({way}), and a table has a fixed depth")
        if message.GetOptions().message_set_wire_format:
            raise _LeftOut(f"is a message set ({message.full_name}), which is not supported")
        if not message.fields:
            return Empty()
        fields: dict[str, Field] = {}
        for field_ in message.fields:
            here = f"{path}.{field_.name}" if path else field_.name
            try:
                if field_.name.lower() in fields:
                    raise _LeftOut(f"differs from {fields[field_.name.lower()].name} in case alone, and columns do not")
                fields[field_.name.lower()] = self._field(field_, here, (*above, message.full_name))
            except _LeftOut as reason:
                self.left_out[here] = str(reason)
        if not fields:
            raise _LeftOut("has no fields that a column could have")
        return Record(tuple(fields.values()), self._syntax(message.file))

    def _syntax(self, file: FileDescriptor) -> str:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        if file.name not in self._syntaxes:
            self._syntaxes[file.name] = FileDescriptorProto.FromString(file.serialized_pb).syntax or "proto2"
        return self._syntaxes[file.name]

    def _field(self, field: FieldDescriptor, path: str, above: tuple[str, ...]) -> Field:
        self._fields += 1
        if self._fields > MOST_FIELDS:
            raise DescriptorMistake(f"{above[0]} has more than {MOST_FIELDS:,} fields", "a smaller message")
        if field.number > HIGHEST_NUMBER:
            raise _LeftOut(f"has number {field.number}, larger than {HIGHEST_NUMBER:,}")
        type_ = self._type(field, path, above)
        # In a list, and as the value of a map, a message is never absent.
        presence, required = bool(field.has_presence), bool(field.is_required)
        return Field(field.name, field.number, type_, presence, required, _oneof(field))

    def _type(self, field: FieldDescriptor, path: str, above: tuple[str, ...]) -> FieldType:
        if not field.is_repeated:
            return self._one(field, path, above)
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            key = Scalar(entry.fields_by_name["key"].type)
            return MapOf(key, self._one(entry.fields_by_name["value"], f"{path}[]", above))
        return Repeated(self._one(field, f"{path}[]", above))

    def _one(self, field: FieldDescriptor, path: str, above: tuple[str, ...]) -> FieldType:
        if field.type == _GROUP:
            raise _LeftOut("is a group, which is not supported")
        if field.type == _ENUM:
            names: dict[int, str] = {}
            for value in field.enum_type.values:
                names.setdefault(value.number, value.name)
            return Enumeration(tuple(names.items()))
        if field.type != _MESSAGE:
            return Scalar(field.type)
        return self._message(field.message_type, path, above)

    def _message(self, message: Descriptor, path: str, above: tuple[str, ...]) -> FieldType:
        match message.full_name:
            case "google.protobuf.Timestamp":
                return Timestamp()
            case "google.protobuf.Duration":
                return Duration()
            case name if name in _DOCUMENTS:
                return JsonField(name)
            case name if name in _WRAPPERS:
                return Scalar(message.fields_by_name["value"].type, wrapper=name)
        return self.record(message, path, above)


def _oneof(field: FieldDescriptor) -> int:
    """As ``Field.oneof``; an ``optional`` field of the third syntax has a oneof of its own, which is none."""
    oneof = field.containing_oneof
    return oneof.index if oneof is not None and len(oneof.fields) > 1 else -1


def faults(record: Record) -> list[tuple[str, str]]:
    """Reasons and paths of fields that can make a parsed message a dead letter, without duplicates."""
    return list(dict.fromkeys(_faults(record, "")))


def _faults(type_: FieldType, path: str) -> Iterator[tuple[str, str]]:
    match type_:
        case Scalar(number) if SCALARS[number] == "string":
            yield "invalid_utf8", path
        case Timestamp() | Duration():
            yield "out_of_range", path
        case JsonField():
            yield "invalid_utf8", path
            yield "out_of_range", path
        case Record(fields):
            for field in fields:
                here = below(path, field)
                if field.required:
                    yield "missing_field", here
                yield from _faults(field.type, here)
        case Repeated(of):
            yield from _faults(of, f"{path}[]")
        case MapOf(key, value):
            yield from _faults(key, f"{path}[]")
            yield from _faults(value, f"{path}[]")


def has_maps(type_: FieldType) -> bool:
    """Whether it contains a map."""
    match type_:
        case Record(fields):
            return any(has_maps(field.type) for field in fields)
        case Repeated(of):
            return has_maps(of)
    return isinstance(type_, MapOf)


def below(path: str, field: Field) -> str:
    """The path of a field in the message at a path."""
    return f"{path}.{field.name}" if path else field.name
