"""What a compressed value becomes: the record of what it holds, or a dead letter."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kdi_assets.formats import compression
from kdi_assets.message_format import Compression, Json, Text
from tests.verdicts import Verdict, verdicts_of

TEXTS = ["", "plain", "über 🚲", "x" * 20_000, "".join(random.Random(7).choices("abc \n", k=50_000))]


def gzipped(text: bytes) -> bytes:
    return gzip.compress(text, mtime=0)


def zstd(text: bytes) -> bytes:
    """A frame that says how large it is."""
    return bytes(pa.compress(text, codec="zstd", asbytes=True))


def zstd_stream(text: bytes) -> bytes:
    """A frame that does not, as they are written without knowing the end."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(text)
    return bytes(sink.getvalue())


WRITTEN: dict[Compression, list[Callable[[bytes], bytes]]] = {"gzip": [gzipped], "zstd": [zstd, zstd_stream]}
GOOD = [(kind, write(t.encode()), t) for kind, writers in WRITTEN.items() for write in writers for t in TEXTS]
GOOD += [("gzip", gzipped(b"two ") + gzipped(b"members"), "two members")]
GOOD += [("zstd", zstd(b"two ") + zstd_stream(b"frames"), "two frames")]
BAD: dict[Compression, list[bytes]] = {
    "gzip": [
        b"",
        b"plain",
        b"\x1f\x8b",
        b"\x1f\x8b\x08garbage behind the magic number",
        gzipped(b"cut off")[:-1],
        gzipped(b"cut off, and more of it" * 9)[:20],
        gzipped(b"another sum")[:-8] + gzipped(b"of another text")[-8:],
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
        gzipped(b"gzip"),
    ],
}


@pytest.mark.core
@pytest.mark.scenario("poison message")
@pytest.mark.parametrize("kind", WRITTEN)
def test_what_is_compressed_comes_out_as_it_went_in_and_what_is_not_is_a_dead_letter(
    spark: SparkSession, kind: Compression
) -> None:
    """Procedure: values that are compressed, and others not, cut off, damaged, or with something behind them."""
    good = {value: text for k, value, text in GOOD if k == kind}

    verdicts = verdicts_of(spark, Text(), [*good, *BAD[kind]], compression=kind)

    assert {value: json.loads(verdicts[value].record or "null") for value in good} == {
        value: {"value": text} for value, text in good.items()
    }
    assert {verdicts[value] for value in BAD[kind]} == {Verdict(False, f"not_{kind}", None, None)}


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_value_that_holds_more_than_is_allowed_is_a_dead_letter(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, kind: Compression
) -> None:
    monkeypatch.setattr(compression, "LIMIT", 5000)
    largest, larger = ([write(b"x" * size) for write in WRITTEN[kind]] for size in (5000, 5001))

    verdicts = verdicts_of(spark, Text(), [*largest, *larger], compression=kind)

    assert {verdicts[value].decoded for value in largest} == {True}
    assert {verdicts[value].reason for value in larger} == {f"not_{kind}"}


def test_a_format_decodes_what_was_compressed(spark: SparkSession) -> None:
    document, cut_off = gzipped(b'{"id": 1}'), gzipped(b"{")

    verdicts = verdicts_of(spark, Json(), [document, cut_off, b"{}"], ddl="id int", compression="gzip")

    assert verdicts[document].record == '{"id":1}'
    assert [verdicts[cut_off].reason, verdicts[b"{}"].reason] == ["malformed_json", "not_gzip"]
