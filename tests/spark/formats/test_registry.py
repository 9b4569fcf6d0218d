"""Messages with a registry: frames parsed as in Python, and Avro schemas joined with their references into one text."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.messages.formats.avro.schema_text import in_one_text
from kdi_assets.messages.formats.framing import Frame, split_frame, with_frame
from kdi_assets.messages.formats.registry.schema import Referenced, Schema
from tests.formats.framed import FRAMES

CENTS = {"name": "cents", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}
CURRENCY = {"type": "enum", "name": "Currency", "symbols": ["EUR", "USD"], "default": "EUR"}
MONEY = {
    "type": "record",
    "name": "Money",
    "namespace": "shop",
    "fields": [CENTS, {"name": "currency", "type": CURRENCY, "default": "EUR"}],
}
BARE = {"type": "fixed", "name": "Bare", "size": 4}
ITEM = {
    "type": "record",
    "name": "stock.Item",
    "fields": [
        {"name": "prices", "type": {"type": "array", "items": "shop.Money"}},
        {"name": "by_currency", "type": {"type": "map", "values": "shop.Money"}},
        {"name": "parent", "type": ["null", "Item"], "default": None},
        {"name": "bare", "type": "Bare"},
    ],
}


def order(*fields: object) -> dict[str, object]:
    named = [{"name": f"f{n}", "type": type_} for n, type_ in enumerate(fields)]
    return {"type": "record", "name": "Order", "namespace": "shop", "doc": "ein Auftrag, groß", "fields": named}


@pytest.mark.parametrize(
    ("schema", "references"),
    [
        (order("Money", "Money", ["null", "shop.Money"]), [MONEY]),
        (order("Currency", "Money"), [MONEY]),  # a part of a reference, before the whole
        (order("stock.Item", "Currency", {"type": "array", "items": "Bare"}), [MONEY, BARE, ITEM]),
        (order({"type": "Money"}, {"type": "long", "logicalType": "timestamp-millis"}), [MONEY]),
        (["null", "shop.Money", "stock.Item"], [MONEY, BARE, ITEM]),
        (order("int"), [MONEY]),  # named, and not used
    ],
)
def test_one_text_means_what_all_meant(
    spark: SparkSession, schema: object, references: list[dict[str, object]]
) -> None:
    named = tuple(Referenced(str(n), json.dumps(text)) for n, text in enumerate(references))
    jvm: Any = spark.sparkContext._jvm
    together = jvm.org.apache.avro.Schema.Parser()
    for reference in named:
        together.parse(reference.text)

    text = in_one_text(Schema(1, "AVRO", json.dumps(schema), named))

    alone = jvm.org.apache.avro.Schema.Parser().parse(text)
    assert alone.equals(together.parse(json.dumps(schema))), text


def test_a_schema_that_refers_to_nothing_stays_as_it_was_registered() -> None:
    text = ' {"type" : "record", "name": "R", "fields": []} '

    assert in_one_text(Schema(1, "AVRO", text)) == text


Parts = tuple[str | None, int | None, bytes | None]


def by_spark(spark: SparkSession, values: list[bytes | None]) -> list[Parts]:
    messages = spark.createDataFrame([(value,) for value in values], "_kdi_payload binary")
    parts = with_frame(messages).selectExpr("_kdi_frame.*", "_kdi_payload AS payload").collect()
    return [(row.reason, row.schema_id, None if row.payload is None else bytes(row.payload)) for row in parts]


def by_python(value: bytes) -> Parts:
    found = split_frame(value)
    return (None, found.schema_id, found.payload) if isinstance(found, Frame) else (found, None, None)


@pytest.mark.core
def test_frames_in_spark_are_those_in_python(spark: SparkSession, pytestconfig: pytest.Config) -> None:
    seed = pytestconfig.getoption("--seed")
    random = Random(seed)
    values = [random.choice((b"", b"\x00", b"\x00\x00")) + random.randbytes(random.randrange(9)) for _ in range(2000)]

    found = by_spark(spark, [*FRAMES, *values])

    assert dict(zip(FRAMES, found, strict=False)) == FRAMES
    differing = [value for value, parts in zip(values, found[len(FRAMES) :], strict=True) if parts != by_python(value)]
    assert differing == [], f"seed {seed}"
