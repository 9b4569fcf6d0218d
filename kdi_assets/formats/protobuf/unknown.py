"""Fields of messages that no column takes, by their numbers: a descriptor that has them not has no name for them.

Protobuf's parser keeps them apart, and so it does with what stands under a known number in another encoding, and with
extensions, of which we tell it nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kdi_assets.formats.protobuf.compatible import NUMBER, unknown_paths
from kdi_assets.formats.protobuf.descriptors import Descriptors
from kdi_assets.formats.protobuf.records import Record

MOST_TOLD = 100
"""Fields of one message: more are no fields but data."""


@dataclass(frozen=True, slots=True)
class _Writer:
    """A schema that names fields which the record has not: the class of its message, and their paths by number."""

    message: type[Any]
    named: Collection[str]


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
        search.look(parsed, "")
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

    def look(self, message: Any, path: str) -> None:
        for field in self._unknown(message):
            self.found[f"{path}{NUMBER}{field.field_number}"] = None
            self._left -= _least_size(field)
        if self._left > 0:
            for step, inner in _below(message):
                self.look(inner, path + step)


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


def _below(message: Any) -> Iterator[tuple[str, Any]]:
    """The messages in the fields of a message, and what their path adds to its own."""
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
