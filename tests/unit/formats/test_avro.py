"""Avro without Spark: frames, containers, and differences of a writer's schema and a reader's."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from kdi_assets.messages.formats.avro.container import blocks as module
from kdi_assets.messages.formats.avro.container.blocks import NoContainer, opened, opening
from kdi_assets.messages.formats.avro.schema_text import canonical_form, other_meanings, unknown_paths
from kdi_assets.messages.formats.framing import Frame, MessageIndex, split_frame, split_message_index
from tests.formats.avro_bytes import COMPRESS, SYNC, container, datum, long, record
from tests.formats.framed import FRAMES

NODE = {**record("Node", n="int"), "namespace": "a.b"}
NODE["fields"] = [*NODE["fields"], {"name": "next", "type": ["null", "Node"]}]


@pytest.mark.parametrize(
    ("writer", "reader", "paths"),
    [
        (record("R", a="int"), record("R", a="int", b="int"), []),
        (record("R", a="int", b="int"), record("R", a="int"), ["b"]),
        (record("R", a=["null", record("S", x="int", y="int")]), record("R", a=record("S", x="int")), ["a.y"]),
        (
            record("R", a={"type": "array", "items": record("S", x="int", y="int")}, c="S"),
            record("R", a={"type": "array", "items": record("S", x="int")}, c="S"),
            ["a[].y", "c.y"],
        ),
        (
            record("R", m={"type": "map", "values": record("S", x="int", y="int")}),
            record("R", m={"type": "map", "values": ["null", record("S", x="int")]}),
            ["m[].y"],
        ),
        (record("R", a=NODE), record("R", a={**NODE, "fields": NODE["fields"][1:]}), ["a.n"]),
    ],
)
def test_what_the_reader_passes_over_is_named(writer: object, reader: object, paths: list[str]) -> None:
    assert unknown_paths(json.dumps(writer), json.dumps(reader)) == paths


def test_a_field_that_the_reader_names_by_an_alias_is_known() -> None:
    reader = {"type": "record", "name": "R", "fields": [{"name": "new", "aliases": ["old"], "type": "int"}]}

    assert unknown_paths(json.dumps(record("R", old="int", other="int")), json.dumps(reader)) == ["other"]


def test_a_short_name_means_the_type_of_its_own_namespace() -> None:
    far, near = {**record("S", p="int", q="int"), "namespace": "x"}, {**record("S", z="int"), "namespace": "y"}
    user = {**record("T", s="S"), "namespace": "x"}
    reader = record("r.R", a={**record("S", p="int"), "namespace": "x"}, b=near, c="x.S", d=user)

    paths = unknown_paths(json.dumps(record("r.R", a=far, b=near, c="x.S", d=user)), json.dumps(reader))

    assert paths == ["a.q", "c.q", "d.s.q"]


def logical(type_: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": type_, "logicalType": name, **more}


MILLIS, MICROS = logical("long", "timestamp-millis"), logical("long", "timestamp-micros")


@pytest.mark.parametrize(
    ("written", "read", "differ"),
    [
        (MILLIS, MICROS, True),
        (["null", MILLIS], MICROS, True),
        ("long", MILLIS, False),
        (MICROS, "long", False),
        (logical("bytes", "decimal", precision=9, scale=2), logical("bytes", "decimal", precision=12, scale=2), False),
        (logical("bytes", "decimal", precision=9, scale=2), logical("bytes", "decimal", precision=9, scale=4), True),
        (logical("string", "uuid"), "string", False),
    ],
)
def test_a_number_of_another_unit_or_scale_is_named(written: object, read: object, differ: bool) -> None:
    writer, reader = (record("R", a={"type": "array", "items": record("S", n=type_)}) for type_ in (written, read))

    assert other_meanings(json.dumps(writer), json.dumps(reader)) == (["a[].n"] if differ else [])


SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, {"name": "s", "type": "string"}]}
FORM = canonical_form('{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}')


def values(count: int) -> list[dict[str, Any]]:
    return [{"id": n, "s": f"text {n}" * 3} for n in range(count)]


def datums(count: int) -> bytes:
    return b"".join(datum(SCHEMA, value) for value in values(count))


def reason(payload: bytes, **options: Any) -> str:
    with pytest.raises(NoContainer) as condemned:
        opened(payload, **options)
    return str(condemned.value)


@pytest.mark.parametrize("codec", COMPRESS)
def test_the_blocks_of_a_container_are_those_of_an_array(codec: str) -> None:
    found = opened(container(SCHEMA, values(30), [], values(2), codec=codec))

    assert found.datums == long(30) + datums(30) + long(2) + datums(2) + long(0)
    assert canonical_form(found.schema) == canonical_form(str(SCHEMA).replace("'", '"'))


@pytest.mark.parametrize("codec", COMPRESS)
def test_a_container_that_is_cut_off_anywhere_is_none(codec: str) -> None:
    whole = container(SCHEMA, values(30), codec=codec)
    header = whole.index(SYNC) + len(SYNC)

    told = {reason(whole[:end]) for end in range(len(whole)) if end != header}

    assert told == {"not_a_container", "malformed_container"}
    assert opened(whole[:header]).datums == long(0)


@pytest.mark.parametrize("codec", COMPRESS)
def test_a_container_holds_so_many_bytes_and_no_more(codec: str) -> None:
    size = len(datums(30))
    two = container(SCHEMA, values(30), values(30), codec=codec)

    assert len(opened(two, limit=2 * size).datums) > 2 * size
    assert reason(two, limit=2 * size - 1) == "too_large"
    assert reason(two, limit=size) == "too_large"
    assert reason(container(SCHEMA, [{"id": 1, "s": "x" * 10**6}], codec=codec), limit=1000) == "too_large"


def test_datums_without_a_byte_have_a_limit_of_their_own() -> None:
    many = container("null", [None], text='"null"')
    head = many[: many.index(SYNC) + len(SYNC)]

    assert opened(head + long(1_000_000) + long(0) + SYNC).datums == long(1_000_000) + long(0)
    assert reason(head + long(1_000_001) + long(0) + SYNC) == "too_large"
    assert reason(head + (long(600_000) + long(0) + SYNC) * 2) == "too_large"
    assert reason(head + long(-1) + long(0) + SYNC) == "malformed_container"


def test_what_a_batch_holds_comes_back_in_batches_that_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_BYTES", 1000)
    large = container(SCHEMA, [{"id": 1, "s": "x" * 600}])
    known = {canonical_form(opened(large).schema): 3}
    batches = [pa.array([large, b"x", None, large, large, large]), pa.array([], pa.binary()), pa.array([large])]

    found = list(opening(known)(iter(batches)))

    assert [len(batch) for batch in found] == [4, 2, 0, 0, 1]
    rows = [row for batch in found for row in batch.to_pylist()]
    assert [row["reason"] for row in rows] == [None, "not_a_container", "not_a_container", None, None, None, None]
    assert {row["writer"] for row in rows if not row["reason"]} == {3}


def test_a_schema_that_is_not_known_is_told_in_its_canonical_form_and_its_datums_are_left() -> None:
    [found] = opening({FORM: 0})(iter([pa.array([container(SCHEMA, values(1)), container(SCHEMA, text="{}")])]))

    assert found.to_pylist() == [
        {"reason": None, "writer": None, "schema": canonical_form(opened(container(SCHEMA)).schema), "datums": None},
        {"reason": "malformed_container", "writer": None, "schema": None, "datums": None},
    ]


@pytest.mark.parametrize(
    "schema",
    [
        r'{"type":"record","name":"r","fields":[{"name":"\ud800","type":"int"}]}',
        r'{"type":"enum","name":"e","symbols":["\udfff"]}',
        '{"type":"fixed","name":"f","size":1e999}',
        '{"type":"fixed","name":"f","size":-1e999}',
        '{"type":"fixed","name":"f","size":NaN}',
        '{"type":"fixed","name":"f","size":[]}',
        f'{{"type":"fixed","name":"f","size":"{"9" * 5000}"}}',
        '{"type":"record","name":["r"],"fields":[]}',
        "[" * 100_000,
        '{"type":' * 10_000,
    ],
    ids=range(10),
)
def test_a_schema_that_nobody_can_write_down_is_of_a_malformed_container(schema: str) -> None:
    """And not an error of the worker, which would end each drain."""
    [found] = opening({})(iter([pa.array([container(SCHEMA, text=schema)])]))

    assert found.to_pylist() == [{"reason": "malformed_container", "writer": None, "schema": None, "datums": None}]


@pytest.mark.parametrize("value", [value for value in FRAMES if value is not None])
def test_a_frame_is_taken_apart_or_refused(value: bytes) -> None:
    reason, schema_id, payload = FRAMES[value]

    assert split_frame(value) == (reason if schema_id is None or payload is None else Frame(schema_id, payload))


@pytest.mark.parametrize(
    ("payload", "path", "message"),
    [
        (b"\x00\x08\x01", (0,), b"\x08\x01"),
        (b"\x02\x00\x08\x01", (0,), b"\x08\x01"),  # the long way to say the same
        (b"\x02\x02\x08\x01", (1,), b"\x08\x01"),
        (b"\x06\x02\x04\x06x", (1, 2, 3), b"x"),
        (b"\x02\x80\x01x", (64,), b"x"),
        (b"\x02\xfe\xff\xff\xff\x0fx", (2**31 - 1,), b"x"),
        (b"\xc8\x01" + b"\x00" * 100 + b"x", (0,) * 100, b"x"),
    ],
)
def test_a_message_index_is_a_path_into_the_file(payload: bytes, path: tuple[int, ...], message: bytes) -> None:
    found = split_message_index(payload)

    assert found == MessageIndex(path, len(payload) - len(message))


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "too_short"),
        (b"\x02", "bad_message_index"),  # one element, and it is missing
        (b"\x02\x80\x80", "bad_message_index"),
        (b"\x01\x00", "bad_message_index"),  # -1 elements
        (b"\x80", "bad_message_index"),  # a count that does not end
        (b"\x02\x01", "bad_message_index"),  # element -1
        (b"\xca\x01" + b"\x00" * 200, "bad_message_index"),  # 101 elements
        (b"\xff\xff\xff\xff\x7f\x00", "bad_message_index"),  # beyond 32 bits
    ],
)
def test_what_is_no_message_index_has_a_reason(payload: bytes, reason: str) -> None:
    assert split_message_index(payload) == reason
