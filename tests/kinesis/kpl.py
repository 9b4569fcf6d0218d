"""Aggregates of the Kinesis Producer Library (KPL), by the Protobuf library, which the reader does not use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import md5
from typing import Any

MAGIC = bytes.fromhex("f3899ac2")


@dataclass(frozen=True)
class UserRecord:
    """A record that a producer put into an aggregate; its own hash key says to which shard it belongs."""

    key: str
    data: bytes
    explicit: int | None = None

    @property
    def hash_key(self) -> int:
        """The explicit one, or that of the key."""
        return hash_key(self.key.encode()) if self.explicit is None else self.explicit


def hash_key(partition_key: bytes) -> int:
    """The number that says to which shard a record with the key belongs."""
    return int.from_bytes(md5(partition_key).digest())


def aggregate_of(*records: UserRecord) -> bytes:
    """The data of a record that holds these; each key is there once."""
    message = aggregated()()
    for record in records:
        used = [(message.keys, record.key)]
        if record.explicit is not None:
            used.append((message.hash_keys, str(record.explicit)))
        for table, text in used:
            if text not in table:
                table.append(text)
        more = message.records.add(key_index=list(message.keys).index(record.key), data=record.data)
        if record.explicit is not None:
            more.hash_key_index = list(message.hash_keys).index(str(record.explicit))
    return sealed(message.SerializeToString())


def sealed(message: bytes) -> bytes:
    """Magic number, message, MD5."""
    return MAGIC + message + md5(message).digest()


def parse_aggregate(data: bytes) -> list[tuple[str, bytes]]:
    """Partition keys and data of an aggregate."""
    assert data[:4] == MAGIC
    assert data[-16:] == md5(data[4:-16]).digest()
    parsed = aggregated()()
    parsed.ParseFromString(data[4:-16])
    return [(parsed.keys[one.key_index], one.data) for one in parsed.records]


@cache
def aggregated() -> Any:
    """The class of the message in an aggregate."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="kpl.proto", syntax="proto2")
    whole, record = file.message_type.add(name="Aggregated"), file.message_type.add(name="UserRecord")
    for message, number, name, kind, label in (
        (whole, 1, "keys", "STRING", "REPEATED"),
        (whole, 2, "hash_keys", "STRING", "REPEATED"),
        (whole, 3, "records", "MESSAGE", "REPEATED"),
        (record, 1, "key_index", "UINT64", "REQUIRED"),
        (record, 2, "hash_key_index", "UINT64", "OPTIONAL"),
        (record, 3, "data", "BYTES", "REQUIRED"),
    ):
        field = message.field.add(name=name, number=number)
        field.type = getattr(field, f"TYPE_{kind}")
        field.label = getattr(field, f"LABEL_{label}")
        if kind == "MESSAGE":
            field.type_name = ".UserRecord"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Aggregated"))
