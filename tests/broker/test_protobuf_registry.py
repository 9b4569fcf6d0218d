"""Protobuf behind a registry's frame: schemas that change under a topic, several messages in one text."""

from __future__ import annotations

from typing import Any

from kdi_assets.ledger.entry import FieldCounts
from kdi_assets.message_format import ProtobufRegistry, RegistrySchemas
from tests.conftest import DrivenFactory
from tests.fake_registry import RunningRegistry
from tests.protobuf_messages import message_class

SUBJECT = "orders-value"
HEAD = 'syntax = "proto3"; package shop; message Heartbeat { int32 n = 1; } '
FIRST = HEAD + "message Order { int64 id = 1; }"
SECOND = HEAD + "message Order { int64 id = 1; optional string note = 2; }"
ELSEWHERE = SECOND.replace("}", " string shop = 3; }")
NUMBER_NINE = b"\x48\x01"
"""A field that no schema has."""
CHANGED = HEAD + "message Order { string id = 1; }"


def framed(schema_id: int, text: str, index: bytes = b"\x02\x02", message: str = "shop.Order", **said: Any) -> bytes:
    payload: bytes = message_class(text, message)(**said).SerializeToString()
    return b"\x00" + schema_id.to_bytes(4, "big") + index + payload


def test_messages_of_several_schemas_become_one_record_and_every_other_is_a_dead_letter(
    driven: DrivenFactory, registry: RunningRegistry
) -> None:
    """Also schemas of another subject, which are not known before a message names one.

    Pass: fields that the record has not are counted, by the name that the schema has for them, else by their number.
    """
    ids = [registry.register(SUBJECT, text, type="PROTOBUF") for text in (FIRST, SECOND)]
    first, second = ids
    elsewhere = registry.register("elsewhere", ELSEWHERE, type="PROTOBUF")
    changed = registry.register("elsewhere", CHANGED, type="PROTOBUF")
    avro = registry.register("elsewhere", '"string"')
    stream = driven(
        partitions=1,
        format=ProtobufRegistry(RegistrySchemas(registry.described(), SUBJECT), "shop.Order"),
        record_ddl="",
        columns={},
        coordinates="kafka",
        date_expression="to_date(kafka.timestamp)",
    )
    values = [
        framed(first, FIRST, id=1),
        framed(second, SECOND, id=2, note="two"),
        framed(elsewhere, ELSEWHERE, id=3, note="three", shop="left out") + NUMBER_NINE,
        framed(second, SECOND),  # a message of defaults, of no bytes
        None,
        b"",
        b'{"id": 1}',
        framed(second, SECOND, b"\x00", "shop.Heartbeat", n=1),
        framed(second, SECOND, b"\x02\x08"),
        framed(99, SECOND, id=1),
        framed(changed, CHANGED, id="five"),
        framed(avro, SECOND, id=1),
        framed(second, SECOND, id=1)[:5],
        framed(second, SECOND, id=1)[:-1],
    ]
    for value in values:
        stream.publisher.produce(stream.stream.topic, value, partition=0)
    stream.publisher.flush()

    report = stream.drain()

    rows = sorted(stream.found().rows, key=lambda row: row["kafka"]["offset"])
    letters = sorted(stream.found().dead_letters, key=lambda letter: letter["offset"])
    assert [(row["id"], row["note"]) for row in rows] == [(1, None), (2, "two"), (3, "three"), (0, None)]
    assert [(letter["reason"], letter["schema_id"]) for letter in letters] == [
        ("too_short", None),
        ("no_magic_byte", None),
        ("other_message", second),
        ("bad_message_index", second),
        ("unknown_schema", 99),
        ("incompatible_schema", changed),
        ("incompatible_schema", avro),
        ("too_short", second),
        ("malformed_protobuf", second),
    ]
    assert report.unknown == FieldCounts(1, {"#9": 1, "shop": 1})
