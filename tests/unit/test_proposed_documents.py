"""What `kdi new` makes of samples: format, date, window, and a document that passes the loader, with its comments."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.json_format import ParseDict

from kdi_assets.components.documents import parse
from kdi_assets.formats.registry.schema import Schema
from kdi_assets.message_format import AvroRegistry, Bytes, Csv, Json, JsonRegistry, ProtobufRegistry
from kdi_assets.proposal.document import scalar
from kdi_assets.proposal.propose import NO_TIME
from kdi_assets.proposal.registered import Registered
from kdi_assets.sources.generator import Traffic, WebRequests
from tests.avro_bytes import datum
from tests.protobuf_messages import message_class
from tests.sampled import NOW, attributes_of, proposed, read_back, text_of

AT = NOW.isoformat()


def objects(count: int = 100, **fields: Any) -> list[bytes | None]:
    """JSON objects with an id; a field that is a function is asked with the message's number."""
    made = [{"id": n, **{k: v(n) if callable(v) else v for k, v in fields.items()}} for n in range(count)]
    return [json.dumps(one).encode() for one in made]


def zstd(value: bytes) -> bytes:
    compressed: bytes = pa.Codec("zstd").compress(value, asbytes=True)
    return compressed


def framed(payload: bytes, schema_id: int = 7) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def protobuf(text: str, message: str, fields: dict[str, Any]) -> bytes:
    return bytes(ParseDict(fields, message_class(text, message)()).SerializeToString())


def noise(n: int) -> bytes:
    return bytes([0xFF, n % 256]) + Random(n).randbytes(20)


TEXT_LINES = [f"worker {n}: started, or so it says".encode() for n in range(50)]


@pytest.mark.parametrize(
    ("values", "looks", "landing"),
    [
        (objects(), "json", "json"),
        ([*objects(60), *TEXT_LINES[:40]], "json", "json"),
        ([b"{}", b'{"a b": 1}'], "json", "bytes"),  # no field that a column could be made of
        ([*TEXT_LINES, b"\xff"], "mixed", "bytes"),
        ([b"[%d, 2]" % n for n in range(20)], "json_values", "text"),
        (TEXT_LINES, "text", "text"),
        ([*objects(20), *TEXT_LINES[:20]], "text", "text"),
        ([b"%d" % n for n in range(20)], "text", "text"),
        ([*objects(20), *map(noise, range(30))], "mixed", "bytes"),
        ([b"%d;x;%d" % (n, n) for n in range(20)], "csv", {"csv": {"delimiter": ";"}}),
        ([b'%d,"a,b ""c""",\n' % n for n in range(20)], "csv", {"csv": {"delimiter": ","}}),
        ([b"%d\tx" % n for n in range(20)], "csv", {"csv": {"delimiter": "\t"}}),
        ([b"a,b"] * 4, "text", "text"),  # too few to say so
        ([*[b"%d;x" % n for n in range(99)], b"1"], "text", "text"),
        ([*[b"%d;x" % n for n in range(99)], b'1;x"y'], "text", "text"),
        ([framed(json.dumps({"id": n}).encode()) for n in range(20)], "framed_json", "bytes"),
        ([framed(b"\0\x08" + bytes([n])) for n in range(20)], "framed_protobuf", "bytes"),
        ([framed(bytes([2 * n, 0x0E]) + b"abcdefg") for n in range(20)], "framed", "bytes"),
        ([b"\0" + Random(n).randbytes(30) for n in range(50)], "bytes", "bytes"),  # as many ids as messages
        ([b"Obj\x01" + Random(n).randbytes(30) for n in range(20)], "avro_container", "bytes"),
        ([b"\xc3\x01" + b"fprint12" + bytes([n]) for n in range(20)], "avro_single_object", "bytes"),
        ([b"\x08" + bytes([n]) + b"\x12\x02\xff\xfe" for n in range(20)], "protobuf", "bytes"),
        ([noise(n) for n in range(20)], "bytes", "bytes"),
        ([b"", b" "], "text", "text"),
    ],
)
def test_messages_are_what_most_of_them_are_and_land_as_what_can_be_decoded(
    values: list[bytes | None], looks: str, landing: object, tmp_path: Path
) -> None:
    found = proposed(values)

    assert found.recognised.looks == looks
    assert attributes_of(found)["format"] == landing
    assert read_back(tmp_path, text_of(found)).mistakes == []


@pytest.mark.parametrize(("compression", "compress"), [("gzip", gzip.compress), ("zstd", zstd)])
def test_what_a_producer_compressed_is_told_by_what_it_holds(
    compression: str, compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    whole = [compress(value or b"") for value in objects(98, at=AT)]
    bad = [whole[0][:-3], b"plain"]
    two_members = compress(b'{"id": 1,') + compress(f'"at": "{AT}"}}'.encode())
    large = compress(b" " * 5_000_000)
    found = proposed([*whole, *bad, two_members, large])

    stream = read_back(tmp_path, text_of(found)).streams["bronze/orders"]
    assert (stream.compression, stream.format) == (compression, Json())
    assert found.outcome.letters == {(f"not_{compression}", ""): 2}
    assert (found.outcome.rows, found.outcome.unjudged) == (99, 1)
    assert "#   1 message too large to be looked at here\n" in text_of(found)


def test_every_message_of_the_sample_is_accounted_for_by_the_comments(tmp_path: Path) -> None:
    values = WebRequests(Traffic(bad=0.1, tombstones=0.05, seed=11)).batch(1000, now=NOW)
    found = proposed(values)
    text = text_of(found)

    outcome = found.outcome
    assert outcome.rows + outcome.letters.total() + outcome.tombstones == 1000
    assert outcome.tombstones == values.count(None)
    assert f"# Under this document the sample is {outcome.rows:,} rows" in text
    for (reason, field), count in outcome.letters.items():
        assert f"#   {count} {reason}{f' in {field}' if field else ''}\n" in text
    assert {reason for reason, _ in outcome.letters} == {
        "blank", "invalid_utf8", "malformed_json", "trailing_text", "date_outside_window",
    }  # fmt: skip
    stream = read_back(tmp_path, text).streams["bronze/orders"]
    assert "status string" in stream.record_ddl  # some are text, and text takes both
    assert stream.date_expression.startswith("coalesce(to_date(try_to_timestamp(meta.producer.timestamp))")


def test_no_value_of_a_message_is_written_into_the_document() -> None:
    assert "hunter2" not in text_of(proposed(objects(password="hunter2", tags=["hunter2"], o={"p": "hunter2"})))
    assert "hunter2" not in text_of(proposed([b"%d;hunter2" % n for n in range(20)]))


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
        ({"time": int(NOW.timestamp() * 1e9)}, "to_date(timestamp_micros(time div 1000))"),
        ({"ts": str(int(NOW.timestamp() * 1000))}, "to_date(timestamp_millis(try_cast(ts AS bigint)))"),
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


def test_without_any_time_the_date_is_that_of_the_drain_and_the_document_says_so(tmp_path: Path) -> None:
    found = proposed(objects(), written_at=None)

    assert found.date.sql == NO_TIME
    assert "# Neither the messages nor Kafka say a time: the date is that of the drain.\n" in text_of(found)
    assert read_back(tmp_path, text_of(found)).mistakes == []


def test_other_candidates_stand_beside_the_chosen_date_with_what_speaks_for_them() -> None:
    text = text_of(proposed(objects(created_at=AT, updated_at=AT, birthday="2001-02-03")))

    chosen, others = text.split("  # Other candidates:\n")
    assert "# The date is that of `created_at`: a timestamp, with its zone, in 100% of the messages" in chosen
    assert others.splitlines()[0].startswith("  #   to_date(updated_at)  `updated_at`: a timestamp, with its zone")
    assert "`birthday`: a date, in 100% of the messages, 2001-02-03" in others
    assert "to_date(kafka.timestamp)  when the message was written to Kafka" in others


def test_the_window_contains_the_dates_of_the_sample_and_not_those_that_no_event_has(tmp_path: Path) -> None:
    days = ["2012-05-06", (NOW + timedelta(days=20)).date().isoformat(), "1970-01-01", *[AT[:10]] * 97]
    found = proposed(objects(event_date=lambda n: days[n]))

    window = read_back(tmp_path, text_of(found)).streams["bronze/orders"].date_window
    assert window.start.isoformat() == "2012-01-01"
    assert window.last(NOW) >= (NOW + timedelta(days=20)).date()
    assert found.outcome.letters == {("date_outside_window", "date"): 1}


def test_a_field_called_date_that_is_not_the_date_keeps_a_column(tmp_path: Path) -> None:
    found = proposed(objects(date="2026-01-01", created_at=AT, message_date=1))
    stream = read_back(tmp_path, text_of(found)).streams["bronze/orders"]

    assert stream.date_expression == "to_date(created_at)"
    assert stream.columns == {"message_date_": "date"}


def test_what_a_person_may_want_to_decide_otherwise_stands_behind_the_field() -> None:
    text = text_of(
        proposed(
            objects(
                amount=1.25,
                none=None,
                empty=lambda n: [],
                local=AT[:19],
                status=lambda n: "OK" if n == 3 else 200,
                when=lambda n: "soon" if n == 3 else AT,
                by_user=lambda n: {f"u{n}": 1},
            )
        )
    )

    for said in (
        "amount double, -- 100%; at most 2 digits behind the point: decimal(38,2) adds up exactly",
        "none string, -- 0%; only null was seen, the type is a guess",
        "empty array<string>, -- 100%; always empty, the type is a guess",
        "local timestamp, -- 100%; 100% without a zone, taken for UTC",
        "status string, -- 100%; 99.0% integers, 1.0% text; bigint makes dead letters of the others",
        "when string, -- 100%; 99.0% are times: timestamp makes dead letters of the others",
        "by_user map<string, bigint> -- 100%; 100 different keys",
    ):
        assert said in " ".join(text.split())


def test_names_that_are_yaml_sql_or_several_lines_elsewhere_do_no_harm(tmp_path: Path) -> None:
    names = [
        "a: b",
        "yes",
        "null",
        "#",
        "-- x",
        "a\nb",
        "größe",
        "\u2028",
        "a`b",
        "on",
        "'",
        "{x}",
        "a-b",
        "1st",
        "\x1b",
    ]
    found = proposed([json.dumps({"at": AT, **dict.fromkeys(names, 1)}).encode()] * 3)
    stream = read_back(tmp_path, text_of(found)).streams["bronze/orders"]

    assert [line.split()[0] for line in stream.record_ddl.splitlines()] == [
        "at", "yes", "`null`", "`#`", "`größe`", "on", "`a-b`", "`1st`",
    ]  # fmt: skip


def test_frames_tell_their_schemas_and_what_the_registry_says_of_them(tmp_path: Path) -> None:
    values: list[bytes | None] = [framed(b'{"id": 1}', n % 2 + 7) for n in range(50)]
    schemas = {7: Schema(7, "JSON", '{"title": "Order", "type": "object"}'), 8: None}
    alone, asked = proposed(values), proposed(values, registered=Registered("main", "orders-value", schemas))

    assert alone.recognised.frames is not None
    assert alone.recognised.frames.ids == {7: 25, 8: 25}
    assert "# schema 7: 25 messages\n" in text_of(alone)
    assert "# no SchemaRegistry document says where to ask for these schemas\n" in text_of(alone)
    assert "# schema 7: 25 messages, JSON Order\n" in text_of(asked)
    assert "# schema 8: 25 messages, unknown to registry main\n" in text_of(asked)
    stream = read_back(tmp_path, text_of(asked)).streams["bronze/orders"]
    assert stream.format == Bytes()
    assert list(stream.columns) == ["schema_id", "document"]


def a_record(*fields: tuple[str, Any], name: str = "Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


def test_json_of_a_registry_is_decoded_by_the_types_that_were_seen(tmp_path: Path) -> None:
    reader = Schema(7, "JSON", '{"type": "object"}')
    said = Registered("main", "orders-value", {7: reader, 8: None, 9: Schema(9, "AVRO", "{}")}, 3, reader)
    good = [framed(value or b"") for value in objects(95, at=AT)]
    bad = [framed(b"{"), b"{}", framed(b"{}", 8), framed(b"{}", 9), framed(b"[1]")]
    found = proposed([*good, *bad], registered=said)
    stream = read_back(tmp_path, text_of(found)).streams["bronze/orders"]

    assert isinstance(stream.format, JsonRegistry)
    assert stream.record_ddl.split() == "id bigint, -- 100% at timestamp -- 100%".split()
    assert found.outcome.rows == 95
    assert found.outcome.letters == {
        ("malformed_json", ""): 1,
        ("no_magic_byte", ""): 1,
        ("unknown_schema", ""): 1,
        ("incompatible_schema", ""): 1,
        ("not_an_object", ""): 1,
    }


@pytest.mark.parametrize(
    ("payload", "name"), [(b'{"id": 1}', "json"), (b"\0\x08\x01", "protobuf"), (b"\2\x0eabcdefg", "avro")]
)
def test_frames_that_no_registry_explains_land_as_bytes_and_the_document_says_what_would_decode_them(
    payload: bytes, name: str
) -> None:
    text = text_of(proposed([framed(payload)] * 20))

    assert f"# They are decoded by `format: {{{name}: {{registry: NAME, subject: SUBJECT}}}}`" in text
    assert "  format: bytes\n" in text


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
ORDER = a_record(
    ("id", "long"),
    ("place", ["null", a_record(("at", MILLIS), ("tags", {"type": "array", "items": "string"}), name="Place")]),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
)


def said(schema: Any) -> Registered:
    """A registry that has this schema as the subject's third version, and as 7."""
    reader = Schema(7, "AVRO", json.dumps(schema))
    return Registered("main", "orders-value", {7: reader, 8: None, 9: Schema(9, "JSON", "{}")}, 3, reader)


def an_order(n: int, *, place: bool = True) -> dict[str, Any]:
    tags = [] if n % 2 else ["a", "b"]
    return {"id": n, "place": {"at": NOW, "tags": tags} if place else None, "kind": "OLD", "price": Decimal("1.25")}


def test_avro_of_a_registry_is_decoded_and_its_dates_are_seen(tmp_path: Path) -> None:
    good = [framed(datum(ORDER, an_order(n, place=n > 0))) for n in range(91)]
    whole = good[1]
    bad = [whole[:-1], whole + b"x", b"x", b"\0\0", framed(whole[5:], 8), framed(whole[5:], 9), framed(whole[5:], 99)]
    found = proposed([*good, *bad], registered=said(ORDER))
    stream = read_back(tmp_path, text_of(found)).streams["bronze/orders"]

    assert isinstance(stream.format, AvroRegistry)
    assert (stream.format.schemas.registry.name, stream.format.schemas.subject) == ("main", "orders-value")
    assert stream.date_expression == "coalesce(to_date(place.at), to_date(kafka.timestamp))"
    assert found.outcome.rows == 91
    assert found.outcome.letters == {
        ("malformed_avro", ""): 1,
        ("trailing_bytes", ""): 1,
        ("no_magic_byte", ""): 1,
        ("too_short", ""): 1,
        ("unknown_schema", ""): 1,
        ("incompatible_schema", ""): 1,
    }
    assert found.outcome.unjudged == 1  # a schema that is not among those that were asked for
    assert "# schema 7: 93 messages, AVRO Order\n" in text_of(found)
    assert "latest version of orders-value, now 3" in text_of(found)


OF_PROTOBUF = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
enum Kind { NEW = 0; OLD = 1; }
message Order { int64 id = 1; optional Place place = 2; Kind kind = 3; map<string, int32> counts = 4; string day = 5; }
message Other { int64 id = 1; }
message Place { google.protobuf.Timestamp at = 1; repeated string tags = 2; }
"""


def test_protobuf_of_a_registry_is_decoded_and_its_dates_are_seen(tmp_path: Path) -> None:
    place = {"at": AT, "tags": ["a"]}
    good = [
        framed(
            b"\0"
            + protobuf(OF_PROTOBUF, "shop.Order", {"id": n, "counts": {"a": 1}, **({"place": place} if n else {})})
        )
        for n in range(92)
    ]
    other, whole = protobuf(OF_PROTOBUF, "shop.Other", {"id": 1}), good[1][5:]
    bad = [good[1][:-1], framed(b"\2\2" + other), framed(b""), framed(whole, 8), framed(whole, 9)]
    reader = Schema(7, "PROTOBUF", OF_PROTOBUF)
    said = Registered("main", "orders-value", {7: reader, 8: None, 9: Schema(9, "JSON", "{}")}, 3, reader)
    found = proposed([*good, *bad], registered=said)
    stream = read_back(tmp_path, text_of(found)).streams["bronze/orders"]

    assert isinstance(stream.format, ProtobufRegistry)
    assert stream.date_expression == "coalesce(to_date(place.at), to_date(kafka.timestamp))"
    assert found.outcome.rows == 92
    assert found.outcome.letters == {
        ("malformed_protobuf", ""): 1,
        ("other_message", ""): 1,
        ("too_short", ""): 1,
        ("unknown_schema", ""): 1,
        ("incompatible_schema", ""): 1,
    }
    assert "latest version of orders-value, now 3" in text_of(found)
    assert stream.format.message == ""


def test_the_message_of_protobuf_is_the_one_that_most_messages_are(tmp_path: Path) -> None:
    reader = Schema(7, "PROTOBUF", OF_PROTOBUF)
    said = Registered("main", "orders-value", {7: reader}, 1, reader)
    values = [framed(b"\2\2" + protobuf(OF_PROTOBUF, "shop.Other", {"id": n})) for n in range(1, 20)]
    found = proposed([*values, framed(b"\0" + protobuf(OF_PROTOBUF, "shop.Order", {"id": 1}))], registered=said)
    stream = read_back(tmp_path, text_of(found)).streams["bronze/orders"]

    assert isinstance(stream.format, ProtobufRegistry)
    assert stream.format.message == "shop.Other"
    assert (found.outcome.rows, found.outcome.letters) == (19, {("other_message", ""): 1})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("syntax = 'proto3'; message M { int32 kafka = 1; }", "no column can be called kafka"),
        ("syntax = 'proto3'; message M { M next = 1; }", "M holds itself"),
        ("syntax = 'proto3'; enum E { A = 0; }", "no message"),
    ],
)
def test_protobuf_that_no_table_can_have_lands_as_bytes_and_the_document_says_why(
    text: str, why: str, tmp_path: Path
) -> None:
    reader = Schema(7, "PROTOBUF", text)
    found = proposed([framed(b"\0\x08\1")] * 20, registered=Registered("main", "orders-value", {7: reader}, 1, reader))

    assert read_back(tmp_path, text_of(found)).streams["bronze/orders"].format == Bytes()
    assert re.search(f"# the record of orders-value cannot be a table's: .*{why}", text_of(found))


LIST_OF_ITSELF = a_record(("next", ["null", "Order"]))


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("string", "it describes no record"),
        (a_record(("kafka", "long")), "no column can be called kafka"),
        (a_record(("id", "long"), ("ID", "long")), "no column can be called id, ID"),
        (LIST_OF_ITSELF, "it contains itself"),
        (a_record(("nothing", "null")), "it has a field that is always null"),
        (a_record(), "it has a record without fields"),
    ],
)
def test_avro_that_no_table_can_have_lands_as_bytes_and_the_document_says_why(
    schema: Any, why: str, tmp_path: Path
) -> None:
    found = proposed([framed(b"\2\2")] * 20, registered=said(schema))

    assert read_back(tmp_path, text_of(found)).streams["bronze/orders"].format == Bytes()
    assert f"# the record of orders-value cannot be a table's: {why}\n" in text_of(found)


def test_columns_of_csv_have_types_that_change_no_text(tmp_path: Path) -> None:
    lines = [f'{n};00{n};{n}.5;"x;{n}";true;2026-03-01T10:00:00Z;;{"TRUE" if n else "false"}' for n in range(20)]
    found = proposed([line.encode() for line in lines])
    stream = read_back(tmp_path, text_of(found)).streams["bronze/orders"]

    assert stream.format == Csv(";")
    assert [line.split()[1].strip(",") for line in stream.record_ddl.splitlines()] == [
        "bigint", "string", "double", "string", "boolean", "timestamp", "string", "string",
    ]  # fmt: skip


def test_lines_of_which_a_few_are_cut_off_are_text_and_the_document_names_the_other_way() -> None:
    text = text_of(proposed([*[b"%d;x;y" % n for n in range(97)], b"97;x", b"98", b"99"]))

    assert "# 97 lines have 3 columns with ';' between them, the others have not" in text


@pytest.mark.parametrize("text", ["123", "true", "null", "a: b", "a #b", "`date`", "2026-01-01", "~", "to_date(at)"])
def test_text_stays_text_in_yaml(text: str) -> None:
    (document,) = parse(f"type: x\nattributes:\n  a: {scalar(text)}  # said\n", "defs.yaml").documents

    assert document.attributes == {"a": text}


def test_the_example_of_the_page_is_what_a_proposal_looks_like_and_can_be_loaded(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "streams.md").read_text()
    example = page.partition("## A first document: `kdi new`")[2].partition("```yaml\n")[2].partition("```")[0]
    loaded = read_back(tmp_path, example)

    assert loaded.mistakes == []
    assert fields_of(example) == fields_of(text_of(proposed(objects(at=AT))))
    assert loaded.streams["bronze/shop_requests"].date_expression == "to_date(meta.producer.timestamp)"


def fields_of(text: str) -> list[str]:
    return re.findall(r"^  (\w+):", text, re.MULTILINE)
