"""Avro behind a registry's frame: schemas that change under a topic, and a registry that is not always there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kdi_assets.drain.refusals import SchemaDisagrees
from kdi_assets.formats.registry.refusals import RegistryUnavailable, TooManySchemas
from kdi_assets.ledger.log import TableLog
from kdi_assets.message_format import AvroRegistry, RegistrySchemas
from kdi_assets.message_rules import Route
from kdi_assets.stream import Stream
from tests.avro_bytes import datum
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream
from tests.fake_registry import RunningRegistry
from tests.routed import drain_group

SUBJECT = "orders-value"


def order(*names: str, **types: Any) -> dict[str, Any]:
    """A record with an id and further nullable fields, texts unless another type is given."""
    more = [{"name": n, "type": ["null", types.get(n, "string")], "default": None} for n in names]
    return {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, *more]}


FIRST, SECOND, THIRD = order(), order("note"), order("note", "shop")


def framed(schema_id: int, schema: Any, **row: Any) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + datum(schema, row)


def orders(driven: DrivenFactory, registry: RunningRegistry, *, version: int | None = None) -> DrivenStream:
    return driven(
        partitions=1,
        format=AvroRegistry(RegistrySchemas(registry.described(), SUBJECT, version)),
        record_ddl="",
        columns={},
        coordinates="kafka",
        date_expression="to_date(kafka.timestamp)",
    )


def produce(stream: DrivenStream, *values: bytes | None) -> None:
    for value in values:
        stream.publisher.produce(stream.stream.topic, value, partition=0)
    stream.publisher.flush()


def rows(stream: DrivenStream, *columns: str) -> list[tuple[Any, ...]]:
    found = sorted(stream.found().rows, key=lambda row: row["kafka"]["offset"])
    return [tuple(row[column] for column in columns) for row in found]


def letters(stream: DrivenStream) -> list[tuple[str, int | None]]:
    found = sorted(stream.found().dead_letters, key=lambda letter: letter["offset"])
    return [(letter["reason"], letter["schema_id"]) for letter in found]


@pytest.mark.scenario("schema registry down, unknown schema id")
def test_messages_of_several_schemas_become_one_record_and_every_other_is_a_dead_letter(
    driven: DrivenFactory, registry: RunningRegistry
) -> None:
    """Also schemas of another subject, which are not known before a message names one.

    Procedure: messages with ids of two versions, of another subject, of schemas of other types, and with ids that the
    registry says it has not; drain.
    Pass: what becomes the record is a row; each other message is a dead letter with its reason and its schema's id.
    """
    first = registry.register(SUBJECT, json.dumps(FIRST))
    second = registry.register(SUBJECT, json.dumps(SECOND))
    elsewhere = registry.register("elsewhere", json.dumps(THIRD))
    text = registry.register("elsewhere", '"string"')
    protobuf = registry.register("elsewhere", 'syntax = "proto3"; message M {}', type="PROTOBUF")
    stream = orders(driven, registry)
    good = framed(first, FIRST, id=2)
    produce(stream, framed(first, FIRST, id=1), framed(second, SECOND, id=2, note="two"))
    produce(stream, framed(elsewhere, THIRD, id=3, note="three", shop="left out"), None)
    produce(stream, b"", b"\x00\x00", good[5:], b"\x00\x00\x00\x00\x63" + good[5:], b"\x00\xff\xff\xff\xff" + good[5:])
    produce(stream, b"\x00" + text.to_bytes(4, "big") + good[5:])
    produce(stream, b"\x00" + protobuf.to_bytes(4, "big"), good[:5], good + b"\x00")

    report = stream.drain()

    assert rows(stream, "id", "note") == [(1, None), (2, "two"), (3, "three")]
    assert letters(stream) == [
        ("too_short", None),
        ("too_short", None),
        ("no_magic_byte", None),
        ("unknown_schema", 99),
        ("unknown_schema", None),
        ("incompatible_schema", text),
        ("incompatible_schema", protobuf),
        ("malformed_avro", first),
        ("trailing_bytes", first),
    ]
    assert len(report.commits) == 1
    assert report.unknown.named == {"shop": 1}


@pytest.mark.scenario("schema registry down, unknown schema id")
def test_with_the_registry_down_known_schemas_are_drained_and_no_message_is_judged_by_its_silence(
    driven: DrivenFactory, registry: RunningRegistry
) -> None:
    """Procedure: drain; stop the registry; drain messages of a known schema; drain again with one of a schema that is
    not known; start the registry, drain.
    Pass: known schemas go on; the unknown id is an error that passes, nothing is committed, and no message is lost or
    made a dead letter by it.
    """
    first = registry.register(SUBJECT, json.dumps(FIRST))
    stream = orders(driven, registry, version=1)
    produce(stream, framed(first, FIRST, id=1))
    stream.drain()
    registry.stop()

    produce(stream, framed(first, FIRST, id=2), b"\x00" + bytes(3))
    stream.drain()
    version = TableLog.existing(stream.uri).version
    second = registry.register(SUBJECT, json.dumps(SECOND))
    produce(stream, framed(second, SECOND, id=3, note="three"), framed(first, FIRST, id=4))
    with pytest.raises(RegistryUnavailable):
        stream.drain()

    assert TableLog.existing(stream.uri).version == version
    assert (rows(stream, "id"), letters(stream)) == ([(1,), (2,)], [("too_short", None)])

    registry.start()
    stream.drain()

    assert (rows(stream, "id"), letters(stream)) == ([(1,), (2,), (3,), (4,)], [("too_short", None)])
    assert stream.audit().complete


def test_a_later_version_neither_adds_nor_empties_columns_in_silence(
    driven: DrivenFactory, registry: RunningRegistry
) -> None:
    """Beside it a schema that is none, from times when registries asked for less: no message names it, nothing ends."""
    registry.register(SUBJECT, '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "nowhere"}]}')
    second = registry.register(SUBJECT, json.dumps(SECOND))
    stream = orders(driven, registry)
    produce(stream, framed(second, SECOND, id=1, note="one"))
    stream.drain()

    for schema, why in ((THIRD, "shop is not in the table"), (FIRST, "note is not in the latest version")):
        later = registry.register(SUBJECT, json.dumps(schema))
        produce(stream, framed(later, schema, id=later, note=None, shop=None))
        with pytest.raises(SchemaDisagrees, match=why):
            stream.drain()

    stream.with_definition(format=AvroRegistry(RegistrySchemas(registry.described(), SUBJECT, 2))).drain()

    assert rows(stream, "id", "note") == [(1, "one"), (3, None), (4, None)]


def test_messages_that_hardly_have_frames_are_not_asked_for_one_by_one(
    driven: DrivenFactory, registry: RunningRegistry
) -> None:
    registry.register(SUBJECT, json.dumps(FIRST))
    stream = orders(driven, registry)
    produce(stream, *(b"\x00" + number.to_bytes(4, "big") for number in range(100, 1102)))
    with pytest.raises(TooManySchemas, match="hardly begin with the id of a schema"):
        stream.drain()

    assert not [path for path in registry.asked if path.startswith("/schemas/ids/1")]


def test_a_pass_judges_by_the_schemas_that_it_decoded_with(driven: DrivenFactory, registry: RunningRegistry) -> None:
    """Purpose: the second table of a pass may know a schema that nobody knew when the messages were decoded.
    Procedure: two tables of one topic; a message names a schema that is registered once the pass has begun.
    Pass: it is a row of the second table, and no dead letter of the one with the rest.
    """
    first = registry.register(SUBJECT, json.dumps(FIRST))
    stream = orders(driven, registry, version=1)
    produce(stream, framed(first, FIRST, id=1), framed(first + 1, SECOND, id=2, note="two"), b"bad")
    rest = stream.with_definition(table="bronze/ones", route=Route("id = 1", "dead_letters", {"bronze/twos": "id = 2"}))
    twos = stream.with_definition(table="bronze/twos", route=Route("id = 2"))

    def register_once_it_reads(of: Stream, point: str) -> None:
        if of is rest.stream and point == "before reading" and SECOND not in registered:
            registered.append(SECOND)
            assert registry.register(SUBJECT, json.dumps(SECOND)) == first + 1

    registered: list[Any] = []
    drained = drain_group([rest, twos], at=register_once_it_reads)

    assert [d.result().rows_added for d in drained.values()] == [1, 1]
    assert (rows(rest, "id"), rows(twos, "id")) == ([(1,)], [(2,)])
    assert (letters(rest), letters(twos)) == ([("no_magic_byte", None)], [])
