"""Aggregates of the Kinesis Producer Library, parsed for the second client: by a library that the reader does not use.

Sent to workers by value, as ``held_records``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from hashlib import md5

_MAGIC, _MD5_BYTES = bytes.fromhex("f3899ac2"), 16
_GROUP = 3
"""The wire type of a group: nobody writes them into an aggregate, and the reader takes such data for a plain record."""


def aggregate_parser() -> Callable[[bytes], Sequence[tuple[bytes, bytes]]]:
    """A function that finds partition key and data of each user record; none if the data is that of another record."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError
    from google.protobuf.unknown_fields import UnknownFieldSet

    file = descriptor_pb2.FileDescriptorProto(name="kpl.proto", syntax="proto2")
    whole, record = file.message_type.add(name="Aggregated"), file.message_type.add(name="UserRecord")
    for message, number, name, kind, label in (
        (whole, 1, "keys", "BYTES", "REPEATED"),
        (whole, 2, "hash_keys", "BYTES", "REPEATED"),
        (whole, 3, "records", "MESSAGE", "REPEATED"),
        (record, 1, "key_index", "UINT64", "REQUIRED"),
        (record, 2, "hash_key_index", "UINT64", "OPTIONAL"),
        (record, 3, "data", "BYTES", "REQUIRED"),
    ):
        field = message.field.add(name=name, number=number, type_name=".UserRecord" if kind == "MESSAGE" else None)
        field.type, field.label = getattr(field, f"TYPE_{kind}"), getattr(field, f"LABEL_{label}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    aggregated = message_factory.GetMessageClass(pool.FindMessageTypeByName("Aggregated"))

    def user_records(data: bytes) -> Sequence[tuple[bytes, bytes]]:
        if data[: len(_MAGIC)] != _MAGIC:
            return ()
        body, digest = data[len(_MAGIC) : -_MD5_BYTES], data[-_MD5_BYTES:]
        if md5(body, usedforsecurity=False).digest() != digest:
            return ()
        parsed = aggregated()
        try:
            parsed.ParseFromString(body)
            explicit = [parsed.hash_keys[r.hash_key_index] for r in parsed.records if r.HasField("hash_key_index")]
            found = [(parsed.keys[r.key_index], r.data) for r in parsed.records]
        except (DecodeError, IndexError, OverflowError, TypeError):  # the last two of an index beyond 63 bits
            return ()
        has_groups = any(field.wire_type == _GROUP for m in (parsed, *parsed.records) for field in UnknownFieldSet(m))
        is_whole = parsed.IsInitialized() and all(re.fullmatch(rb"[0-9]{1,39}", each) for each in explicit)
        return found if is_whole and not has_groups else ()

    return user_records
