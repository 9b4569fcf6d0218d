"""Fields of messages that no column takes, by their numbers: a descriptor that has them not has no name for them.

Protobuf's parser keeps them apart, and so it does with what stands under a known number in another encoding, and with
extensions, of which we tell it nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kdi_assets.formats.protobuf.compatible import NUMBER, unknown_paths
from kdi_assets.formats.protobuf.descriptors import Descriptors
from kdi_assets.formats.protobuf.records import Record

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

MOST_TOLD = 100
"""Fields of one message: more are no fields but data."""


@dataclass(frozen=True, slots=True)
class _Writer:
    """A schema that names fields which the record has not: the class of its message, and their paths by number."""

    message: type[Any]
    named: Collection[str]


@dataclass(frozen=True, slots=True)
class _Way:
    """To the messages in a field of a message: what its path adds, what gives them, and the ways in each."""

    step: str
    messages: Callable[[Any], Collection[Any]]
    ways: list[_Way]


class UnknownNumbers:
    """What tells of such fields in the messages of one type.

    Args:
        message: The class that they are parsed by.
        writers: As ``Payloads`` has them: fields that the schema of a message has are told of by their names.
    """

    def __init__(self, message: type[Any], record: Record, writers: Mapping[int, bytes] | None) -> None:
        from google.protobuf.message import DecodeError
        from google.protobuf.unknown_fields import UnknownFieldSet

        self._message, self._record = message, record
        self._by_id = writers or {}
        self._writers: dict[int, _Writer] = {}
        self._ways = _ways(message.DESCRIPTOR, {})
        self._whole, self._broken, self._set = message.SerializePartialToString, DecodeError, UnknownFieldSet

    def of(self, body: bytes, known: bytes, schema_id: int | None) -> list[str]:
        """Paths of the fields, as ``items[].#7``.

        Args:
            body: A message, which parses.
            known: The same without unknown fields, as Protobuf writes it.
            schema_id: Of a writer; ``None`` where there are none.
        """
        parsed = self._message.FromString(body)
        unknown_bytes = len(self._whole(parsed)) - len(known)
        if not unknown_bytes:
            return []  # the same in another order, or not as short as it can be
        writer = None if schema_id is None else self._writer(schema_id)
        if writer is not None and writer.named and not self._has_unknown(body, writer):
            return []
        search = _Search(self._set, unknown_bytes)
        search.look(parsed, self._ways, "")
        named = writer.named if writer is not None else ()
        return [path for path in search.found if path not in named][:MOST_TOLD]

    def _writer(self, schema_id: int) -> _Writer:
        if schema_id not in self._writers:
            descriptors, name = Descriptors(self._by_id[schema_id]), self._message.DESCRIPTOR.full_name
            named = unknown_paths(descriptors, name, self._record)
            self._writers[schema_id] = _Writer(descriptors.checking(name), named)
        return self._writers[schema_id]

    def _has_unknown(self, body: bytes, writer: _Writer) -> bool:
        """Whether the message has fields that its own schema has not."""
        try:
            parsed = writer.message.FromString(body)
        except self._broken:
            return True  # it is not what its schema says: what the record has not is looked at
        whole = len(parsed.SerializePartialToString())
        parsed.DiscardUnknownFields()
        return len(parsed.SerializePartialToString()) != whole


class _Search:
    """One for the unknown fields of a message, which ends where their bytes are found: most lie at its top."""

    def __init__(self, unknown: Callable[[Any], Any], unknown_bytes: int) -> None:
        self.found: dict[str, None] = {}
        self._unknown, self._left = unknown, unknown_bytes

    def look(self, message: Any, ways: Sequence[_Way], start: str) -> None:
        for field in self._unknown(message):
            self.found[f"{start}{NUMBER}{field.field_number}"] = None
            self._left -= _least_size(field)
        for way in ways:
            if self._left <= 0:
                return
            for inner in way.messages(message):
                self.look(inner, way.ways, start + way.step)


def _least_size(field: Any) -> int:
    """Bytes of an unknown field, as short as they can be."""
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


def _ways(type_: Descriptor, known: dict[str, list[_Way]]) -> list[_Way]:
    """The ways in a message; a type that holds itself has one to itself."""
    if type_.full_name in known:
        return known[type_.full_name]
    ways = known[type_.full_name] = []
    for field in type_.fields:
        inner, name = field.message_type, field.name
        if inner is None:
            continue
        if not field.is_repeated:
            ways.append(_Way(f"{name}.", _one(name), _ways(inner, known)))
        elif not inner.GetOptions().map_entry:
            ways.append(_Way(f"{name}[].", _each(name), _ways(inner, known)))
        elif (value := inner.fields_by_name["value"].message_type) is not None:
            ways.append(_Way(f"{name}[].", _values(name), _ways(value, known)))
    return ways


def _one(name: str) -> Callable[[Any], Collection[Any]]:
    return lambda message: (getattr(message, name),) if message.HasField(name) else ()


def _each(name: str) -> Callable[[Any], Collection[Any]]:
    return lambda message: getattr(message, name)


def _values(name: str) -> Callable[[Any], Collection[Any]]:
    return lambda message: getattr(message, name).values()
