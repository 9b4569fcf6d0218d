"""Data of Avro, of a sample alone: which dates it holds, and whether it is whole.

Values come as they would stand in JSON; what can be no date is null. Nothing is projected onto a reader's schema.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from kdi_assets.formats.registry.avro import definitions, with_full_names
from kdi_assets.proposal.json_text import Json
from kdi_assets.proposal.types import STRING, Array, Scalar, Struct, Type, is_taken

MOST_ITEMS = 1_000_000
"""Of a block; nulls take no bytes, so a block of them may say that it has any number."""
_OPAQUE = Array(STRING)
"""Stands for a type that is no date and has none in it."""
_SCALARS = {
    "boolean": "boolean",
    "int": "bigint",
    "long": "bigint",
    "float": "double",
    "double": "double",
    "string": "string",
}
_LOGICAL = {
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
    ("int", "date"): "date",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NoDatum(Exception):
    """Bytes are no datum of the schema; the argument is the decoder's reason."""


class NoRecord(Exception):
    """A schema gives no record that a table can have; the argument says why."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema, and the types that have names in it, by their full ones."""

    root: Any
    named: Mapping[str, Any]

    @classmethod
    def of(cls, text: str) -> AvroSchema:
        """Read a schema.

        Raises:
            ValueError: It is no JSON.
        """
        root = with_full_names(text)
        return cls(root, dict(definitions(root)))

    def record(self) -> Struct:
        """The record, its dates and what may be one.

        Raises:
            NoRecord: A table cannot have it.
        """
        found = self._type(self.root, ())
        if not isinstance(found, Struct):
            raise NoRecord("it describes no record")
        names = [name.lower() for name in found.fields]
        if taken := [name for name in found.fields if is_taken(name) or names.count(name.lower()) > 1]:
            raise NoRecord(f"no column can be called {', '.join(taken)}")
        return found

    def datum(self, payload: bytes) -> dict[str, Json]:
        """The record that a payload is.

        Raises:
            NoDatum: It is none, or not all of it is.
        """
        try:
            value, end = self._read(self.root, payload, 0)
        except (IndexError, KeyError, struct.error, RecursionError):
            raise NoDatum("malformed_avro") from None
        except UnicodeDecodeError:
            raise NoDatum("invalid_utf8") from None
        if end > len(payload):
            raise NoDatum("malformed_avro")
        if end < len(payload):
            raise NoDatum("trailing_bytes")
        return value if isinstance(value, dict) else {}

    def _resolved(self, type_: Any) -> Any:
        """A type by its definition, with what is said beside it."""
        if isinstance(type_, str):
            return self.named.get(type_) or {"type": type_}
        if isinstance(type_, dict) and isinstance(type_["type"], dict | list):
            return self._resolved(type_["type"])
        if isinstance(type_, dict) and type_["type"] in self.named:
            return self.named[type_["type"]]
        return type_

    def _type(self, type_: Any, outer: tuple[int, ...]) -> Type:
        found = self._resolved(type_)
        if isinstance(found, list):
            others = [branch for branch in found if branch != "null"]
            return self._type(others[0], outer) if len(others) == 1 else _OPAQUE
        kind = found["type"]
        if kind == "null":
            raise NoRecord("it has a field that is always null")
        if id(found) in outer:
            raise NoRecord("it contains itself")
        inner = (*outer, id(found))
        if kind == "record":
            if not found["fields"]:
                raise NoRecord("it has a record without fields")
            return Struct({field["name"]: self._type(field["type"], inner) for field in found["fields"]})
        if kind in ("array", "map"):
            self._type(found["items" if kind == "array" else "values"], inner)  # refuses what is in it
            return _OPAQUE
        if kind == "enum":
            return STRING
        logical = found.get("logicalType")
        ddl = _LOGICAL.get((kind, logical)) if logical else _SCALARS.get(kind)
        return Scalar(ddl) if ddl else _OPAQUE

    def _read(self, type_: Any, data: bytes, at: int) -> tuple[Json, int]:
        """The value at a place, and the place behind it."""
        found = self._resolved(type_)
        if isinstance(found, list):
            branch, at = _long(data, at)
            return self._read(found[_within(branch, len(found))], data, at)
        match found["type"]:
            case "record":
                record: dict[str, Json] = {}
                for field in found["fields"]:
                    record[field["name"]], at = self._read(field["type"], data, at)
                return record, at
            case "array" | "map":
                return None, self._skip_blocks(found, data, at)
            case "enum":
                number, at = _long(data, at)
                return str(found["symbols"][_within(number, len(found["symbols"]))]), at
            case "fixed":
                return None, _checked(at + int(found["size"]), data)
        return _primitive(found, data, at)

    def _skip_blocks(self, type_: Any, data: bytes, at: int) -> int:
        item = type_.get("items", type_.get("values"))
        while True:
            count, at = _long(data, at)
            if count == 0:
                return at
            if count < 0:
                _, at = _long(data, at)
            if abs(count) > MOST_ITEMS:
                raise IndexError(count)
            for _ in range(abs(count)):
                if "values" in type_:
                    _, at = self._read("string", data, at)
                _, at = self._read(item, data, at)


def _primitive(type_: Any, data: bytes, at: int) -> tuple[Json, int]:
    match type_["type"]:
        case "null":
            return None, at
        case "boolean":
            return bool(data[at]), at + 1
        case "int" | "long":
            number, at = _long(data, at)
            return _said(type_.get("logicalType"), number), at
        case "float" | "double" as kind:
            size, code = (4, "<f") if kind == "float" else (8, "<d")
            number = struct.unpack_from(code, data, at)[0]
            return (Decimal(repr(number)) if abs(number) < float("inf") else None), at + size
        case "bytes" | "string" as kind:
            length, at = _long(data, at)
            end = _checked(at + _within(length, len(data) + 1), data)
            return (data[at:end].decode("utf-8") if kind == "string" else None), end
    raise KeyError(type_["type"])


def _said(logical: object, number: int) -> Json:
    return _READ[logical](number) if logical in _READ else number


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint, of ten bytes at most."""
    number = 0
    for n in range(10):
        byte = data[at + n]
        number |= (byte & 0x7F) << 7 * n
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at + n + 1
    raise IndexError(at)


def _within(number: int, end: int) -> int:
    if not 0 <= number < end:
        raise IndexError(number)
    return number


def _checked(end: int, data: bytes) -> int:
    if end > len(data):
        raise IndexError(end)
    return end


def _moment(unit_per_second: int, *, zone: str) -> Callable[[int], Json]:
    def said(number: int) -> Json:
        try:
            at = _EPOCH + timedelta(microseconds=number * 1_000_000 // unit_per_second)
        except OverflowError:
            return None
        return at.replace(tzinfo=None).isoformat(sep="T") + zone

    return said


def _day(number: int) -> Json:
    try:
        return date.fromordinal(date(1970, 1, 1).toordinal() + number).isoformat()
    except (ValueError, OverflowError):
        return None


_READ: dict[Any, Callable[[int], Json]] = {
    "timestamp-millis": _moment(1000, zone="Z"),
    "timestamp-micros": _moment(1_000_000, zone="Z"),
    "local-timestamp-millis": _moment(1000, zone=""),
    "local-timestamp-micros": _moment(1_000_000, zone=""),
    "date": _day,
}
