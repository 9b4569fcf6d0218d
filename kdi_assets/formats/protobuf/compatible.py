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
    below,
    record_of,
)

NUMBER = "#"
"""Before the number of a field, in a path, where it has no name."""

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


def unknown_paths(writer: Descriptors, message: str, reader: Record) -> dict[str, str]:
    """The fields that the writer's message has and the record has not; none if the writer has no such message.

    Returns:
        Path by number in the record's names, as ``place.#7``, to path in the writer's names.

    Raises:
        DescriptorMistake: As ``becomes``.
    """
    known = message in writer.messages()
    return dict(_unknown(record_of(writer.message(message)), reader, "", "")) if known else {}


def _unknown(written: What, read: What, here: str, path: str) -> Iterator[tuple[str, str]]:
    match written, read:
        case Record(), Record() | Mark():
            known = {field.number: field for field in read.fields} if isinstance(read, Record) else {}
            for field in written.fields:
                inner = below(path, field)
                if (ours := known.get(field.number)) is None:
                    yield f"{here}.{NUMBER}{field.number}" if here else f"{NUMBER}{field.number}", inner
                else:
                    yield from _unknown(field.what, ours.what, below(here, ours), inner)
        case Many(of), Many(element):
            yield from _unknown(of, element, f"{here}[]", f"{path}[]")
        case ByKey(_, value), ByKey(_, other_value):
            yield from _unknown(value, other_value, f"{here}[]", f"{path}[]")
        case _, Many(element):
            yield from _unknown(written, element, f"{here}[]", path)


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
