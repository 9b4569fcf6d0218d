"""The description of a record from which the kernel (``kdi_assets/jvm/kdi/protobuf``) makes its readers."""

from __future__ import annotations

import json
from typing import Any

from kdi_assets.messages.formats.protobuf.compatible import unknown_paths
from kdi_assets.messages.formats.protobuf.descriptors import Descriptors
from kdi_assets.messages.formats.protobuf.payloads import Reading
from kdi_assets.messages.formats.protobuf.records import (
    Duration,
    Empty,
    Enumeration,
    Field,
    FieldType,
    MapOf,
    Record,
    Repeated,
    Scalar,
    Timestamp,
    record_of,
)

_STRING, _CHECKED_LATE = 9, -9
"""Protobuf's number of a string, and the kernel's of one in the second syntax: its bytes need not be UTF-8 if a later
value replaces them."""


def kernel_description(reading: Reading) -> str | None:
    """The record, and the writers' schemas, as JSON; ``None`` if only Protobuf's own library can judge the messages.

    That is the case with ``google.protobuf.Struct`` and the like, whose JSON that library writes; with fields that no
    column can hold, because they have no type here and yet their bytes decide whether a message is valid; and with
    editions, whose features say for each field which texts are checked.
    """
    try:
        writers = {schema_id: _writer(text, reading) for schema_id, text in (reading.payloads.writers or {}).items()}
        return json.dumps({"record": _whole(reading.record), "writers": writers})
    except _OfLibrary:
        return None


def _writer(text: bytes, reading: Reading) -> dict[str, Any]:
    written, message = Descriptors(text), reading.payloads.message
    named = list(unknown_paths(written, message, reading.record))
    places = [[path, name == message] for path, name in written.places()]
    own = _whole(record_of(written.message(message))) if message in written.messages() else None
    return {"named": named, "messages": places, "record": own}


def _whole(record: Record) -> dict[str, Any]:
    if record.left_out:
        raise _OfLibrary
    return _described(record, record.syntax)


class _OfLibrary(Exception):
    """The kernel has no reader for a type."""


def _described(type_: FieldType, syntax: str) -> dict[str, Any]:
    match type_:
        case Scalar(number, ""):
            return {"kind": "scalar", "type": _CHECKED_LATE if (number, syntax) == (_STRING, "proto2") else number}
        case Scalar(number, _):
            return {"kind": "wrapper", "type": number}
        case Enumeration(names):
            return {"kind": "enumeration", "names": names}
        case Timestamp() | Duration() | Empty():
            return {"kind": type(type_).__name__.lower()}
        case Record(fields, syntax) if syntax != "editions":
            return {"kind": "record", "fields": [_field(field, syntax) for field in fields]}
    raise _OfLibrary


def _field(field: Field, syntax: str) -> dict[str, Any]:
    match field.type:
        case Repeated(of):
            type_ = {"label": "REPEATED", "type": _described(of, syntax)}
        case MapOf(key, value):
            type_ = {"label": "MAP", "key": _described(key, syntax), "type": _described(value, syntax)}
        case one:
            type_ = {"label": "ONE", "type": _described(one, syntax)}
    said = {"name": field.name, "number": field.number, "can_be_absent": field.can_be_absent}
    return {**type_, **said, "required": field.required, "oneof": field.oneof}
