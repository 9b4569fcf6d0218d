"""How requests and answers are written: JSON 1.1, CBOR as AWS writes it, and the frames of an event stream.

boto3 speaks JSON. The AWS SDK for Java speaks CBOR unless ``aws.cborEnabled`` is false, and JSON to SubscribeToShard.
"""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from dataclasses import dataclass
from typing import Any
from zlib import crc32

JSON, CBOR = "application/x-amz-json-1.1", "application/x-amz-cbor-1.1"
EVENT_STREAM = "application/vnd.amazon.eventstream"

_TEXT, _MAP, _TAG = 3, 5, 6  # major types of CBOR
_BREAK = object()


@dataclass(frozen=True, slots=True)
class ApiTimestamp:
    """A moment in an answer; seconds with fractions in JSON, whole milliseconds in CBOR."""

    milliseconds: int


def encode(value: object, content_type: str) -> bytes:
    """Write an answer: maps, lists, text, bytes, integers from 0, ``ApiTimestamp``."""
    return _to_cbor(value) if content_type == CBOR else json.dumps(value, default=_json_value).encode()


def decode(body: bytes, content_type: str) -> Any:
    """Read a request; raises ``ValueError`` if it is not in that form.

    Bytes are base64 in JSON, and ``bytes`` in CBOR; timestamps are seconds in both.
    """
    if content_type != CBOR:
        return json.loads(body or b"{}")
    try:
        return _CborReader(body).item()
    except (IndexError, struct.error, TypeError, RecursionError) as cut:
        raise ValueError("not CBOR") from cut


def event_frame(name: str, payload: object, *, is_exception: bool = False) -> bytes:
    """One event of an event stream: lengths, headers, payload, with checksums.

    Source: AWS, "Event stream encoding".
    """
    headers = {
        ":message-type": "exception" if is_exception else "event",
        ":exception-type" if is_exception else ":event-type": name,
        ":content-type": "application/json",
    }
    written = b"".join(
        bytes([len(key)]) + key.encode() + b"\x07" + struct.pack(">H", len(text)) + text.encode()
        for key, text in headers.items()
    )
    body = encode(payload, JSON)
    lengths = struct.pack(">II", 16 + len(written) + len(body), len(written))
    message = lengths + struct.pack(">I", crc32(lengths)) + written + body
    return message + struct.pack(">I", crc32(message))


def _json_value(value: object) -> object:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, ApiTimestamp):
        return value.milliseconds / 1000
    raise TypeError(f"{type(value)} has no form in JSON")


def _to_cbor(value: object) -> bytes:
    match value:
        case int():
            return _cbor_head(0, value)
        case bytes():
            return _cbor_head(2, len(value)) + value
        case str():
            return _cbor_head(_TEXT, len(text := value.encode())) + text
        case list():
            return _cbor_head(4, len(value)) + b"".join(map(_to_cbor, value))
        case dict():
            return _cbor_head(_MAP, len(value)) + b"".join(_to_cbor(k) + _to_cbor(v) for k, v in value.items())
        case ApiTimestamp():
            # RFC 8949 wants seconds behind this tag; AWS and its SDKs write and expect milliseconds.
            return _cbor_head(_TAG, 1) + _to_cbor(value.milliseconds)
    raise TypeError(f"{type(value)} has no form in CBOR")


def _cbor_head(major: int, number: int) -> bytes:
    if number < 24:
        return bytes([major << 5 | number])
    for code, size in ((24, 1), (25, 2), (26, 4)):
        if number < 1 << 8 * size:
            return bytes([major << 5 | code]) + number.to_bytes(size)
    return bytes([major << 5 | 27]) + number.to_bytes(8)


class _CborReader:
    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def item(self) -> Any:
        first = self._body[self._at]
        self._at += 1
        major, code = first >> 5, first & 31
        if major == 7:
            return self._simple(code)
        if code == 31:
            return self._until_break(major)
        number = code if code < 24 else int.from_bytes(self._take(1 << code - 24))
        match major:
            case 0:
                return number
            case 1:
                return -1 - number
            case 2:
                return self._take(number)
            case 3:
                return self._take(number).decode()
            case 4:
                return [self.item() for _ in range(number)]
            case 5:
                return {self.item(): self.item() for _ in range(number)}
        return self.item() / 1000 if number == 1 else self.item()

    def _until_break(self, major: int) -> Any:
        parts = []
        while (part := self.item()) is not _BREAK:
            parts.append(part)
        if major == _MAP:
            return dict(zip(parts[::2], parts[1::2], strict=True))
        return parts if major > _TEXT else (b"" if major == 2 else "").join(parts)

    def _simple(self, code: int) -> Any:
        if code == 31:
            return _BREAK
        if code in (25, 26, 27):
            number: float = struct.unpack({25: ">e", 26: ">f", 27: ">d"}[code], self._take(1 << code - 24))[0]
            return number
        return {20: False, 21: True}.get(code)

    def _take(self, size: int) -> bytes:
        part = self._body[self._at : self._at + size]
        if len(part) < size:
            raise IndexError
        self._at += size
        return part
