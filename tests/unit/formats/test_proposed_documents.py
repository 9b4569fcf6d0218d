"""The proposals of `kdi new` for samples, also in a registry's frame: a document that loads, and the reasons."""

from __future__ import annotations

import gzip
import json
import re
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kdi_assets.documents.model.message_format import AvroRegistry, Bytes, JsonRegistry, ProtobufRegistry
from kdi_assets.documents.model.message_rules import FieldUse
from kdi_assets.tools.local.generator import Traffic, WebRequests
from kdi_assets.tools.scaffold.recognise_format import Ask
from kdi_assets.tools.scaffold.registry_lookup import subject_of
from tests.formats.fake_registry import RunningRegistry
from tests.formats.framed import framed
from tests.formats.sampled import NOW, attributes_of, objects, proposed, read_back, text_of

AT = NOW.isoformat()
TEXT_LINES = [f"worker {n}: started, or so it says".encode() for n in range(50)]


def noise(n: int) -> bytes:
    return bytes([0xFF, n % 256]) + Random(n).randbytes(20)


@pytest.mark.parametrize(
    ("values", "landing", "said"),
    [
        (objects(), "json", "JSON objects, 100 of 100 values"),
        ([*objects(60), *TEXT_LINES[:40]], "json", "JSON objects, 60 of 100 values"),
        ([b"{}", b'{"a b": 1}'], "text", "text"),  # no field that could be a column
        ([b"[%d, 2]" % n for n in range(20)], "text", "text"),
        (TEXT_LINES, "text", "text, all of it"),
        ([b"", b" "], "text", "text"),
        ([*TEXT_LINES, b"\xff"], "bytes", "50 of 51 values are text"),
        ([*objects(20), *map(noise, range(30))], "bytes", "`format: text`, which makes dead letters of 30."),
        ([noise(n) for n in range(20)], "bytes", "`format: {avro: {schema_file: FILE}}` or"),
        ([b"%d;x;%d" % (n, n) for n in range(20)], {"csv": {"delimiter": ";"}}, "20 of 20 values with 3 columns"),
        ([b'%d,"a,b ""c""",\n' % n for n in range(20)], {"csv": {"delimiter": ","}}, "give them names"),
        ([b"%d\tx" % n for n in range(20)], {"csv": {"delimiter": "\t"}}, "lines of CSV"),
        ([b"a,b"] * 4, "text", "text"),  # too few to decide
        ([*[b"%d;x" % n for n in range(50)], *TEXT_LINES], "text", "text"),
        ([framed(7, b"\2\x0eabcdefg")] * 20, "bytes", "no SchemaRegistry document is there to ask"),
        ([b"\0" + Random(n).randbytes(30) for n in range(50)], "bytes", "bytes"),  # as many ids as messages
        ([b"Obj\x01" + Random(n).randbytes(30) for n in range(20)], "bytes", "`format: {avro: {container: true, "),
        ([b"\xc3\x01fprint12" + bytes([n]) for n in range(20)], "bytes", "`format: {avro: {schemas: FOLDER}}`"),
        ([gzip.compress(value or b"") for value in objects()], "bytes", "`compression: gzip`"),
    ],
)
def test_messages_are_what_most_are(values: list[bytes | None], landing: object, said: str, tmp_path: Path) -> None:
    found = proposed(values)

    assert attributes_of(found)["format"] == landing
    assert said in text_of(found)
    assert read_back(tmp_path, text_of(found)).mistakes == []


def test_every_message_of_the_sample_is_accounted_for_by_the_comments(tmp_path: Path) -> None:
    values = WebRequests(Traffic(bad=0.1, tombstones=0.05, seed=11)).batch(1000, now=NOW)
    found = proposed(values)
    text, outcome = text_of(found), found.outcome

    assert outcome.rows + outcome.letters.total() + outcome.tombstones == 1000
    assert outcome.tombstones == values.count(None)
    assert f"# With this document the sample becomes {outcome.rows:,} rows" in text
    for (reason, field), count in outcome.letters.items():
        assert f"#   {count} {reason}{f' in {field}' if field else ''}\n" in text
    assert {reason for reason, _ in outcome.letters} == {
        "blank", "invalid_utf8", "malformed_json", "trailing_text", "date_outside_window",
    }  # fmt: skip
    stream = read_back(tmp_path, text).streams["bronze/orders"]
    assert "status string" in stream.record_ddl  # some are text, and text holds both
    assert stream.date_expression.startswith("coalesce(to_date(try_to_timestamp(meta.producer.timestamp))")


def test_what_speaks_for_a_type_or_another_date_stands_beside_it() -> None:
    found = objects(created_at=AT, updated_at=AT, status=lambda n: "OK" if n == 3 else 200)

    text = " ".join(text_of(proposed(found)).split())

    assert "status string -- 100%; 99.0% integer, 1.0% text; bigint makes dead letters of the others" in text
    assert "# Another candidate: to_date(updated_at), `updated_at`: a timestamp, in 100%" in text


def test_no_value_of_a_message_is_written_into_the_document() -> None:
    assert "hunter2" not in text_of(proposed(objects(password="hunter2", tags=["hunter2"], o={"p": "hunter2"})))
    assert "hunter2" not in text_of(proposed([b"%d;hunter2" % n for n in range(20)]))
    assert "hunter2" not in text_of(proposed([b"hunter2;x%d" % n for n in range(20)]))


@pytest.mark.parametrize(
    ("fields", "date"),
    [
        ({"at": AT}, "to_date(at)"),
        ({"updated_at": AT, "created_at": AT}, "to_date(created_at)"),
        ({"day": AT[:10]}, "day"),
        ({"date": AT[:10]}, "date"),
        ({"ts": int(NOW.timestamp())}, "to_date(timestamp_seconds(ts))"),
        ({"ts": NOW.timestamp() + 0.5}, "to_date(timestamp_seconds(ts))"),
        ({"eventTime": int(NOW.timestamp() * 1000)}, "to_date(timestamp_millis(eventTime))"),
        ({"time": int(NOW.timestamp() * 1e6)}, "to_date(timestamp_micros(time))"),
        ({"meta": {"event-time": AT}}, "to_date(meta.`event-time`)"),
        ({"at": AT[:19] + "+0000"}, "to_date(try_to_timestamp(at))"),
        ({"at": lambda n: AT if n else None}, "coalesce(to_date(at), to_date(kafka.timestamp))"),
        ({"birthday": "2001-02-03"}, "to_date(kafka.timestamp)"),
        ({"valid_until": (NOW + timedelta(days=30)).isoformat()}, "to_date(kafka.timestamp)"),
        ({"order_id": 1_700_000_000}, "to_date(kafka.timestamp)"),  # an id in the range of seconds
        ({"tags": [AT]}, "to_date(kafka.timestamp)"),
        ({"at": lambda n: AT if n % 2 else None}, "to_date(kafka.timestamp)"),
        ({}, "to_date(kafka.timestamp)"),
    ],
)
def test_the_date_is_the_events_where_a_field_tells_it_and_else_kafkas(fields: dict[str, Any], date: str) -> None:
    assert attributes_of(proposed(objects(**fields)))["date"] == date


def test_the_window_contains_the_dates_of_the_sample_and_not_those_that_no_event_has(tmp_path: Path) -> None:
    days = ["2012-05-06", (NOW + timedelta(days=20)).date().isoformat(), "1970-01-01", *[AT[:10]] * 97]
    found = proposed(objects(event_date=lambda n: days[n]))

    window = read_back(tmp_path, text_of(found)).streams["bronze/orders"].date_window
    assert str(window.start) == "2012-05-06"
    assert window.last(NOW) >= (NOW + timedelta(days=20)).date()
    assert found.outcome.letters == {("date_outside_window", "date"): 1}


def test_a_field_called_date_that_is_not_the_date_keeps_a_column(tmp_path: Path) -> None:
    found = proposed(objects(date="2026-01-01", created_at=AT))
    stream = read_back(tmp_path, text_of(found)).streams["bronze/orders"]

    assert stream.date_expression == "to_date(created_at)"
    assert stream.columns == {"message_date": "date"}


def test_names_that_are_yaml_sql_or_several_lines_elsewhere_do_no_harm(tmp_path: Path) -> None:
    names = "a: b|yes|null|#|-- x|a\nb|größe|\u2028|a`b|on|'|{x}|a-b|1st|\x1b".split("|")
    found = proposed([json.dumps({"at": AT, **dict.fromkeys(names, 1)}).encode()] * 3)
    stream = read_back(tmp_path, text_of(found)).streams["bronze/orders"]

    assert [line.split()[0] for line in stream.record_ddl.splitlines()] == [
        "at", "yes", "`null`", "`#`", "`größe`", "on", "`a-b`", "`1st`",
    ]  # fmt: skip


def test_columns_of_csv_have_types_that_change_no_text(tmp_path: Path) -> None:
    lines = [f'{n};00{n};{n}.5;"x;{n}";true;2026-03-01T10:00:00Z;;{"TRUE" if n else "false"}' for n in range(20)]
    stream = read_back(tmp_path, text_of(proposed([line.encode() for line in lines]))).streams["bronze/orders"]

    assert [line.split()[1].strip(",") for line in stream.record_ddl.splitlines()] == [
        "bigint", "string", "double", "string", "boolean", "timestamp", "string", "string",
    ]  # fmt: skip


def test_a_header_gives_columns_of_csv_their_names_and_lines_of_other_widths_are_dead_letters(tmp_path: Path) -> None:
    found = proposed(
        [b"id;name;at", *[b"%d;x;%b" % (n, AT.encode()) for n in range(40)], b"1;2", b"1;2;3;4", b'1;"2;3']
    )
    stream = read_back(tmp_path, text_of(found)).streams["bronze/orders"]

    assert [line.split()[0] for line in stream.record_ddl.splitlines()] == ["id", "name", "at"]
    assert stream.date_expression == "to_date(at)"
    assert found.outcome.rows == 40
    assert found.outcome.letters == {
        ("wrong_type", "id"): 1, ("too_few_columns", ""): 1, ("too_many_columns", ""): 1, ("malformed_csv", ""): 1,
    }  # fmt: skip


pytestmark = pytest.mark.usefixtures("at_once")


@pytest.fixture
def ask(registry: RunningRegistry, tmp_path: Path) -> Ask:
    """Asks an empty registry."""
    return partial(subject_of, "orders", registry.described(), tmp_path)


def a_record(*fields: tuple[str, Any], name: str = "Order") -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]})


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
PLACE = ["null", json.loads(a_record(("at", MILLIS), ("next", ["null", "Place"]), name="Place"))]
AVRO = a_record(
    ("id", "long"), ("updated_at", MILLIS), ("place", PLACE), ("date", {"type": "int", "logicalType": "date"})
)
BORN = AVRO.replace('"date"', '"born"', 1)
PROTOBUF = """
syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
message Order { int64 id = 1; Place place = 2; map<string, int32> counts = 3; }
message Other { google.protobuf.Timestamp at = 1; }
message Place { google.protobuf.Timestamp at = 1; repeated string tags = 2; }
"""


def test_json_of_a_registry_has_the_types_that_were_seen(registry: RunningRegistry, ask: Ask, tmp_path: Path) -> None:
    known = registry.register("orders-value", '{"type": "object"}', type="JSON")
    other = registry.register("others-value", '"int"')
    values = [framed(known, value or b"") for value in objects(94, at=NOW.isoformat())]
    bad = [b"x", *(framed(known, payload) for payload in (b"{", b"[1]")), framed(99, b"{}"), framed(other, b"{}")]
    found = proposed([*values, *bad], ask=ask)
    stream = read_back(tmp_path / "defs", text_of(found)).streams["bronze/orders"]

    assert isinstance(stream.format, JsonRegistry)
    written = "id bigint, -- 100%; different in every message at timestamp -- 100%"
    assert stream.record_ddl.split() == written.split()
    assert found.outcome.rows == 94
    assert {reason for reason, _ in found.outcome.letters} == {
        "malformed_json", "no_magic_byte", "unknown_schema", "incompatible_schema", "not_an_object",
    }  # fmt: skip


DROP = FieldUse("drop")


def rename(name: str) -> FieldUse:
    return FieldUse("rename", name)


def kind_of(schema: str) -> str:
    return "AVRO" if schema.startswith("{") else "PROTOBUF"


@pytest.mark.parametrize(
    ("schema", "payload", "date"),
    [
        (AVRO, b"\2", "coalesce(date, to_date(kafka.timestamp))"),
        (BORN, b"\2", "coalesce(to_date(place.at), to_date(kafka.timestamp))"),
        (PROTOBUF, b"\0\x08\1", "coalesce(to_date(place.at), to_date(kafka.timestamp))"),
        (PROTOBUF, b"\2\2", "coalesce(to_date(at), to_date(kafka.timestamp))"),
    ],
)
def test_the_date_is_that_of_the_subjects_field_that_looks_like_the_events_time(
    registry: RunningRegistry, ask: Ask, tmp_path: Path, schema: str, payload: bytes, date: str
) -> None:
    known = registry.register("orders-value", schema, type=kind_of(schema))
    found = proposed([*[framed(known, payload)] * 20, b"x", framed(99, payload)], ask=ask)
    text = text_of(found)
    stream = read_back(tmp_path / "defs", text).streams["bronze/orders"]

    assert isinstance(stream.format, {"AVRO": AvroRegistry, "PROTOBUF": ProtobufRegistry}[kind_of(schema)])
    assert stream.date_expression == date
    assert (found.outcome.rows, found.outcome.letters) == (20, {("no_magic_byte", ""): 1, ("unknown_schema", ""): 1})
    assert "# schemas by their ids: 1 (20 messages), 99 (1 messages)\n" in text
    assert "latest version of orders-value, now 1" in text
    assert "a timestamp, by its schema" in text or "a date, by its schema" in text
    if payload == b"\2\2":
        assert isinstance(stream.format, ProtobufRegistry)
        assert stream.format.message == "shop.Other"


@pytest.mark.parametrize(
    ("schema", "fields"),
    [
        (
            a_record(("id", "long"), ("kafka", "long"), ("ID", "long")),
            {"kafka": rename("source_kafka"), "ID": rename("source_ID")},
        ),
        (a_record(("id", "long"), ("_change_type", "string")), {"_change_type": rename("source_change_type")}),
        (
            "syntax = 'proto3'; message M { int64 id = 1; repeated M parts = 2; string kafka = 3; }",
            {"parts": DROP, "kafka": rename("source_kafka")},
        ),
    ],
)
def test_fields_that_cannot_be_columns_get_a_use(
    registry: RunningRegistry, ask: Ask, tmp_path: Path, schema: str, fields: dict[str, FieldUse]
) -> None:
    known = registry.register("orders-value", schema, type=kind_of(schema))

    text = text_of(proposed([framed(known, b"\0\x08\1")] * 20, ask=ask))

    assert read_back(tmp_path / "defs", text).streams["bronze/orders"].fields == fields


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("syntax = 'proto3'; message M { M next = 1; }", "M has no fields"),
        ("syntax = 'proto3'; enum E { A = 0; }", "no message"),
        (None, "has no version|no subject|not"),
    ],
)
def test_what_no_registry_explains_lands_as_bytes_and_the_document_says_why(
    registry: RunningRegistry, ask: Ask, tmp_path: Path, schema: str | None, why: str
) -> None:
    known = registry.register("orders-value", schema, type=kind_of(schema)) if schema else 7
    found = proposed([framed(known, b"\0\x08\1")] * 20, ask=ask)

    assert read_back(tmp_path / "defs", text_of(found)).streams["bronze/orders"].format == Bytes()
    assert re.search(f"# .*({why})", text_of(found))
    assert "`format: {avro: {registry: NAME}}`" in text_of(found)


def test_comments_say_what_fields_are_for_and_what_their_types_rest_on() -> None:
    values = objects(
        1000,
        price=lambda n: f"{n}.{n % 100:02}",
        shop=lambda n: str(n % 7),
        zip=lambda n: f"{n:05}",
        at=lambda n: int(NOW.timestamp() * 1000) - n,
        **{"coupon": lambda n: "abc"},
    )
    rare = [json.dumps({k: v for k, v in json.loads(one or b"").items() if k != "coupon"}).encode() for one in values]
    text = text_of(proposed([*values[:3], *rare[3:]]))

    remarks = dict(re.findall(r"^ +(\w+) \w+,? +-- (.*)$", text, re.MULTILINE))
    numbers = "in `columns`, try_cast(FIELD AS {}) makes numbers of them"
    assert remarks["id"] == "100%; different in every message"
    assert remarks["price"] == (
        f"100%; different in every message; all are numbers, written as text: {numbers.format('decimal(38,2)')}"
    )
    assert remarks["shop"] == f"100%; all are numbers, written as text: {numbers.format('bigint')}"
    assert remarks["zip"] == "100%; different in every message", "00042 is no number"
    assert remarks["at"] == "100%", "a time, though it is different in every message"
    assert remarks["coupon"] == "0.3%; its type rests on 3 values"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ([None] * 100, "no message has one"),
        ([b"%d" % n for n in range(100)], "every message has one, 100 different; it is the field id"),
        ([b"%d" % (n % 3) for n in range(100)], "every message has one, 3 different; it is the field `shop-no`"),
        ([b"k", *[None] * 99], "1.0% have one, 1 different"),
    ],
)
def test_the_head_says_what_the_keys_are(keys: list[bytes | None], said: str) -> None:
    shops: dict[str, Any] = {"shop-no": lambda n: n % 3}
    values = objects(100, **shops)

    assert f"# Keys: {said}\n" in text_of(proposed(values, keys=keys))
