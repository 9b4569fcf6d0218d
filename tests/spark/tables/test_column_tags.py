"""Tags of fields, by schemas and documents: on the columns in Delta, and on those of the tables made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from kdi_assets.documents.model.message_format import Avro, Json, Protobuf, SchemaFile
from kdi_assets.documents.model.message_rules import Explode, FieldUse, Mask
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.formats.comments import described, tags_by_path
from kdi_assets.messages.formats.protobuf.descriptors import compiled
from kdi_assets.streams.rules.column_comments import commented
from kdi_assets.streams.rules.errors import ShapeMistake
from kdi_assets.streams.rules.shape import analyse
from tests.judged import stream_of
from tests.refined import EVENTS, Lakeside, refined_table

TAGS = "confluent:tags"
PERSON = {
    "type": "record",
    "name": "Person",
    TAGS: ["GDPR"],
    "fields": [{"name": "name", "type": "string", TAGS: ["PII"]}, {"name": "n", "type": "int"}],
}
SHOP = {"type": "record", "name": "Shop", "fields": [{"name": "owner", "type": "string", TAGS: ["PII"]}]}
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "mail", "type": ["null", "string"], TAGS: ["PII", "contact"], "doc": "of the buyer"},
        {"name": "buyer", "type": ["null", PERSON]},
        {"name": "guests", "type": {"type": "array", "items": "Person"}},
        {"name": "either", "type": ["Person", SHOP]},
    ],
}
JSON_SCHEMA = {
    "type": "object",
    "definitions": {
        "person": {
            "type": "object",
            TAGS: ["GDPR"],
            "properties": {"name": {"type": "string", TAGS: ["PII"]}, "n": {"type": "integer"}},
        }
    },
    "properties": {
        "id": {"type": "integer"},
        "mail": {"type": "string", TAGS: ["PII", "contact"], "description": "of the buyer"},
        "buyer": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/person"}]},
        "guests": {"type": "array", "items": {"$ref": "#/definitions/person"}},
    },
}
PROTO = """
syntax = "proto3";
package shop;
import "confluent/meta.proto";
message Order {
  message Person {
    option (confluent.message_meta) = {tags: ["GDPR"]};
    string name = 1 [(confluent.field_meta) = {tags: ["PII"]}];
    int32 n = 2;
  }
  int64 id = 1;
  string mail = 2 [(confluent.field_meta) = {tags: ["PII", "contact"]}];  // of the buyer
  Person buyer = 3;
  repeated Person guests = 4;
}
"""
FOUND = {
    "mail": ["contact", "pii"],
    "buyer": ["gdpr"],
    "buyer.name": ["pii"],
    "guests": ["gdpr"],
    "guests[].name": ["pii"],
}


def protobuf(folder: Path) -> Protobuf:
    (folder / "order.proto").write_text(PROTO)
    return Protobuf("order.proto", compiled("order.proto", folder=folder), "shop.Order")


def tags(stream: Stream, spark: SparkSession) -> dict[str, Any]:
    """Path of a column of the stream's table to its tags."""
    columns = commented(analyse(stream, spark), stream, spark)
    return dict(tags_by_path(json.loads(columns.json())["fields"]))


@pytest.mark.parametrize("format_", ["avro", "json schema", "protobuf"])
def test_tags_of_a_schema_are_those_of_the_columns_at_every_depth_in_lower_case(
    spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    """Also those of a field's type. `mail` is renamed, and `buyer` is computed by the document: its own tags stay."""
    formats = {
        "avro": Avro(SchemaFile("o", json.dumps(AVRO))),
        "json schema": Json(SchemaFile("o", json.dumps(JSON_SCHEMA))),
        "protobuf": protobuf(tmp_path),
    }
    stream = stream_of("", format=formats[format_])
    renamed = stream_of(
        "",
        format=formats[format_],
        fields={"mail": FieldUse("rename", "e_mail")},
        columns={"buyer": "upper(buyer.name)"},
    )

    found, later = tags(stream, spark), tags(renamed, spark)

    of_union = {"either": ["gdpr"], "either.member0.name": ["pii"], "either.member1.owner": ["pii"]}
    assert found == FOUND | (of_union if format_ == "avro" else {})
    assert later["e_mail"] == ["contact", "pii"]
    assert later["buyer"] == ["gdpr"], "what replaces a tagged field is tagged as well"


def test_a_document_tags_columns_and_those_that_it_computes(spark: SparkSession) -> None:
    stream = stream_of(
        "user struct<mail: string, id: bigint>, ip string",
        columns={"host": "split_part(user.mail, '@', 2)"},
        tags={"USER.mail": ("pii", "contact"), "host": ("contact",), "ip": ("pii",)},
        mask={"ip": Mask("null")},
    )

    assert tags(stream, spark) == {"user.mail": ["contact", "pii"], "host": ["contact"], "ip": ["pii"]}


def test_a_tag_of_a_column_that_does_not_exist_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ShapeMistake, match="no such column") as refused:
        analyse(stream_of("ip string", tags={"pi": ("pii",)}), spark)

    assert refused.value.field == "tags.pi"


def test_elements_that_become_rows_keep_the_tags_of_their_fields_and_of_their_array(spark: SparkSession) -> None:
    format_ = Json(SchemaFile("o", json.dumps(JSON_SCHEMA)))
    stream = stream_of("", format=format_, explode=Explode("guest", "guests"))
    filtered = stream_of("", format=format_, explode=Explode("guest", "filter(guests, g -> g.n > 1)"))

    assert tags(stream, spark) == {
        "mail": ["contact", "pii"],
        "buyer": ["gdpr"],
        "buyer.name": ["pii"],
        "guest": ["gdpr"],
        "guest.name": ["pii"],
    }
    assert tags(filtered, spark)["guest.name"] == ["pii"], "an expression passes on what lies in an element"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"host": ["pii"]}),
        ({"sql": "SELECT host AS server, upper(host) AS loud, date FROM events"}, {"server": ["pii"]}),
        ({"mode": {"deduplicate": {"keys": ["id"], "order_by": "bytes"}}}, {"host": ["pii"]}),
        ({"mode": {"upsert": {"keys": ["id"], "sequence_by": "bytes"}}, "partition_by": None}, {"host": ["pii"]}),
        ({"mode": {"aggregate": {"by": ["date", "host"], "measures": {"n": "count"}}}}, {"host": ["pii"]}),
    ],
    ids=["append", "sql", "deduplicate", "upsert", "aggregate"],
)
def test_a_refined_table_has_the_tags_of_the_columns_that_it_takes(
    spark: SparkSession, lake: str, fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    side = Lakeside(spark, lake)
    events: Any = StructType.fromDDL(EVENTS)
    events["host"].metadata = described({}, "", ["PII"])
    side.append([(1, "a", 10, "i", None)], schema=events)
    table = refined_table(**{"table": "silver/t", "from": "bronze/events", **fields})

    side.refine(table)

    assert tags_by_path(json.loads(DeltaTable(side.uri("silver/t")).schema().to_json())["fields"]) == expected
