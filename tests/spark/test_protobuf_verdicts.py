"""What a message of Protobuf becomes in Spark: a record, or a dead letter with its reason; never a row of nulls."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from kdi_assets.formats.of_stream import decoder_of
from kdi_assets.message_format import Protobuf
from kdi_assets.stream import KafkaCluster, Stream
from tests.protobuf_messages import SHOP, descriptors, message_class, random_message, read_row, said
from tests.verdicts import Verdict, verdicts_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.core

ORDER: Any = message_class(SHOP, "shop.Order")
FORMAT = Protobuf("shop.desc", descriptors(SHOP), "shop.Order")
FULL = ORDER(
    i64=2**63 - 1,
    u32=2**32 - 1,
    u64=2**64 - 1,
    f=0.5,
    ok=True,
    name="über 🚲",
    raw=b"\x00\xff",
    kind=77,
    maybe=0,
    place={"city": "Zürich", "spot": {"lat": 47.5}},
    tags=["a", ""],
    kinds=[1, -5],
    names={5: "five", -1: "minus one"},
    by_ok={True: 2},
    w_text={"value": ""},
    card="4111",
    meta={"a": [1, None, "x"]},
)
FULL.items.add(sku="s").at.FromJsonString("2026-01-14T10:00:00.123456789Z")
FULL.took.FromNanoseconds(-1_500_000_001)
FULL.empty.SetInParent()
FULL.by_big[2**64 - 1].sku = "big"
GOOD: bytes = FULL.SerializeToString()

EXPECTED: dict[str, Any] = {
    **{"i64": 2**63 - 1, "u32": 2**32 - 1, "u64": 2**64 - 1, "f": 0.5, "ok": True, "name": "über 🚲", "raw": "AP8="},
    **{"kind": "77", "maybe": 0, "tags": ["a", ""], "kinds": ["RED", "BELOW"], "w_text": "", "card": "4111"},
    "place": {"city": "Zürich", "spot": {"lat": 47.5}},
    "names": {"5": "five", "-1": "minus one"},
    "by_ok": {"true": "GREEN"},
    "by_big": {str(2**64 - 1): {"sku": "big", "places": [], "kind": "KIND_UNKNOWN"}},
    "items": [{"sku": "s", "at": "2026-01-14T10:00:00.123Z", "places": [], "kind": "KIND_UNKNOWN"}],
    "took": -1.500000001,
    "meta": '{"a": [1.0, null, "x"]}',
    "empty": True,
    **{"d": 0.0, "i32": 0, "bigs": [], "counts": {}},  # without presence: defaults
}
ABSENT = ("note", "maybe_kind", "at", "desk", "account", "w_big", "any_value")

CONDEMNED: dict[bytes, tuple[str, str | None]] = {
    GOOD[:-1]: ("malformed_protobuf", None),
    GOOD + b"\x00": ("malformed_protobuf", None),
    b'{"id": 1}': ("malformed_protobuf", None),
    GOOD.replace("über".encode(), b"\xff\xffber"): ("invalid_utf8", "name"),
    GOOD.replace("Zürich".encode(), b"Z\xc3\xc3rich"): ("invalid_utf8", "place.city"),
    GOOD.replace(b"five", b"fiv\xff"): ("invalid_utf8", "names[]"),
    ORDER(ats=[{"seconds": 253402300800}]).SerializeToString(): ("out_of_range", "ats[]"),
    ORDER(took={"seconds": 1, "nanos": -1}).SerializeToString(): ("out_of_range", "took"),
    ORDER(any_value={"number_value": float("inf")}).SerializeToString(): ("out_of_range", "any_value"),
}


@pytest.mark.scenario("poison message")
def test_a_message_becomes_a_record_or_a_dead_letter_that_names_the_field(spark: SparkSession) -> None:
    verdicts = verdicts_of(spark, FORMAT, [GOOD, b"", *CONDEMNED])

    record = json.loads(verdicts[GOOD].record or "")
    assert {name: record.get(name) for name in EXPECTED} == EXPECTED
    assert not set(ABSENT) & record.keys()  # Spark leaves nulls out
    assert json.loads(verdicts[b""].record or "")["kind"] == "KIND_UNKNOWN"
    assert {value: verdicts[value] for value in CONDEMNED} == {
        value: Verdict(False, *why, None) for value, why in CONDEMNED.items()
    }


def test_a_record_comes_from_spark_as_protobufs_own_library_reads_it(spark: SparkSession) -> None:
    """Messages with all that Protobuf has, damaged ones among them, over several batches."""
    chance = random.Random(7)
    messages = [random_message(ORDER, chance) for _ in range(60)]
    values = [message.SerializeToString() for message in messages]
    damaged = [value + b"\x00" for value in values]
    stream = Stream("t", "t", "", "current_date()", KafkaCluster("main", "nowhere:1"), format=FORMAT)
    mixed = [(n, value) for n, pair in enumerate(zip(values, damaged, strict=True)) for value in pair]

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 7)
    try:
        table = _decoded(spark, stream, mixed).where("_kdi_decoded").select("n", "_kdi_record.*").toArrow()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")

    rows = {row["n"]: row for row in table.to_pylist()}
    assert len(table) == len(rows) == len(messages)
    for n, message in enumerate(messages):
        assert read_row(rows[n], ORDER.DESCRIPTOR) == said(message)


def _decoded(spark: SparkSession, stream: Stream, values: list[tuple[int, bytes]]) -> DataFrame:
    messages = spark.createDataFrame([(n, bytearray(value)) for n, value in values], "n int, _kdi_value binary")
    return decoder_of(stream).decode(messages.repartition(3))
