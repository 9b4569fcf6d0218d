"""Spark's plans of the decoders: each message is parsed once."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.message_format import (
    Avro,
    AvroSingleObject,
    Csv,
    Json,
    JsonRegistry,
    Protobuf,
    RegistrySchemas,
    SchemaFile,
)
from kdi_assets.documents.model.message_rules import Explode
from kdi_assets.documents.model.stream import Cluster
from kdi_assets.messages.source import MESSAGES_DDL
from kdi_assets.streams.rules.judge import judge
from kdi_assets.streams.rules.records import stream_decoder
from kdi_assets.streams.rules.tally import PassTally
from tests.driven import web_requests
from tests.formats.fake_registry import fake_registry
from tests.formats.protobuf_messages import descriptors

FIELDS = [{"name": name, "type": ["null", "string"]} for name in ("method", "url", "day")]
DESCRIBED = {"properties": {name: {"type": "string"} for name in ("method", "url", "day")}}
JSON_SCHEMA = SchemaFile("a.schema.json", json.dumps(DESCRIBED))
VALIDATED = Json(JSON_SCHEMA, validate=True)
SCHEMA = SchemaFile("a.avsc", json.dumps({"type": "record", "name": "R", "fields": FIELDS}))
OF_SPARK = [
    SchemaFile(
        "b.avsc", json.dumps({"type": "record", "name": "R", "fields": [*FIELDS, {"name": "more", "type": more}]})
    )
    for more in (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        {"type": "map", "values": "string"},
        {"type": "string", "avro.java.string": "String"},
    )
]
PROTO = 'syntax = "proto3"; message R { string method = 1; string url = 2; string day = 3; }'
PROTOBUF = Protobuf("r.desc", descriptors(PROTO), "R")
DOCUMENTS = PROTO.replace("message", 'import "google/protobuf/struct.proto"; message').replace(
    "}", "google.protobuf.Struct more = 4; }"
)
OF_LIBRARY = Protobuf("r.desc", descriptors(DOCUMENTS), "R")
FLAT: dict[str, Any] = {"date_expression": "to_date(day)", "coordinates": "kafka"}


@pytest.mark.parametrize(
    ("fields", "looks"),
    [
        ({}, ["JsonDecoder.decode("]),
        ({"explode": Explode("word", "split(url, '/')"), "columns": {"a": "upper(word)"}}, ["JsonDecoder.decode("]),
        ({"compression": "gzip"}, ["JsonDecoder.decode(", "Compression.ungzip("]),
        ({"compression": "zstd"}, ["JsonDecoder.decode(", "Compression.unzstd("]),
        ({"format": Csv(), "record_ddl": "method string, url string, day string", **FLAT}, ["from_csv("]),
        ({"format": Avro(SCHEMA), "record_ddl": "", **FLAT}, ["AvroDecoder.decode("]),
        ({"format": AvroSingleObject(SCHEMA, (SCHEMA,)), "record_ddl": "", **FLAT}, ["AvroDecoder.decode("]),
        *(({"format": Avro(schema), "record_ddl": "", **FLAT}, ["from_avro("]) for schema in OF_SPARK),
        ({"format": PROTOBUF, "record_ddl": "", "filter": "method = 'GET'", **FLAT}, ["ProtobufDecoder.decode("]),
        ({"format": OF_LIBRARY, "record_ddl": "", "filter": "method = 'GET'", **FLAT}, ["ArrowEvalPython"]),
        ({"format": VALIDATED, "record_ddl": "", **FLAT}, ["JsonDecoder.decode(", "ArrowEvalPython"]),
        ({"format": VALIDATED, "compression": "gzip"}, ["ArrowEvalPython", "Compression.ungzip("]),
    ],
)
def test_a_message_is_decoded_once(spark: SparkSession, fields: dict[str, Any], looks: list[str]) -> None:
    """Spark copies an expression to every place of use, unless an operator is in between.

    The paths of undeclared fields need a second parse, only for messages that may have some.
    """
    plan = plan_of(spark, **fields).lower()

    assert {look: plan.count(look.lower()) for look in looks} == dict.fromkeys(looks, 1)


def test_frames_and_validation_are_one_look(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDI_HOME", str(tmp_path))
    with fake_registry() as registry:
        registry.register("t-value", JSON_SCHEMA.text, type="JSON")
        format_ = JsonRegistry(RegistrySchemas(registry.described(), "t-value"), validate=True)
        plan = plan_of(spark, format=format_, record_ddl="", **FLAT)

    assert [plan.count(look) for look in ("JsonDecoder.decode(", "ArrowEvalPython", "conv(hex(")] == [1, 1, 1]


def test_no_python_looks_at_documents_that_are_not_validated(spark: SparkSession) -> None:
    plan = plan_of(spark, format=Json(JSON_SCHEMA), record_ddl="", **FLAT)

    assert "Python" not in plan


def test_no_python_looks_at_protobuf_that_the_kernel_reads(spark: SparkSession) -> None:
    plan = plan_of(spark, format=PROTOBUF, record_ddl="", **FLAT)

    assert "Python" not in plan


def plan_of(spark: SparkSession, **fields: Any) -> str:
    """Spark's plan of the pass that writes the rows of such a stream."""
    stream = web_requests("t", Cluster("main", "nowhere:1"), **fields)
    messages = spark.createDataFrame([], MESSAGES_DDL)
    now = datetime.now(UTC)
    rows = judge(messages, stream_decoder(stream), now=now, tally=PassTally(spark, stream, now))
    return str(rows._jdf.queryExecution().optimizedPlan().toString())
