"""Messages in a registry's frame: schemas that change under a topic, and a registry that is not always there.

Most tests use a fake registry that shows faults on request; others use a real one, and drain.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.message_format import AvroRegistry, JsonRegistry, ProtobufRegistry, RegistrySchemas
from kdi_assets.documents.model.message_rules import Route
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.formats.errors import RegistryUnavailable, SubjectVersionUnknown, TooManySchemas
from kdi_assets.messages.formats.registry.client import RegistryClient
from kdi_assets.messages.formats.registry.schema import Referenced, Schema, Version
from kdi_assets.messages.formats.registry.schemas import Schemas
from kdi_assets.streams.ledger.entry import FieldCounts
from kdi_assets.streams.rules.errors import SchemaDisagrees
from tests.conftest import DrivenFactory
from tests.driven import AS_DECODED
from tests.formats.fake_registry import RunningRegistry
from tests.formats.framed import framed
from tests.formats.registered import FIRST, SECOND, SUBJECT, THIRD, in_avro, in_protobuf, of_avro
from tests.formats.registry import RealRegistry
from tests.tables.routed import drain_group


@pytest.mark.core
@pytest.mark.scenario("schema registry down, unknown schema id")
def test_avro_of_several_schemas_becomes_one_record_and_every_other_message_a_dead_letter(
    driven: DrivenFactory, registry: RunningRegistry
) -> None:
    """Also schemas of another subject, which are unknown before a message names one.

    Procedure: messages with ids of two versions, of another subject, of schemas of other types, and with ids that the
    registry does not have; drain.
    Pass: what converts to the record is a row; each other message is a dead letter with its reason and its schema's id.
    """
    first, second = (registry.register(SUBJECT, json.dumps(schema)) for schema in (FIRST, SECOND))
    elsewhere = registry.register("elsewhere", json.dumps(THIRD))
    text = registry.register("elsewhere", '"string"')
    protobuf = registry.register("elsewhere", 'syntax = "proto3"; message M {}', type="PROTOBUF")
    stream = of_avro(driven, registry)
    good = in_avro(first, FIRST, id=2)
    stream.send(in_avro(first, FIRST, id=1), in_avro(second, SECOND, id=2, note="two"))
    stream.send(in_avro(elsewhere, THIRD, id=3, note="three", shop="left out"), None)
    stream.send(b"", b"\x00\x00", good[5:], framed(99, good[5:]), framed(2**32 - 1, good[5:]))
    stream.send(framed(text, good[5:]), framed(protobuf, b""), good[:5], good + b"\x00")

    report = stream.drain()

    assert stream.rows("id", "note") == [(1, None), (2, "two"), (3, "three")]
    assert stream.letters("reason", "schema_id") == [
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
    """Procedure: drain; stop the registry; drain messages of a known schema; drain again with a message of an unknown
    schema; start the registry, drain.
    Pass: known schemas continue; the unknown id is an error that a retry heals, nothing is committed, and no message is
    lost or made a dead letter.
    """
    first = registry.register(SUBJECT, json.dumps(FIRST))
    stream = of_avro(driven, registry, version=1)
    stream.send(in_avro(first, FIRST, id=1))
    stream.drain()
    registry.stop()

    stream.send(in_avro(first, FIRST, id=2), b"\x00" + bytes(3))
    stream.drain()
    version = TableLog.existing(stream.uri).version
    second = registry.register(SUBJECT, json.dumps(SECOND))
    stream.send(in_avro(second, SECOND, id=3, note="three"), in_avro(first, FIRST, id=4))
    with pytest.raises(RegistryUnavailable):
        stream.drain()

    assert TableLog.existing(stream.uri).version == version
    assert (stream.rows("id"), stream.letters("reason")) == ([1, 2], ["too_short"])

    registry.start()
    stream.drain()

    assert (stream.rows("id"), stream.letters("reason")) == ([1, 2, 3, 4], ["too_short"])
    assert stream.audit().complete


def test_a_later_version_neither_adds_nor_empties_columns_in_silence(
    driven: DrivenFactory, registry: RunningRegistry
) -> None:
    """The subject also has an invalid schema, from times when registries checked less: no message names it, nothing
    ends.
    """
    registry.register(SUBJECT, '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "nowhere"}]}')
    second = registry.register(SUBJECT, json.dumps(SECOND))
    stream = of_avro(driven, registry)
    stream.send(in_avro(second, SECOND, id=1, note="one"))
    stream.drain()

    for schema, why in ((THIRD, "shop is not in the table"), (FIRST, "note is not in the latest version")):
        later = registry.register(SUBJECT, json.dumps(schema))
        stream.send(in_avro(later, schema, id=later, note=None, shop=None))
        with pytest.raises(SchemaDisagrees, match=why):
            stream.drain()

    stream.with_definition(format=AvroRegistry(RegistrySchemas(registry.described(), SUBJECT, 2))).drain()

    assert stream.rows("id", "note") == [(1, "one"), (3, None), (4, None)]


def test_messages_that_hardly_have_frames_are_not_asked_for_one_by_one(
    driven: DrivenFactory, registry: RunningRegistry
) -> None:
    registry.register(SUBJECT, json.dumps(FIRST))
    stream = of_avro(driven, registry)
    stream.send(*(framed(number, b"") for number in range(100, 1102)))
    with pytest.raises(TooManySchemas, match="most likely they have no frame"):
        stream.drain()

    assert not [path for path in registry.asked if path.startswith("/schemas/ids/1")]


def test_a_pass_judges_by_the_schemas_that_it_decoded_with(driven: DrivenFactory, registry: RunningRegistry) -> None:
    """Purpose: the second table of a pass may know a schema that was unknown when the messages were decoded.
    Procedure: two tables of one topic; a message names a schema that is registered once the pass has begun.
    Pass: it is a row of the second table, and no dead letter of the one with the rest.
    """
    first = registry.register(SUBJECT, json.dumps(FIRST))
    stream = of_avro(driven, registry, version=1)
    stream.send(in_avro(first, FIRST, id=1), in_avro(first + 1, SECOND, id=2, note="two"), b"bad")
    rest = stream.with_definition(table="bronze/ones", route=Route("id = 1", "dead_letters", {"bronze/twos": "id = 2"}))
    twos = stream.with_definition(table="bronze/twos", route=Route("id = 2"))

    def register_once_it_reads(of: Stream, point: str) -> None:
        if of is rest.stream and point == "before reading" and len(registry.subjects[SUBJECT]) == 1:
            assert registry.register(SUBJECT, json.dumps(SECOND)) == first + 1

    drained = drain_group([rest, twos], at=register_once_it_reads)

    assert [d.result().rows_added for d in drained.values()] == [1, 1]
    assert (rest.rows("id"), twos.rows("id")) == ([1], [2])
    assert (rest.letters("reason"), twos.letters("reason")) == (["no_magic_byte"], [])


HEAD = 'syntax = "proto3"; package shop; message Heartbeat { int32 n = 1; } '
ONE = HEAD + "message Order { int64 id = 1; }"
TWO = HEAD + "message Order { int64 id = 1; optional string note = 2; }"
ELSEWHERE = TWO.replace("}", " string shop = 3; }")
CHANGED = HEAD + "message Order { string id = 1; }"
NUMBER_NINE = b"\x48\x01"
"""A field that no schema has."""


def test_protobuf_of_several_schemas_becomes_one_record_and_every_other_message_a_dead_letter(
    driven: DrivenFactory, registry: RunningRegistry
) -> None:
    """Also schemas of another subject, which are unknown before a message names one.

    Pass: unknown fields are counted, by their schema's name for them, otherwise by number.
    """
    first, second = (registry.register(SUBJECT, text, type="PROTOBUF") for text in (ONE, TWO))
    elsewhere, changed = (registry.register("elsewhere", text, type="PROTOBUF") for text in (ELSEWHERE, CHANGED))
    avro = registry.register("elsewhere", '"string"')
    format_ = ProtobufRegistry(RegistrySchemas(registry.described(), SUBJECT), "shop.Order")
    stream = driven(partitions=1, **{**AS_DECODED, "format": format_})
    stream.send(
        in_protobuf(first, ONE, id=1),
        in_protobuf(second, TWO, id=2, note="two"),
        in_protobuf(elsewhere, ELSEWHERE, id=3, note="three", shop="left out") + NUMBER_NINE,
        in_protobuf(second, TWO),  # a message of defaults, of no bytes
        None,
        b"",
        b'{"id": 1}',
        in_protobuf(second, TWO, b"\x00", "shop.Heartbeat", n=1),
        in_protobuf(second, TWO, b"\x02\x08"),
        in_protobuf(99, TWO, id=1),
        in_protobuf(changed, CHANGED, id="five"),
        in_protobuf(avro, TWO, id=1),
        in_protobuf(second, TWO, id=1)[:5],
        in_protobuf(second, TWO, id=1)[:-1],
    )

    report = stream.drain()

    assert stream.rows("id", "note") == [(1, None), (2, "two"), (3, "three"), (0, None)]
    assert stream.letters("reason", "schema_id") == [
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


REFERRING: Sequence[tuple[str, str, str, str]] = [
    (
        "AVRO",
        "shop.Money",
        '{"type": "record", "name": "Money", "namespace": "shop", "fields": [{"name": "cents", "type": "long"}]}',
        '{"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "price", "type": "Money"}]}',
    ),
    (
        "PROTOBUF",
        "money.proto",
        'syntax = "proto3";\npackage shop;\n\nmessage Money {\n  int64 cents = 1;\n}\n',
        'syntax = "proto3";\npackage shop;\n\nimport "money.proto";\n\nmessage Order {\n  shop.Money price = 1;\n}\n',
    ),
]


def plain(text: str) -> object:
    """A schema's text without its layout, which a registry may change."""
    return json.loads(text) if text.startswith("{") else text.split()


@pytest.mark.parametrize(("type_", "name", "money", "order"), REFERRING)
def test_schemas_are_read_of_a_real_registry_with_what_they_refer_to(
    real_registry: RealRegistry, tmp_path: Path, type_: str, name: str, money: str, order: str
) -> None:
    real_registry.register(f"money {type_}/€", money, type_=type_)
    id_ = real_registry.register(f"order {type_}", order, type_=type_, references=((name, f"money {type_}/€", 1),))

    told = Schemas(real_registry.described, home=tmp_path).by_id(id_)

    assert isinstance(told, Schema)
    assert (told.id, told.type, plain(told.text)) == (id_, type_, plain(order))
    assert [(r.name, plain(r.text)) for r in told.references] == [(name, plain(money))]
    assert all(isinstance(reference, Referenced) for reference in told.references)
    assert Schemas(real_registry.described, home=tmp_path).by_id(id_) == told


def test_versions_deleted_ones_and_what_nobody_registered_in_a_real_registry(
    real_registry: RealRegistry, tmp_path: Path
) -> None:
    subject = "versions-value"
    texts = ['"int"', '["null", "int"]', '["null", "int", "long"]']
    first, second, third = (real_registry.register(subject, text) for text in texts)
    real_registry.delete(subject, 3)
    schemas = Schemas(real_registry.described, home=tmp_path)

    assert schemas.version(subject) == Version(subject, 2, second)
    assert schemas.version(subject, 1) == Version(subject, 1, first)
    assert schemas.by_ids([first, 2_000_000_000]) == {first: Schema(first, "AVRO", '"int"'), 2_000_000_000: None}
    assert schemas.by_id(third) is not None
    assert schemas.ids_of(subject) == tuple(sorted([first, second, third]))
    assert schemas.ids_of("nobody") == ()
    for of, version in (("nobody", None), (subject, 9)):
        with pytest.raises(SubjectVersionUnknown):
            schemas.version(of, version)
    assert {"AVRO", "JSON", "PROTOBUF"} <= set(RegistryClient(real_registry.described).types())


def test_json_is_drained_and_each_message_held_against_the_schema_that_it_names(
    driven: DrivenFactory, real_registry: RealRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the later version requires a note."""
    monkeypatch.setenv("KDI_HOME", str(tmp_path / "home"))  # the cache of the registry is there
    money = {"$id": "money.json", "properties": {"cents": {"type": "integer", "minimum": 0}}}
    real_registry.register("json-money", json.dumps(money), type_="JSON")
    fields = {"id": {"type": "integer"}, "price": {"$ref": "money.json"}, "note": {"type": ["string", "null"]}}
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "properties": fields}
    refers = (("money.json", "json-money", 1),)
    first, second = (
        real_registry.register("json-value", json.dumps(each), type_="JSON", references=refers)
        for each in (schema, {**schema, "required": ["note"]})
    )
    format_ = JsonRegistry(RegistrySchemas(real_registry.described, "json-value"), validate=True)
    stream = driven(partitions=1, **{**AS_DECODED, "format": format_})
    said = b'{"id": 1, "price": {"cents": 5}}'
    stream.send(framed(first, said), framed(second, b'{"id": 2, "price": {"cents": 6}, "note": "two"}'))
    stream.send(framed(second, said), framed(first, b'{"id": 3, "price": {"cents": -1}}'))
    stream.send(framed(first, b'{"id": 4'), said)

    stream.drain()

    assert stream.rows("id", "price", "note") == [(1, {"cents": 5}, None), (2, {"cents": 6}, "two")]
    assert stream.letters("reason", "field", "schema_id") == [
        ("schema_violation", "note", second),
        ("schema_violation", "price.cents", first),
        ("malformed_json", None, first),
        ("no_magic_byte", None, None),
    ]
