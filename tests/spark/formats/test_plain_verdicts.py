"""Values stored unchanged: text, checked; bytes; the whole message in an envelope; decompressed."""

from __future__ import annotations

import gzip
import io
import json
import random
import zlib
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.message_format import Bytes, Compression, Envelope, Json, Text
from kdi_assets.messages.formats import stream_decoder
from kdi_assets.streams.rules.errors import ShapeMistake
from kdi_assets.streams.rules.shape import analyse
from tests.formats.verdicts import Verdict, verdicts_of
from tests.judged import Message, judged, stream_of

TEXTS = ["", " ", "plain", "über 🚲", '{"a": 1}', "two\nlines\r\n", "nul \0 inside", "\ufeffmark", "\ufffd"]
NO_TEXTS = [b"\xff", b"cut off \xf0\x9f", b"\xc0\x80", b"surrogate \xed\xa0\x80", b"\x00\xffbinary"]


@pytest.mark.core
def test_text_stays_as_it_is_and_what_is_no_utf8_is_no_text(spark: SparkSession) -> None:
    verdicts = verdicts_of(spark, Text(), [*TEXTS, *NO_TEXTS])

    assert {text: json.loads(verdicts[text].record or "null") for text in TEXTS} == {t: {"value": t} for t in TEXTS}
    assert {verdicts[value] for value in NO_TEXTS} == {Verdict(False, "invalid_utf8", None, None)}


@pytest.mark.core
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


COMPRESSED = ["", "plain", "über 🚲", "x" * 20_000, "".join(random.Random(7).choices("abc \n", k=50_000))]


def gzipped(text: bytes) -> bytes:
    return gzip.compress(text, mtime=0)


def gzipped_file(text: bytes) -> bytes:
    """A member with a file's name in its header, as ``gzip`` writes it."""
    sink = io.BytesIO()
    with gzip.GzipFile("a.txt", "wb", fileobj=sink, mtime=0) as member:
        member.write(text)
    return sink.getvalue()


def zstd(text: bytes) -> bytes:
    """A frame with its size."""
    return bytes(pa.compress(text, codec="zstd", asbytes=True))


def zstd_stream(text: bytes) -> bytes:
    """A frame without its size, as streaming compressors write it."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(text)
    return bytes(sink.getvalue())


WRITTEN: dict[Compression, list[Callable[[bytes], bytes]]] = {
    "gzip": [gzipped, gzipped_file],
    "zstd": [zstd, zstd_stream],
}
GOOD = [(kind, write(t.encode()), t) for kind, writers in WRITTEN.items() for write in writers for t in COMPRESSED]
GOOD += [("gzip", gzipped(b"two ") + gzipped(b"members"), "two members")]
GOOD += [("zstd", zstd(b"two ") + zstd_stream(b"frames"), "two frames")]
ZEROS = "0" * 90_000
GOOD += [("zstd", zstd(ZEROS.encode()) + zstd(ZEROS.encode()), ZEROS + ZEROS)]
GOOD += [("zstd", zstd(b"") + zstd(ZEROS.encode()) + zstd_stream(ZEROS[:60_000].encode()), ZEROS + ZEROS[:60_000])]
BAD: dict[Compression, list[bytes]] = {
    "gzip": [
        b"",
        b"plain",
        b"\x1f\x8b",
        b"\x1f\x8b\x08garbage behind the magic number",
        gzipped(b"cut off")[:-1],
        gzipped(b"cut off, and more of it" * 9)[:20],
        gzipped(b"another sum")[:-8] + gzipped(b"of another text")[-8:],
        gzipped(b"another size")[:-4] + bytes([11, 0, 0, 0]),
        gzipped(b"another size")[:-4] + bytes([13, 0, 0, 0]),
        gzipped(b"a byte after it")[:-8] + b"\0" + gzipped(b"a byte after it")[-8:],
        gzipped_file(b"cut off")[:-1],
        gzipped(b"trailing") + b"x",
        zlib.compress(b"zlib"),
        zstd(b"zstd"),
    ],
    "zstd": [
        b"",
        b"plain",
        b"\x28\xb5\x2f\xfd",
        b"\x28\xb5\x2f\xfdgarbage behind the magic number",
        zstd(b"cut off")[:-1],
        zstd_stream(b"cut off, and more of it" * 9)[:-4],
        zstd(b"trailing") + b"x",
        zstd(b"trailing") + zstd(b"cut off")[:-1],
        zstd(b"trailing") + zstd_stream(b"cut off")[:-1],
        zstd(b"\0" * (65 << 20)),
        zstd(b"\0" * (33 << 20)) + zstd(b"\0" * (33 << 20)),
        gzipped(b"gzip"),
    ],
}


@pytest.mark.core
@pytest.mark.scenario("poison message")
@pytest.mark.parametrize("kind", WRITTEN)
def test_what_is_compressed_comes_out_and_all_else_is_a_dead_letter(spark: SparkSession, kind: Compression) -> None:
    """Procedure: compressed values, and others: not compressed, cut off, damaged, or with extra bytes."""
    good = {value: text for k, value, text in GOOD if k == kind}

    verdicts = verdicts_of(spark, Text(), [*good, *BAD[kind]], compression=kind)

    assert {value: json.loads(verdicts[value].record or "null") for value in good} == {
        value: {"value": text} for value, text in good.items()
    }
    assert {verdicts[value] for value in BAD[kind]} == {Verdict(False, f"not_{kind}", None, None)}


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_value_above_the_limit_is_a_dead_letter(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, kind: Compression
) -> None:
    monkeypatch.setattr(stream_decoder, "LIMIT", 5000)
    largest, larger = ([write(b"x" * size) for write in WRITTEN[kind]] for size in (5000, 5001))

    verdicts = verdicts_of(spark, Text(), [*largest, *larger], compression=kind)

    assert {verdicts[value].decoded for value in largest} == {True}
    assert {verdicts[value].reason for value in larger} == {f"not_{kind}"}


def test_a_format_decodes_what_was_compressed(spark: SparkSession) -> None:
    document, cut_off = gzipped(b'{"id": 1}'), gzipped(b"{")

    verdicts = verdicts_of(spark, Json(), [document, cut_off, b"{}"], ddl="id int", compression="gzip")

    assert verdicts[document].record == '{"id":1}'
    assert [verdicts[cut_off].reason, verdicts[b"{}"].reason] == ["malformed_json", "not_gzip"]
