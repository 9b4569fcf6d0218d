"""Avro schemas that refer to others, as Spark's own parser of Avro reads them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kdi_assets.formats.registry.avro import in_one_text
from kdi_assets.formats.registry.schema import Referenced, Schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        (order("Currency", "Money"), [MONEY]),  # a part of what is referred to, before the whole
        (order("Money", "shop.Currency"), [MONEY]),
        (order("stock.Item", "Currency", {"type": "array", "items": "Bare"}), [MONEY, BARE, ITEM]),
        (order({"type": "Money"}, {"type": "long", "logicalType": "timestamp-millis"}), [MONEY]),
        (["null", "shop.Money", "stock.Item"], [MONEY, BARE, ITEM]),
        ("shop.Money", [MONEY]),
        (order("int"), [MONEY]),  # named, and not used
    ],
)
def test_one_text_means_what_the_texts_meant_together(
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
