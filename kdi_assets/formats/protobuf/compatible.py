"""Whether bytes that one message describes say the same to another of its name: what schemas may change over time.

Source: Protocol Buffers, "Updating A Message Type".
"""

from __future__ import annotations

from collections.abc import Iterator

from kdi_assets.formats.protobuf.descriptors import Descriptors
from kdi_assets.formats.protobuf.records import (
    SCALARS,
    ByKey,
    Enumeration,
    Many,
    Mark,
    Record,
    Scalar,
    What,
    record_of,
)

# What a number may be read as without being another: never a narrower one, nor one of another encoding.
_WIDER = {
    "bool": {"int32", "int64", "uint32", "uint64"},
    "int32": {"int64"},
    "uint32": {"uint64", "int64"},
    "sint32": {"sint64"},
    "string": {"bytes"},
    "bytes": {"string"},  # each is judged: what is no UTF-8 is a dead letter
}


def becomes(writer: Descriptors, message: str, reader: Record) -> bool:
    """Whether a message of the writer's becomes the record, field by field as numbers tell; also if it has no such.

    Fields that only one of them has are no matter: they are unknown here, or absent there.

    Raises:
        DescriptorMistake: The writer's message is one that no table can hold, so that nothing can be told.
    """
    if message not in writer.messages():
        return True  # none of its payloads is that message, and each says so itself
    return _suits(record_of(writer.message(message)), reader)


def unknown_paths(writer: Descriptors, message: str, reader: Record) -> list[str]:
    """Paths of the fields that the writer's message has and the record has not; none if the writer has no such message.

    Raises:
        DescriptorMistake: As ``becomes``.
    """
    known = message in writer.messages()
    return list(_unknown(record_of(writer.message(message)), reader, "")) if known else []


def _unknown(written: What, read: What, path: str) -> Iterator[str]:
    match written, read:
        case Record(), Record():
            by_number = {field.number: field.what for field in read.fields}
            for field in written.fields:
                here = f"{path}.{field.name}" if path else field.name
                if field.number not in by_number:
                    yield here
                else:
                    yield from _unknown(field.what, by_number[field.number], here)
        case Many(of), Many(element):
            yield from _unknown(of, element, f"{path}[]")
        case ByKey(_, value), ByKey(_, other_value):
            yield from _unknown(value, other_value, f"{path}[]")


def _suits(written: What, read: What) -> bool:
    match written, read:
        case Record(), Record():
            by_number = {field.number: field.what for field in read.fields}
            return all(_suits(f.what, by_number[f.number]) for f in written.fields if f.number in by_number)
        case (Mark(), Record()) | (Record(), Mark()):
            return True
        case Many(of), Many(element):
            return _suits(of, element)
        case ByKey(key, value), ByKey(other_key, other_value):
            return _suits(key, other_key) and _suits(value, other_value)
        case Scalar(type_), Scalar(other):
            return written == read or (
                written.wrapper == read.wrapper == "" and SCALARS[other] in _WIDER.get(SCALARS[type_], ())
            )
        case Enumeration(), Enumeration():
            return True  # a number without a name is its own
        case (Enumeration(), Scalar(type_, "")) | (Scalar(type_, ""), Enumeration()):
            return SCALARS[type_] == "int32"
        case written_, Many(element) if not isinstance(written_, Many | ByKey):
            return _suits(written_, element)
    return written == read
