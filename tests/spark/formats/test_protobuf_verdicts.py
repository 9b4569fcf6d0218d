"""A Protobuf message in Spark: a record, or a dead letter with its reason; never a row of nulls."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kdi_assets.documents.model.message_format import Protobuf
from kdi_assets.documents.model.message_rules import Contract
from kdi_assets.documents.model.stream import Cluster, Stream
from kdi_assets.messages.formats.stream_decoder import decoder_of
from kdi_assets.streams.rules.contract import ContractRule
from kdi_assets.streams.rules.errors import UnknownFieldsFound
from kdi_assets.streams.rules.records import stream_decoder
from tests.formats.protobuf_messages import SHOP, descriptors, message_class, random_message, read_row, said
from tests.formats.verdicts import Verdict, verdicts_of
from tests.formats.wire import of, varint
from tests.judged import Judged, judged, stream_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER: Any = message_class(SHOP, "shop.Order")
FORMAT = Protobuf("shop.desc", descriptors(SHOP), "shop.Order")
GOOD: bytes = ORDER(name="über 🚲", kind=77, place={"city": "Zürich"}, names={5: "five"}).SerializeToString()

CONDEMNED: dict[bytes, tuple[str, str | None]] = {
    GOOD[:-1]: ("malformed_protobuf", None),
    GOOD.replace("über".encode(), b"\xff\xffber"): ("invalid_utf8", "name"),
    GOOD.replace("Zürich".encode(), b"Z\xc3\xc3rich"): ("invalid_utf8", "place.city"),
    GOOD.replace(b"five", b"fiv\xff"): ("invalid_utf8", "names[]"),
    ORDER(ats=[{"seconds": 253402300800}]).SerializeToString(): ("out_of_range", "ats[]"),
    ORDER(any_value={"number_value": float("inf")}).SerializeToString(): ("out_of_range", "any_value"),
}


@pytest.mark.scenario("poison message")
@pytest.mark.core
def test_a_message_becomes_a_record_or_a_dead_letter_that_names_the_field(spark: SparkSession) -> None:
    verdicts = verdicts_of(spark, FORMAT, [GOOD, b"", *CONDEMNED])

    good, empty = (json.loads(verdicts[value].record or "") for value in (GOOD, b""))
    assert (good["name"], good["kind"], good["place"]["city"]) == ("über 🚲", "77", "Zürich")
    assert (empty["name"], empty["kind"], "place" in empty) == ("", "KIND_UNKNOWN", False)
    assert {value: verdicts[value] for value in CONDEMNED} == {
        value: Verdict(False, *why, None) for value, why in CONDEMNED.items()
    }


@pytest.mark.core
def test_a_record_comes_from_spark_as_protobufs_own_library_reads_it(spark: SparkSession) -> None:
    """Messages with every feature of Protobuf, some of them damaged, over several batches."""
    chance = random.Random(7)
    messages = [random_message(ORDER, chance) for _ in range(60)]
    values = [message.SerializeToString() for message in messages]
    damaged = [value + b"\x00" for value in values]
    stream = Stream("t", "t", "", "current_date()", Cluster("main", "nowhere:1"), format=FORMAT)
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


NAMED = of(14, 2, b"name")
NEW = of(999, 2, b"new")
VALUES: list[bytes | None] = [
    NAMED,
    NAMED + NEW,
    NAMED + of(21, 2, of(7, 0, b"\x01")) + of(22, 2, of(3, 2, NEW)) + NEW,
    None,
    NEW + b"\x00",  # malformed
    of(28, 2, of(1, 2, b"b")) + of(28, 2, of(1, 2, b"a")) + of(16, 0, varint(77)),  # valid, and unusual
    of(14, 2, b"left out") + NEW,
    of(14, 2, b"\xff") + NEW,
]
COUNTED = {"#999": 2, "items[].places[].#999": 1, "place.#7": 1}
FILTERED = "name <> 'left out'"


def test_numbers_are_counted_of_rows_alone_and_a_frozen_contract_names_them(spark: SparkSession) -> None:
    stream = stream_of("", format=FORMAT, filter=FILTERED, contract=Contract("freeze"))

    found = judged(spark, stream, VALUES)

    unknown = found.counts.unknown
    assert (unknown.fields.messages, unknown.fields.named, unknown.fields.others) == (2, COUNTED, 0)
    assert [row["name"] for row in found.rows] == ["name", "name", "name", ""]
    assert _letters(found) == [(4, "malformed_protobuf", None), (7, "invalid_utf8", "name")]
    with pytest.raises(UnknownFieldsFound, match=r"2 of 4 messages .* #999 \(2\), items\[\]\.places\[\]\.#999 \(1\)"):
        ContractRule(stream_decoder(stream)).refuse(found.counts)


def test_numbers_make_dead_letters_where_the_contract_says_so(spark: SparkSession) -> None:
    found = judged(spark, stream_of("", format=FORMAT, filter=FILTERED, contract=Contract("discard_row")), VALUES)

    assert [row["kafka"]["offset"] for row in found.rows] == [0, 5]
    assert _letters(found) == [
        (1, "unknown_field", "#999"),
        (2, "unknown_field", "#999"),
        (4, "malformed_protobuf", None),
        (7, "invalid_utf8", "name"),
    ]
    assert found.counts.unknown.fields.named == COUNTED


def _letters(found: Judged) -> list[tuple[int, str, str | None]]:
    return [(letter["offset"], letter["reason"], letter["field"]) for letter in found.letters]
