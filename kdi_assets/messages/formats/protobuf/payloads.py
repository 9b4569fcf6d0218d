"""Payloads of one batch to records, or to the number of a rule: runs in Spark's Python workers.

Protobuf's own parser checks a payload and writes it again without unknown fields. In the result every field and every
key of a map is there once, a oneof has one value, and strings are UTF-8, so that ptars has nothing left to decide. Only
where the bytes differ, unknown fields are searched for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kdi_assets.messages.formats.framing import MessageIndex, split_message_index
from kdi_assets.messages.formats.protobuf.columns import Columns, json_class
from kdi_assets.messages.formats.protobuf.compatible import UnknownNumbers
from kdi_assets.messages.formats.protobuf.descriptors import Descriptors
from kdi_assets.messages.formats.protobuf.records import (
    SCALARS,
    FieldType,
    JsonField,
    MapOf,
    Record,
    Repeated,
    Scalar,
    below,
    faults,
    has_maps,
    record_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

RULE, RECORD, NUMBERS = "rule", "record", "numbers"
MALFORMED = "malformed_protobuf"
OF_INDEXES = ("too_short", "bad_message_index", "other_message", "unknown_schema")


@dataclass(frozen=True, slots=True)
class Payloads:
    """How to decode payloads; plain data, because it is sent to workers.

    Attributes:
        descriptors: A serialized set of descriptors with the message that every payload becomes.
        message: Its full name.
        writers: If payloads begin with a message index: the descriptors of the schemas that they may have, by id. The
            message must have the same name there.
    """

    descriptors: bytes
    message: str
    writers: Mapping[int, bytes] | None = None


class Reading:
    """The record and the rules of ``Payloads``, the same on the driver and in workers.

    Attributes:
        record: The tree of the message.
        reasons: Reason and field of every rule, at the place of its number, counted from 1. The last covers the rest.

    Raises:
        DescriptorMistake: There is no such message, or no table can hold it.
    """

    def __init__(self, payloads: Payloads) -> None:
        self.payloads = payloads
        self.descriptors = Descriptors(payloads.descriptors)
        self.record = record_of(self.descriptors.message(payloads.message))
        of_indexes = OF_INDEXES if payloads.writers is not None else ()
        self.reasons = [*((reason, "") for reason in of_indexes), *faults(self.record), *_WITHOUT_FIELD]


def decoding(payloads: Payloads) -> Callable[..., pa.StructArray]:
    """The function that workers run.

    Returns:
        Payloads (binary), and with ``writers`` their schema ids (bigint), to a struct ``{rule: int, record: record,
        numbers: array<string>}``. Either rule or record is null. Numbers are the paths of unknown fields that no schema
        names, null if there are none.
    """
    made: list[_BatchDecoder] = []

    def decode(values: pa.Array, schema_ids: pa.Array | None = None) -> pa.StructArray:
        if not made:
            made.append(_BatchDecoder(Reading(payloads)))
        return made[0].decoded(values, schema_ids)

    return decode


# The field is unknown if a string came twice and only the first was no UTF-8.
_WITHOUT_FIELD = (("invalid_utf8", ""), (MALFORMED, ""))


class _RefusedPayload(Exception):
    """A payload becomes no record, by this rule."""

    def __init__(self, rule: int) -> None:
        self.rule = rule


class _BatchDecoder:
    """The decoder of all batches of one task."""

    def __init__(self, reading: Reading) -> None:
        from google.protobuf.message import DecodeError, EncodeError

        self._descriptors, self._record = reading.descriptors, reading.record
        self._rules = {key: number for number, key in enumerate(reading.reasons, 1)}
        self._name, self._writers = reading.payloads.message, reading.payloads.writers
        self._message: Any = self._descriptors.checking(self._name)
        # Methods of the class: a look-up on a message asks its fields first and costs as much as a short call.
        write, self._discard = self._message.SerializeToString, self._message.DiscardUnknownFields
        self._write = partial(write, deterministic=True) if has_maps(self._record) else write
        self._columns = Columns(self._record, self._rules)
        self._broken: tuple[type[Exception], ...] = (DecodeError, EncodeError)
        self._unchecked: Any = None
        self._names: dict[tuple[int | None, tuple[int, ...]], str | None] = {}
        self._unknown = UnknownNumbers(self._message, self._record, self._writers)

    def decoded(self, payloads: pa.Array, schema_ids: pa.Array | None) -> pa.StructArray:
        """Rule, record and unknown numbers of every payload."""
        import pyarrow as pa

        ids = schema_ids.to_pylist() if schema_ids is not None else None
        good, refused, numbers = self._parsed(payloads.to_pylist(), ids)
        read = self._read(good, 0, refused)
        whole = pa.concat_arrays(read) if len(read) > 1 else read[0]
        record, out_of_range = self._columns.records(whole)
        refused = {**out_of_range, **refused}
        rules = _by_row(refused, len(good), pa.int32())
        if refused:
            children = [record.field(n) for n in range(record.type.num_fields)]
            record = pa.StructArray.from_arrays(children, fields=list(record.type), mask=rules.is_valid())
        paths = _by_row(numbers, len(good), pa.list_(pa.field("element", pa.string())))
        return pa.StructArray.from_arrays([rules, record, paths], names=[RULE, RECORD, NUMBERS])

    def _parsed(
        self, payloads: Sequence[bytes | None], schema_ids: Sequence[int | None] | None
    ) -> tuple[list[bytes], dict[int, int], dict[int, list[str]]]:
        """The payloads as Protobuf writes their known fields; rules by row; paths of unknown fields by row.

        A payload with a rule is empty.
        """
        parse, discard, write, broken = self._message.FromString, self._discard, self._write, self._broken
        refused: dict[int, int] = {}
        numbers: dict[int, list[str]] = {}
        good: list[bytes] = []
        for row, payload in enumerate(payloads):
            try:
                if payload is None:
                    raise _RefusedPayload(self._rules[MALFORMED, ""])
                body = payload if schema_ids is None else self._after_index(payload, schema_ids[row])
                parsed = parse(body)
                discard(parsed)
                known = write(parsed)
                good.append(known)
                if known != body:
                    found = self._unknown.of(body, known, schema_ids[row] if schema_ids is not None else None)
                    if found:
                        numbers[row] = found
            except _RefusedPayload as refusal:
                refused[row] = refusal.rule
                good.append(b"")
            except broken:
                refused[row] = self._why(body)
                good.append(b"")
        return good, refused, numbers

    def _after_index(self, payload: bytes, schema_id: int | None) -> bytes:
        """The message after the message index."""
        index = split_message_index(payload)
        if not isinstance(index, MessageIndex):
            raise _RefusedPayload(self._rules[index, ""])
        at = schema_id, index.path
        if at not in self._names:
            self._names[at] = self._name_at(*at)
        if self._names[at] != self._name:
            raise _RefusedPayload(self._rules["other_message" if self._names[at] else "bad_message_index", ""])
        return payload[index.end :]

    def _name_at(self, schema_id: int | None, path: tuple[int, ...]) -> str | None:
        writer = (self._writers or {}).get(schema_id) if schema_id is not None else None
        if writer is None:
            raise _RefusedPayload(self._rules["unknown_schema", ""])
        return Descriptors(writer).message_at(path)

    def _read(self, good: Sequence[bytes], start: int, refused: dict[int, int]) -> list[pa.StructArray]:
        """Read a batch; on failure halve it until one message is left, which gets a rule."""
        try:
            return [self._columns.read(good)]
        except ValueError:
            if len(good) == 1:
                refused[start] = self._why(good[0])
                return [self._columns.read([b""])]
        middle = len(good) // 2
        return [
            *self._read(good[:middle], start, refused),
            *self._read(good[middle:], start + middle, refused),
        ]

    def _why(self, payload: bytes) -> int:
        """The rule for a payload that Protobuf cannot read or write."""
        if self._unchecked is None:
            self._unchecked = self._descriptors.unchecked(self._name)
        parsed = self._unchecked()
        try:
            parsed.MergeFromString(payload)
        except self._broken:
            return self._rules[MALFORMED, ""]
        return self._rules[next(_mistakes(self._record, parsed, ""), ("invalid_utf8", ""))]


def _by_row(found: Mapping[int, Any], rows: int, type_: pa.DataType) -> pa.Array:
    """Values by row; null in rows without one."""
    import pyarrow as pa

    return pa.array(list(map(found.get, range(rows))), type_) if found else pa.nulls(rows, type_)


def _mistakes(type_: FieldType, value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Reason and path of each mistake in a message of ``Descriptors.unchecked``."""
    match type_:
        case Scalar(number, wrapper) if SCALARS[number] == "string":
            if not _is_utf8(value.value if wrapper else value):
                yield "invalid_utf8", path
        case JsonField():
            if not _is_json(type_, value):
                yield "invalid_utf8", path
        case Record(fields):
            for field in fields:
                here = below(path, field)
                if not field.can_be_absent or value.HasField(field.name):
                    yield from _mistakes(field.type, getattr(value, field.name), here)
                elif field.required:
                    yield "missing_field", here
        case Repeated(of):
            for element in value:
                yield from _mistakes(of, element, f"{path}[]")
        case MapOf(key, of):
            for entry in value:
                yield from _mistakes(key, entry.key, f"{path}[]")
                yield from _mistakes(of, entry.value, f"{path}[]")


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_json(type_: JsonField, value: Any) -> bool:
    from google.protobuf.message import DecodeError

    try:
        json_class(type_.full_name).FromString(value.SerializeToString())
    except DecodeError:
        return False
    return True
