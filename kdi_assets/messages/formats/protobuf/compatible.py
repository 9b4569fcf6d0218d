"""Differences between schemas of a message, and between a message and the record: compatibility, unknown fields.

Source: Protocol Buffers, "Updating A Message Type".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kdi_assets.messages.formats.protobuf.descriptors import Descriptors
from kdi_assets.messages.formats.protobuf.records import (
    SCALARS,
    Empty,
    Enumeration,
    FieldType,
    MapOf,
    Record,
    Repeated,
    Scalar,
    below,
    record_of,
)

NUMBER = "#"
"""In a path, before the number of a field without a name."""

# Types that a number can be read as without a change: never a narrower type or another encoding.
_WIDER = {
    "bool": {"int32", "int64", "uint32", "uint64"},
    "int32": {"int64"},
    "uint32": {"uint64", "int64"},
    "sint32": {"sint64"},
    "string": {"bytes"},
    "bytes": {"string"},  # a text that is no UTF-8 becomes a dead letter
}


def becomes(writer: Descriptors, message: str, reader: Record) -> bool:
    """Whether the writer's message becomes the record: fields with the same number must have compatible types.

    True also if the writer has no such message. A field that only one of them has does not matter.

    Raises:
        DescriptorMistake: No table can hold the writer's message, so it cannot be compared.
    """
    if message not in writer.messages():
        return True  # its payloads are other messages, and each becomes a dead letter for that
    return _is_readable(record_of(writer.message(message)), reader)


def unknown_paths(writer: Descriptors, message: str, reader: Record) -> dict[str, str]:
    """The fields of the writer's message that the record lacks; none if the writer has no such message.

    Returns:
        Path with the record's names and the field's number, e.g. ``place.#7``, to path with the writer's names.

    Raises:
        DescriptorMistake: As ``becomes``.
    """
    known = message in writer.messages()
    return dict(_unknown(record_of(writer.message(message)), reader, "", "")) if known else {}


def left_out_paths(writer: Descriptors, message: str) -> list[str]:
    """The fields of the writer's message that no column can hold; none if the writer has no such message."""
    return list(record_of(writer.message(message)).left_out) if message in writer.messages() else []


def _unknown(written: FieldType, read: FieldType, here: str, path: str) -> Iterator[tuple[str, str]]:
    match written, read:
        case Record(), Record() | Empty():
            known = {field.number: field for field in read.fields} if isinstance(read, Record) else {}
            for field in written.fields:
                inner = below(path, field)
                if (ours := known.get(field.number)) is None:
                    yield f"{here}.{NUMBER}{field.number}" if here else f"{NUMBER}{field.number}", inner
                else:
                    yield from _unknown(field.type, ours.type, below(here, ours), inner)
        case Repeated(of), Repeated(element):
            yield from _unknown(of, element, f"{here}[]", f"{path}[]")
        case MapOf(_, value), MapOf(_, other_value):
            yield from _unknown(value, other_value, f"{here}[]", f"{path}[]")
        case _, Repeated(element):
            yield from _unknown(written, element, f"{here}[]", path)


def _is_readable(written: FieldType, read: FieldType) -> bool:
    match written, read:
        case Record(), Record():
            by_number = {field.number: field.type for field in read.fields}
            return all(_is_readable(f.type, by_number[f.number]) for f in written.fields if f.number in by_number)
        case (Empty(), Record()) | (Record(), Empty()):
            return True
        case Repeated(of), Repeated(element):
            return _is_readable(of, element)
        case MapOf(key, value), MapOf(other_key, other_value):
            return _is_readable(key, other_key) and _is_readable(value, other_value)
        case Scalar(type_), Scalar(other):
            return written == read or (
                written.wrapper == read.wrapper == "" and SCALARS[other] in _WIDER.get(SCALARS[type_], ())
            )
        case Enumeration(), Enumeration():
            return True  # a number without a name is its own
        case (Enumeration(), Scalar(type_, "")) | (Scalar(type_, ""), Enumeration()):
            return SCALARS[type_] == "int32"
        case written_, Repeated(element) if not isinstance(written_, Repeated | MapOf):
            return _is_readable(written_, element)
    return written == read


MOST_PATHS = 100
"""Unknown fields of one message that are reported; more of them are data, not fields."""


@dataclass(frozen=True, slots=True)
class _Writer:
    """A writer's schema: the class of its message, and the fields that it names and the record lacks."""

    message: type[Any]
    named: Collection[str]


class UnknownNumbers:
    """Finds unknown fields in messages of one type.

    Args:
        message: The class that parses them.
        writers: As in ``Payloads``. A field that the message's own schema names is reported from that schema, not here.
    """

    def __init__(self, message: type[Any], record: Record, writers: Mapping[int, bytes] | None) -> None:
        from google.protobuf.message import DecodeError
        from google.protobuf.unknown_fields import UnknownFieldSet

        self._message, self._record = message, record
        self._by_id = writers or {}
        self._writers: dict[int, _Writer] = {}
        self._whole, self._broken, self._set = message.SerializePartialToString, DecodeError, UnknownFieldSet

    def of(self, body: bytes, known: bytes, schema_id: int | None) -> list[str]:
        """Paths of the unknown fields, e.g. ``items[].#7``.

        Args:
            body: A message that parses.
            known: The message as Protobuf writes it without unknown fields.
            schema_id: The writer's; ``None`` without a registry.
        """
        parsed = self._message.FromString(body)
        unknown_bytes = len(self._whole(parsed)) - len(known)
        if not unknown_bytes:
            return []  # the fields are only in another order, or longer than necessary
        writer = None if schema_id is None else self._writer(schema_id)
        if writer is not None and writer.named and not self._has_unknown(body, writer):
            return []
        search = _Search(self._set, unknown_bytes)
        search.look(parsed, "")
        named = writer.named if writer is not None else ()
        return [path for path in search.found if path not in named][:MOST_PATHS]

    def _writer(self, schema_id: int) -> _Writer:
        if schema_id not in self._writers:
            descriptors, name = Descriptors(self._by_id[schema_id]), self._message.DESCRIPTOR.full_name
            named = unknown_paths(descriptors, name, self._record)
            self._writers[schema_id] = _Writer(descriptors.checking(name), named)
        return self._writers[schema_id]

    def _has_unknown(self, body: bytes, writer: _Writer) -> bool:
        """Whether the message has fields that its own schema lacks."""
        try:
            parsed = writer.message.FromString(body)
        except self._broken:
            return True  # it does not conform to its own schema, so all unknown fields are reported
        whole = len(parsed.SerializePartialToString())
        parsed.DiscardUnknownFields()
        return len(parsed.SerializePartialToString()) != whole


class _Search:
    """A search in one message; it ends when it has found all unknown bytes, and most of them are at the top."""

    def __init__(self, unknown: Callable[[Any], Any], unknown_bytes: int) -> None:
        self.found: dict[str, None] = {}
        self._unknown, self._left = unknown, unknown_bytes

    def look(self, message: Any, path: str) -> None:
        for field in self._unknown(message):
            self.found[f"{path}{NUMBER}{field.field_number}"] = None
            self._left -= _least_size(field)
        if self._left > 0:
            for step, inner in _below(message):
                self.look(inner, path + step)


def _least_size(field: Any) -> int:
    """The least bytes that encode an unknown field."""
    tag, data = _varint_size(field.field_number << 3), field.data
    match field.wire_type:
        case 0:
            return tag + _varint_size(data)
        case 1:
            return tag + 8
        case 2:
            return tag + _varint_size(len(data)) + len(data)
        case 5:
            return tag + 4
    return 2 * tag + sum(map(_least_size, data))  # a group


def _varint_size(number: int) -> int:
    return max(1, (number.bit_length() + 6) // 7)


def _below(message: Any) -> Iterator[tuple[str, Any]]:
    """The messages in the fields of a message, and the suffix of their path."""
    for field, value in message.ListFields():
        inner = field.message_type
        if inner is None:
            continue
        if not field.is_repeated:
            yield f"{field.name}.", value
            continue
        if inner.GetOptions().map_entry:
            value = value.values() if inner.fields_by_name["value"].message_type is not None else ()
        yield from ((f"{field.name}[].", one) for one in value)
