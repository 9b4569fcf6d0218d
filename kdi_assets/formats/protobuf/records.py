"""What the fields of a message are to a table: a tree, made from descriptors and free of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kdi_assets.formats.protobuf.descriptors import DescriptorMistake

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

MOST_FIELDS = 10_000
HIGHEST_NUMBER = 1_000_000
"""Of a field: the columns are found by a list that is as long as the highest number of a message."""
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
"""Protobuf's numbers of its types; enumerations are 14, messages 11, groups 10."""
_GROUP, _MESSAGE, _ENUM = 10, 11, 14
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_DOCUMENTS = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value of one of Protobuf's types; ``wrapper``: the full name of the message that it is wrapped in."""

    type: int
    wrapper: str = ""


@dataclass(frozen=True, slots=True)
class Enumeration:
    """A name for a number; of several names the first."""

    names: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """``google.protobuf.Timestamp``."""


@dataclass(frozen=True, slots=True)
class Span:
    """``google.protobuf.Duration``."""


@dataclass(frozen=True, slots=True)
class Document:
    """``google.protobuf.Struct`` and its kin: what JSON holds."""

    full_name: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A message without fields: it is there, or not."""


@dataclass(frozen=True, slots=True)
class Record:
    """A message."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Many:
    """A repeated field."""

    of: What


@dataclass(frozen=True, slots=True)
class ByKey:
    """A map."""

    key: Scalar
    value: What


What = Scalar | Enumeration | Moment | Span | Document | Mark | Record | Many | ByKey


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message.

    Attributes:
        can_be_absent: Whether a message tells its absence from its default: then it is null.
    """

    name: str
    number: int
    what: What
    can_be_absent: bool
    required: bool = False


def record_of(message: Descriptor) -> Record:
    """The tree of a message.

    Raises:
        DescriptorMistake: No table can hold it.
    """
    record = _Reader().record(message, ())
    if isinstance(record, Record):
        return record
    raise DescriptorMistake(f"{message.full_name} has no fields", "a message that has some")


class _Reader:
    """One reading of a message: a message in it may stand in many places, and counts in each."""

    def __init__(self) -> None:
        self._fields = 0

    def record(self, message: Descriptor, above: tuple[str, ...]) -> Record | Mark:
        if message.full_name in above:
            way = " → ".join((*above[above.index(message.full_name) :], message.full_name))
            said = f"{message.full_name} holds itself ({way})"
            raise DescriptorMistake(said, "a column is as deep as it is declared")
        if message.GetOptions().message_set_wire_format:
            raise DescriptorMistake(f"{message.full_name} is a message set, which is not supported")
        fields = tuple(self._field(field, (*above, message.full_name)) for field in message.fields)
        names = [field.name.lower() for field in fields]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            message_ = f"{message.full_name} has fields that differ in case alone: {', '.join(twice)}"
            raise DescriptorMistake(message_, "names of columns do not tell small letters from capitals")
        return Record(fields) if fields else Mark()

    def _field(self, field: FieldDescriptor, above: tuple[str, ...]) -> Field:
        self._fields += 1
        if self._fields > MOST_FIELDS:
            raise DescriptorMistake(f"{above[0]} has more than {MOST_FIELDS:,} fields", "a smaller message")
        if field.number > HIGHEST_NUMBER:
            message = f"{field.full_name} has number {field.number}, which is beyond {HIGHEST_NUMBER:,}"
            raise DescriptorMistake(message, "a smaller number")
        what = self._what(field, above)
        # In a list, and as a map's value, a message is always there.
        return Field(field.name, field.number, what, bool(field.has_presence), bool(field.is_required))

    def _what(self, field: FieldDescriptor, above: tuple[str, ...]) -> What:
        if not field.is_repeated:
            return self._one(field, above)
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            key = Scalar(entry.fields_by_name["key"].type)
            return ByKey(key, self._one(entry.fields_by_name["value"], above))
        return Many(self._one(field, above))

    def _one(self, field: FieldDescriptor, above: tuple[str, ...]) -> What:
        if field.type == _GROUP:
            raise DescriptorMistake(f"{field.full_name} is a group, which is not supported", "a message instead")
        if field.type == _ENUM:
            names: dict[int, str] = {}
            for value in field.enum_type.values:
                names.setdefault(value.number, value.name)
            return Enumeration(tuple(names.items()))
        if field.type != _MESSAGE:
            return Scalar(field.type)
        return self._message(field.message_type, above)

    def _message(self, message: Descriptor, above: tuple[str, ...]) -> What:
        match message.full_name:
            case "google.protobuf.Timestamp":
                return Moment()
            case "google.protobuf.Duration":
                return Span()
            case name if name in _DOCUMENTS:
                return Document(name)
            case name if name in _WRAPPERS:
                return Scalar(message.fields_by_name["value"].type, wrapper=name)
        return self.record(message, above)


def faults(record: Record) -> list[tuple[str, str]]:
    """What may be wrong with a message that can be parsed: reason and path of a field, each once."""
    return list(dict.fromkeys(_faults(record, "")))


def _faults(what: What, path: str) -> Iterator[tuple[str, str]]:
    match what:
        case Scalar(type_) if SCALARS[type_] == "string":
            yield "invalid_utf8", path
        case Moment() | Span():
            yield "out_of_range", path
        case Document():
            yield "invalid_utf8", path
            yield "out_of_range", path
        case Record(fields):
            for field in fields:
                here = below(path, field)
                if field.required:
                    yield "missing_field", here
                yield from _faults(field.what, here)
        case Many(of):
            yield from _faults(of, f"{path}[]")
        case ByKey(key, value):
            yield from _faults(key, f"{path}[]")
            yield from _faults(value, f"{path}[]")


def has_maps(what: What) -> bool:
    """Whether there is a map in it."""
    match what:
        case Record(fields):
            return any(has_maps(field.what) for field in fields)
        case Many(of):
            return has_maps(of)
    return isinstance(what, ByKey)


def below(path: str, field: Field) -> str:
    """The path of a field of what is at a path."""
    return f"{path}.{field.name}" if path else field.name
