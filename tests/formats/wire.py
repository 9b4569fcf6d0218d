"""Fields of Protobuf's wire, written by hand."""

from __future__ import annotations


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def of(number: int, wire_type: int, rest: bytes) -> bytes:
    """A field on the wire."""
    body = varint(len(rest)) + rest if wire_type == 2 else rest
    return varint(number << 3 | wire_type) + body
