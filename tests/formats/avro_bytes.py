"""Avro written by hand from its specification; the encoder shares no code with the decoders under test."""

from __future__ import annotations

import bz2
import json
import lzma
import struct
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

_EMPTY = 0xC15D213AA4D7A795
_KEPT = ("name", "type", "fields", "symbols", "items", "values", "size")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def datum(schema: Any, value: Any) -> bytes:
    """The binary encoding of a value."""
    if isinstance(schema, list):
        branch = schema.index("null") if value is None else next(n for n, s in enumerate(schema) if s != "null")
        return long(branch) + (b"" if value is None else datum(schema[branch], value))
    if isinstance(schema, str):
        return bytes(_PRIMITIVE[schema](value))
    match schema["type"]:
        case "record":
            return b"".join(datum(f["type"], value[f["name"]]) for f in schema["fields"])
        case "enum":
            return long(schema["symbols"].index(value))
        case "array":
            return _block([datum(schema["items"], item) for item in value])
        case "map":
            return _block([_string(k) + datum(schema["values"], v) for k, v in value.items()])
        case "fixed":
            return bytes(value)
    return datum(schema["type"], _LOGICAL.get(schema.get("logicalType"), lambda v, s: v)(value, schema))


def single_object(schema: Any, value: Any) -> bytes:
    """The value after the fingerprint of its schema."""
    return b"\xc3\x01" + struct.pack("<Q", fingerprint(schema)) + datum(schema, value)


SYNC = bytes(range(16))


def container(schema: Any, *blocks: list[Any], codec: str | None = "null", text: str | None = None) -> bytes:
    """An object container: the schema, then the values of each block.

    Args:
        codec: ``None`` writes no codec.
        text: The schema's text, if it is not its JSON.
    """
    entries = {"avro.schema": text if text is not None else json.dumps(schema, indent=1), "made.by": "hand"}
    entries |= {"avro.codec": codec} if codec is not None else {}
    header = b"Obj\x01" + _block([_string(k) + _bytes(v.encode()) for k, v in entries.items()]) + SYNC
    return header + b"".join(_container_block([datum(schema, v) for v in values], codec or "null") for values in blocks)


def _container_block(datums: list[bytes], codec: str) -> bytes:
    return long(len(datums)) + _bytes(COMPRESS[codec](b"".join(datums))) + SYNC


def _deflated(data: bytes) -> bytes:
    deflating = zlib.compressobj(wbits=-15)
    return deflating.compress(data) + deflating.flush()


COMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": _deflated,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "snappy": lambda data: pa.compress(data, codec="snappy", asbytes=True) + struct.pack(">I", zlib.crc32(data)),
    "zstandard": lambda data: bytes(pa.compress(data, codec="zstd", asbytes=True)),
}


def fingerprint(schema: Any) -> int:
    """CRC-64-AVRO of the canonical form, for schemas without namespaces whose names come before everything else."""
    found = _EMPTY
    for byte in json.dumps(_canonical(schema), separators=(",", ":"), ensure_ascii=False).encode():
        found = (found >> 8) ^ _table((found ^ byte) & 0xFF)
    return found


def long(value: int) -> bytes:
    """A number in zigzag, seven bits in each byte."""
    rest, out = (value << 1) ^ (value >> 63), bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def _string(value: str) -> bytes:
    return _bytes(value.encode())


def _bytes(value: bytes) -> bytes:
    return long(len(value)) + value


def _block(items: list[bytes]) -> bytes:
    return (long(len(items)) + b"".join(items) if items else b"") + long(0)


def _micros(value: datetime, schema: Any) -> int:
    since = value.replace(tzinfo=UTC) - _EPOCH if value.tzinfo is None else value - _EPOCH
    return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds


def _unscaled(value: Decimal, schema: Any) -> bytes:
    number = int(value.scaleb(schema["scale"]))
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def _canonical(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_canonical(branch) for branch in schema]
    if not isinstance(schema, Mapping):
        return schema
    if schema["type"] in _PRIMITIVE:
        return schema["type"]
    kept = {key: schema[key] for key in _KEPT if key in schema}
    inner = {key: _canonical(kept[key]) for key in ("items", "values") if key in kept}
    fields = [{"name": f["name"], "type": _canonical(f["type"])} for f in kept.get("fields", ())]
    return {**kept, **inner, **({"fields": fields} if "fields" in kept else {})}


def _table(index: int) -> int:
    for _ in range(8):
        index = (index >> 1) ^ (_EMPTY if index & 1 else 0)
    return index


_PRIMITIVE: Mapping[str, Any] = {
    "null": lambda v: b"",
    "boolean": lambda v: b"\x01" if v else b"\x00",
    "int": long,
    "long": long,
    "float": lambda v: struct.pack("<f", v),
    "double": lambda v: struct.pack("<d", v),
    "bytes": _bytes,
    "string": _string,
}
_LOGICAL: Mapping[str | None, Any] = {
    "timestamp-micros": _micros,
    "timestamp-millis": lambda v, s: _micros(v, s) // 1000,
    "local-timestamp-micros": _micros,
    "date": lambda v, s: (v - date(1970, 1, 1)).days,
    "decimal": _unscaled,
}


def record(name: str, **fields: Any) -> dict[str, Any]:
    """The schema of a record."""
    return {"type": "record", "name": name, "fields": [{"name": n, "type": type_} for n, type_ in fields.items()]}
