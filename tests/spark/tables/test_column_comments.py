"""Descriptions of fields in schemas become comments of columns in Delta, and those of the tables made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from kdi_assets.documents.model.message_format import Avro, Json, Protobuf, SchemaFile
from kdi_assets.documents.model.message_rules import FieldUse
from kdi_assets.messages.formats.protobuf.descriptors import compiled
from kdi_assets.streams.rules.column_comments import commented, with_new_commented
from kdi_assets.streams.rules.shape import analyse
from tests.judged import stream_of
from tests.refined import Lakeside, refined_table

ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "sku", "type": "string", "doc": "number of the article"}, {"name": "n", "type": "int"}],
}
AVRO = {
    "type": "record",
    "name": "Order",
    "doc": "an order",
    "fields": [
        {"name": "id", "type": "long", "doc": "number of the order"},
        {"name": "amount", "type": ["null", "double"], "doc": "in cents"},
        {"name": "first", "type": ["null", ITEM], "doc": "the dearest"},
        {"name": "items", "type": {"type": "array", "items": "Item"}, "doc": "all of\n  them"},
        {"name": "by_name", "type": {"type": "map", "values": "Item"}},
    ],
}
PROTO = """
syntax = "proto3";
package shop;
message Order {
  message Item {
    string sku = 1;  // number of the article
    int32 n = 2;
  }
  // number of the order
  int64 id = 1;
  double amount = 2;  // in cents
  /* the dearest */
  Item first = 3;
  // all of
  // them
  repeated Item items = 4;
  map<string, Item> by_name = 5;
}
"""
DDL = (
    "id bigint COMMENT 'number of the order', amount double COMMENT 'in cents', "
    "first struct<sku: string COMMENT 'number of the article', n: int> COMMENT 'the dearest', "
    "items array<struct<sku: string COMMENT 'number of the article', n: int>> COMMENT 'all of them', "
    "by_name map<string, struct<sku: string COMMENT 'number of the article', n: int>>"
)


def protobuf(folder: Path) -> Protobuf:
    (folder / "order.proto").write_text(PROTO)
    return Protobuf("order.proto", compiled("order.proto", folder=folder), "shop.Order")


def comments(type_: Any, path: str = "") -> dict[str, str]:
    """Path of a field to its comment, of Spark's JSON of a type."""
    if not isinstance(type_, Mapping):
        return {}
    found = {}
    for field in type_.get("fields", ()):
        here = f"{path}.{field['name']}".lstrip(".")
        if comment := field["metadata"].get("comment"):
            found[here] = comment
        found |= comments(field["type"], here)
    for inner in ("elementType", "valueType"):
        found |= comments(type_.get(inner), f"{path}[]")
    return found


@pytest.mark.parametrize("format_", ["json", "avro", "protobuf"])
def test_what_a_schema_says_of_its_fields_is_the_comment_of_the_columns_at_every_depth(
    spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    """`amount` is renamed; `id` is computed by the document, so it is not what the schema says."""
    formats = {"json": Json(), "avro": Avro(SchemaFile("o", json.dumps(AVRO))), "protobuf": protobuf(tmp_path)}
    fields = {"amount": FieldUse("rename", "cents")}
    ddl = DDL if format_ == "json" else ""
    stream = stream_of(ddl, format=formats[format_], fields=fields, columns={"id": "id + 1"})

    found = comments(commented(analyse(stream, spark), stream, spark).jsonValue())

    assert found == {
        "cents": "in cents",
        "first": "the dearest",
        "first.sku": "number of the article",
        "items": "all of them",
        "items[].sku": "number of the article",
        "by_name[].sku": "number of the article",
        "kafka": "coordinates of the message",
        "date": "date of the row, UTC",
    }


def test_descriptors_without_source_and_schemas_without_text_have_no_comments(spark: SparkSession) -> None:
    plain = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long", "doc": ""}]}
    stream = stream_of("", format=Avro(SchemaFile("o", json.dumps(plain))))

    assert comments(commented(analyse(stream, spark), stream, spark).jsonValue()).keys() == {"kafka", "date"}


def test_a_column_that_a_table_gains_has_its_comment_and_the_others_keep_theirs(spark: SparkSession) -> None:
    stream = stream_of("id bigint COMMENT 'newer text', more string COMMENT 'gained'")
    rows = spark.createDataFrame([], analyse(stream, spark))
    table = StructType.fromJson(json.loads(rows.drop("more").schema.json()))

    found = with_new_commented(rows, table, stream)

    assert comments(found.schema.jsonValue()) == {"more": "gained"}, "Delta keeps what the table says of its columns"
    assert found.columns == rows.columns
    assert with_new_commented(rows, rows.schema, stream) is rows


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"id": "number", "host": "of the server"}),
        (
            {"sql": "SELECT host AS server, id, bytes + 1 AS more, date FROM events"},
            {"id": "number", "server": "of the server"},
        ),
        ({"mode": {"deduplicate": {"keys": ["id"], "order_by": "bytes"}}}, {"id": "number", "host": "of the server"}),
        (
            {"mode": {"upsert": {"keys": ["id"], "sequence_by": "bytes"}}, "partition_by": None},
            {"id": "number", "host": "of the server"},
        ),
        (
            {"mode": {"aggregate": {"by": ["date", "host"], "measures": {"n": "count", "most": {"max": "id"}}}}},
            {"host": "of the server"},
        ),
    ],
    ids=["append", "sql", "deduplicate", "upsert", "aggregate"],
)
def test_a_refined_table_has_the_comments_of_the_columns_that_it_takes(
    spark: SparkSession, lake: str, fields: dict[str, Any], expected: dict[str, str]
) -> None:
    side = Lakeside(spark, lake)
    side.append([(1, "a", 10, "i", None)])
    side.sql("ALTER TABLE {t} ALTER COLUMN id COMMENT 'number'")
    side.sql("ALTER TABLE {t} ALTER COLUMN host COMMENT 'of the server'")
    table = refined_table(**{"table": "silver/t", "from": "bronze/events", **fields})

    side.refine(table)

    assert comments(json.loads(DeltaTable(side.uri("silver/t")).schema().to_json())) == expected
