"""What a value becomes that lands as it is: text, checked; bytes; the whole message in an envelope."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from kdi_assets.drain.records import ShapeMistake
from kdi_assets.drain.shape import analyse
from kdi_assets.message_format import Bytes, Envelope, Text
from tests.judged import Message, judged, stream_of
from tests.verdicts import Verdict, verdicts_of

pytestmark = pytest.mark.core

TEXTS = ["", " ", "plain", "über 🚲", '{"a": 1}', "two\nlines\r\n", "nul \0 inside", "\ufeffmark", "\ufffd"]
NO_TEXTS = [b"\xff", b"cut off \xf0\x9f", b"\xc0\x80", b"surrogate \xed\xa0\x80", b"\x00\xffbinary"]


def test_text_stays_as_it_is_and_what_is_no_utf8_is_no_text(spark: SparkSession) -> None:
    verdicts = verdicts_of(spark, Text(), [*TEXTS, *NO_TEXTS])

    assert {text: json.loads(verdicts[text].record or "null") for text in TEXTS} == {t: {"value": t} for t in TEXTS}
    assert {verdicts[value] for value in NO_TEXTS} == {Verdict(False, "invalid_utf8", None, None)}


def test_bytes_stay_as_they_are_in_the_column_that_is_declared(spark: SparkSession) -> None:
    values = [*(text.encode() for text in TEXTS), *NO_TEXTS]
    verdicts = verdicts_of(spark, Bytes(), values, ddl="body binary COMMENT 'as it came'")

    assert [json.loads(verdicts[v].record or "null") for v in values] == [
        {"body": b64encode(v).decode()} for v in values
    ]


RAW = stream_of("", format=Envelope(), tombstones="row")


def test_key_value_and_headers_stay_as_they_are(spark: SparkSession) -> None:
    messages = [
        Message(b"\xff\x00", b"k\xfe", [("h", b"\xff"), ("h", None), ("", b"")]),
        Message(b"", b"", []),
        Message("text", None, None),
        Message(None, b"gone", [("why", b"deleted")]),
    ]

    found = judged(spark, RAW, messages)

    assert [(row["key"], row["value"], row["headers"]) for row in found.rows] == [
        (
            b"k\xfe",
            b"\xff\x00",
            [{"key": "h", "value": b"\xff"}, {"key": "h", "value": None}, {"key": "", "value": b""}],
        ),
        (b"", b"", []),
        (None, b"text", None),
        (b"gone", None, [{"key": "why", "value": b"deleted"}]),
    ]
    assert not found.letters


def test_of_a_compressed_message_the_value_alone_is_made_large(spark: SparkSession) -> None:
    named = "k binary, body binary COMMENT 'as it came', h array<struct<key: string, value: binary>>"
    columns = {"id": "CAST(k AS STRING)", "trace": "CAST(get(filter(h, x -> x.key = 'trace'), 0).value AS STRING)"}
    small = gzip.compress(b"body")
    stream = replace(RAW, record_ddl=named, compression="gzip", columns=columns)
    headers = [("a", b"1"), ("trace", b"t-1")]

    found = judged(spark, stream, [Message(small, b"k", headers), Message(b"body", small), Message(None, b"gone")])

    whole, gone = found.rows
    assert (whole["k"], whole["body"], whole["id"], whole["trace"]) == (b"k", b"body", "k", "t-1")
    assert (gone["k"], gone["body"], gone["id"], gone["h"]) == (b"gone", None, "gone", [{"key": "h", "value": b"x"}])
    [letter] = found.letters
    assert (letter["reason"], letter["key"], letter["value"]) == ("not_gzip", small, b"body")


@pytest.mark.parametrize(
    "ddl",
    [
        "value binary",
        "key string, value binary, headers array<struct<key: string, value: binary>>",
        "key binary NOT NULL, value binary, headers array<struct<key: string, value: binary>>",
    ],
)
def test_the_record_is_the_message_and_nothing_else(spark: SparkSession, ddl: str) -> None:
    with pytest.raises(ShapeMistake, match="the record has three columns, each may be null, of types binary, binary, "):
        analyse(replace(RAW, record_ddl=ddl), spark)
