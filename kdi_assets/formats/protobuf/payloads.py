"""Payloads of one batch to records, each with a rule where it has none: what runs in Spark's Python workers.

Protobuf's own parser judges a payload and writes it again, without the fields that it does not know. Only then it has
every field once, its maps have every key once, of a oneof there is one, and texts are UTF-8: what reads it into columns
has nothing left to decide. Where it wrote the same bytes, there were no unknown fields; else they are looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kdi_assets.formats.framing import MessageIndex, split_message_index
from kdi_assets.formats.protobuf.columns import Columns
from kdi_assets.formats.protobuf.descriptors import Descriptors
from kdi_assets.formats.protobuf.records import (
    SCALARS,
    ByKey,
    Document,
    Many,
    Record,
    Scalar,
    What,
    below,
    faults,
    has_maps,
    record_of,
)
from kdi_assets.formats.protobuf.unknown import UnknownNumbers

if TYPE_CHECKING:
    import pyarrow as pa

RULE, RECORD, NUMBERS = "rule", "record", "numbers"
MALFORMED = "malformed_protobuf"
OF_INDEXES = ("too_short", "bad_message_index", "other_message", "unknown_schema")


@dataclass(frozen=True, slots=True)
class Payloads:
    """What is known of payloads: plain data, for it travels.

    Attributes:
        descriptors: A set of descriptors, serialized: of the message that every payload becomes.
        message: Its full name.
        writers: Where payloads begin with a message index: the descriptors of every schema that they may be written
            with, by its id. The message must have the same name there.
    """

    descriptors: bytes
    message: str
    writers: Mapping[int, bytes] | None = None


class Reading:
    """What follows from it, the same on the driver and in its workers.

    Attributes:
        record: The tree of the message.
        reasons: Reason and field of every rule; its number is its place, counted from 1. The last is for all else.

    Raises:
        DescriptorMistake: There is no such message, or no table can hold it.
    """

    def __init__(self, of: Payloads) -> None:
        self.of = of
        self.descriptors = Descriptors(of.descriptors)
        self.record = record_of(self.descriptors.message(of.message))
        of_indexes = OF_INDEXES if of.writers is not None else ()
        self.reasons = [*((reason, "") for reason in of_indexes), *faults(self.record), *_WITHOUT_FIELD]


def decoding(payloads: Payloads) -> Callable[..., pa.StructArray]:
    """A function for workers, which reads the rest there.

    Returns:
        Payloads (binary), and the ids of their schemas (bigint) where there are ``writers``, to a struct ``{rule: int,
        record: record, numbers: array<string>}``. Rule or record is null; so are the paths of unknown fields that no
        schema names, where there are none.
    """
    made: list[_Batches] = []

    def decode(values: pa.Array, schema_ids: pa.Array | None = None) -> pa.StructArray:
        if not made:
            made.append(_Batches(Reading(payloads)))
        return made[0].decoded(values, schema_ids)

    return decode


# Of a text that came twice, and is well the second time, nobody knows the field.
_WITHOUT_FIELD = (("invalid_utf8", ""), (MALFORMED, ""))


class _Condemned(Exception):
    """A payload that gives no record, by the number of a rule."""

    def __init__(self, rule: int) -> None:
        self.rule = rule


class _Batches:
    """Everything that stays the same from batch to batch."""

    def __init__(self, reading: Reading) -> None:
        from google.protobuf.message import DecodeError, EncodeError

        self._descriptors, self._record = reading.descriptors, reading.record
        self._rules = {key: number for number, key in enumerate(reading.reasons, 1)}
        self._name, self._writers = reading.of.message, reading.of.writers
        self._message: Any = self._descriptors.checking(self._name)
        # Methods of the class: to find them on a message costs as much as a short call, for its fields are asked first.
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
        good, condemned, numbers = self._judged(payloads.to_pylist(), ids)
        read = self._read(good, 0, condemned)
        whole = pa.concat_arrays(read) if len(read) > 1 else read[0]
        record, found = self._columns.made(whole)
        condemned = {**found, **condemned}
        rules = _by_row(condemned, len(good), pa.int32())
        if condemned:
            children = [record.field(n) for n in range(record.type.num_fields)]
            record = pa.StructArray.from_arrays(children, fields=list(record.type), mask=rules.is_valid())
        told = _by_row(numbers, len(good), pa.list_(pa.field("element", pa.string())))
        return pa.StructArray.from_arrays([rules, record, told], names=[RULE, RECORD, NUMBERS])

    def _judged(
        self, payloads: Sequence[bytes | None], schema_ids: Sequence[int | None] | None
    ) -> tuple[list[bytes], dict[int, int], dict[int, list[str]]]:
        """The payloads as Protobuf writes what it knows of them, and paths of what it does not know.

        They are empty where it cannot read them; then there is the rule that says why.
        """
        parse, discard, write, broken = self._message.FromString, self._discard, self._write, self._broken
        condemned: dict[int, int] = {}
        numbers: dict[int, list[str]] = {}
        good: list[bytes] = []
        for row, payload in enumerate(payloads):
            try:
                if payload is None:
                    raise _Condemned(self._rules[MALFORMED, ""])
                body = payload if schema_ids is None else self._behind_index(payload, schema_ids[row])
                parsed = parse(body)
                discard(parsed)
                known = write(parsed)
                good.append(known)
                if known != body:
                    found = self._unknown.of(body, known, schema_ids[row] if schema_ids is not None else None)
                    if found:
                        numbers[row] = found
            except _Condemned as told:
                condemned[row] = told.rule
                good.append(b"")
            except broken:
                condemned[row] = self._why(body)
                good.append(b"")
        return good, condemned, numbers

    def _behind_index(self, payload: bytes, schema_id: int | None) -> bytes:
        """What is behind the message index."""
        index = split_message_index(payload)
        if not isinstance(index, MessageIndex):
            raise _Condemned(self._rules[index, ""])
        at = schema_id, index.path
        if at not in self._names:
            self._names[at] = self._name_at(*at)
        if self._names[at] != self._name:
            raise _Condemned(self._rules["other_message" if self._names[at] else "bad_message_index", ""])
        return payload[index.end :]

    def _name_at(self, schema_id: int | None, path: tuple[int, ...]) -> str | None:
        writer = (self._writers or {}).get(schema_id) if schema_id is not None else None
        if writer is None:
            raise _Condemned(self._rules["unknown_schema", ""])
        return Descriptors(writer).message_at(path)

    def _read(self, good: Sequence[bytes], start: int, condemned: dict[int, int]) -> list[pa.StructArray]:
        """Read a batch; what cannot be read is halved until it is one message, and that condemned."""
        try:
            return [self._columns.read(good)]
        except ValueError:
            if len(good) == 1:
                condemned[start] = self._why(good[0])
                return [self._columns.read([b""])]
        middle = len(good) // 2
        return [
            *self._read(good[:middle], start, condemned),
            *self._read(good[middle:], start + middle, condemned),
        ]

    def _why(self, payload: bytes) -> int:
        """The rule for a payload that Protobuf does not read, or does not write again."""
        if self._unchecked is None:
            self._unchecked = self._descriptors.unchecked(self._name)
        parsed = self._unchecked()
        try:
            parsed.MergeFromString(payload)
        except self._broken:
            return self._rules[MALFORMED, ""]
        return self._rules[next(_wrong(self._record, parsed, ""), ("invalid_utf8", ""))]


def _by_row(found: Mapping[int, Any], rows: int, type_: pa.DataType) -> pa.Array:
    """What was found in some of the rows; null in the others."""
    import pyarrow as pa

    return pa.array(list(map(found.get, range(rows))), type_) if found else pa.nulls(rows, type_)


def _wrong(what: What, value: Any, path: str) -> Iterator[tuple[str, str]]:
    """What is wrong with a message whose texts are bytes and whose maps are lists: reason and path."""
    match what:
        case Scalar(type_, wrapper) if SCALARS[type_] == "string":
            if not _is_utf8(value.value if wrapper else value):
                yield "invalid_utf8", path
        case Document():
            if not _is_document(what, value):
                yield "invalid_utf8", path
        case Record(fields):
            for field in fields:
                here = below(path, field)
                if not field.can_be_absent or value.HasField(field.name):
                    yield from _wrong(field.what, getattr(value, field.name), here)
                elif field.required:
                    yield "missing_field", here
        case Many(of):
            for element in value:
                yield from _wrong(of, element, f"{path}[]")
        case ByKey(key, of):
            for entry in value:
                yield from _wrong(key, entry.key, f"{path}[]")
                yield from _wrong(of, entry.value, f"{path}[]")


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_document(what: Document, value: Any) -> bool:
    from google.protobuf import struct_pb2
    from google.protobuf.message import DecodeError

    try:
        getattr(struct_pb2, what.full_name.rpartition(".")[2]).FromString(value.SerializeToString())
    except DecodeError:
        return False
    return True
