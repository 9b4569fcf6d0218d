"""What `kdi new` makes of samples: format, date, window, and a document that passes the loader, with its comments."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from kdi_assets.components.documents import parse
from kdi_assets.message_format import Csv, Json
from kdi_assets.proposal.document import scalar
from kdi_assets.proposal.propose import NO_TIME
from kdi_assets.sources.generator import Traffic, WebRequests
from tests.sampled import NOW, attributes_of, framed, objects, proposed, read_back, text_of

AT = NOW.isoformat()


def zstd(value: bytes) -> bytes:
    compressed: bytes = pa.Codec("zstd").compress(value, asbytes=True)
    return compressed


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
