"""What a compressed value becomes: the record of what it holds, or a dead letter."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from kdi_assets.formats import compression
from kdi_assets.message_format import Compression, Csv, Json, Text
from tests.verdicts import Verdict, Verdicts, verdicts_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


@pytest.fixture(scope="module")
def verdicts(spark: SparkSession) -> dict[str, Verdicts]:
    values = {kind: [value for k, value, _ in GOOD if k == kind] + bad for kind, bad in BAD.items()}
    return {kind: verdicts_of(spark, Text(), values[kind], compression=kind) for kind in BAD}


@pytest.mark.core
@pytest.mark.parametrize(("kind", "value", "text"), GOOD, ids=range(len(GOOD)))
def test_what_is_compressed_comes_out_as_it_went_in(
    verdicts: dict[str, Verdicts], kind: str, value: bytes, text: str
) -> None:
    verdict = verdicts[kind][value]

    assert verdict.decoded
    assert json.loads(verdict.record or "") == {"value": text}


@pytest.mark.scenario("poison message")
@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, bad in BAD.items() for value in bad])
def test_what_does_not_decompress_is_a_dead_letter(verdicts: dict[str, Verdicts], kind: str, value: bytes) -> None:
    """Procedure: values that are not compressed, cut off, damaged, or have something behind them."""
    assert verdicts[kind][value] == Verdict(False, f"not_{kind}", None, None)


@pytest.mark.parametrize(("kind", "write"), [(kind, write) for kind, writers in WRITTEN.items() for write in writers])
def test_a_value_that_holds_more_than_is_allowed_is_a_dead_letter(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, kind: Compression, write: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setattr(compression, "LIMIT", 5000)
    largest, larger = write(b"x" * 5000), write(b"x" * 5001)

    verdicts = verdicts_of(spark, Text(), [largest, larger], compression=kind)

    assert verdicts[larger].reason == f"not_{kind}"
    assert verdicts[largest].decoded


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_every_format_can_be_compressed(spark: SparkSession, kind: Compression) -> None:
    write = WRITTEN[kind][0]
    document, line = write(b'{"id": 1}'), write(b"1,a")

    as_json = verdicts_of(spark, Json(), [document, write(b"{"), b"{}"], ddl="id int", compression=kind)
    as_csv = verdicts_of(spark, Csv(), [line, write(b"1"), b"1,a"], ddl="id int, s string", compression=kind)

    assert as_json[document].record == '{"id":1}'
    assert [as_json[write(b"{")].reason, as_json[b"{}"].reason] == ["malformed_json", f"not_{kind}"]
    assert as_csv[line].record == '{"id":1,"s":"a"}'
    assert [as_csv[write(b"1")].reason, as_csv[b"1,a"].reason] == ["too_few_columns", f"not_{kind}"]
