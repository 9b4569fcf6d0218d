"""Aggregates of the Kinesis Producer Library (KPL): several user records in one record."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import md5

MAGIC = b"\xf3\x89\x9a\xc2"


def to_aggregate(user_records: Iterable[tuple[str, bytes]]) -> bytes:
    """The data of a record that holds user records, each a partition key and data.

    Source: amazon-kinesis-producer, "aggregation-format.md": magic, a Protobuf message with the table of partition keys
    (field 1) and the user records (field 3: index of the key, 1; data, 3), MD5 of the message.
    """
    keys: dict[str, int] = {}
    records = bytearray()
    for key, data in user_records:
        record = b"\x08" + _varint(keys.setdefault(key, len(keys))) + _bytes_field(3, data)
        records += _bytes_field(3, record)
    message = b"".join(_bytes_field(1, key.encode()) for key in keys) + bytes(records)
    return MAGIC + message + md5(message, usedforsecurity=False).digest()


def _bytes_field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    return bytes(written)
