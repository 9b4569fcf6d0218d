"""What Spark makes of the decoders: one look at each message."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from kdi_assets.drain.judge import judge
from kdi_assets.drain.shape import KAFKA_DDL, stream_decoder
from kdi_assets.message_format import Avro, AvroSingleObject, Csv, Protobuf, SchemaFile
from kdi_assets.stream import KafkaCluster
from tests.driven import web_requests
from tests.protobuf_messages import descriptors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIELDS = [{"name": name, "type": ["null", "string"]} for name in ("method", "url", "day")]
SCHEMA = SchemaFile("a.avsc", json.dumps({"type": "record", "name": "R", "fields": FIELDS}))
PROTO = 'syntax = "proto3"; message R { string method = 1; string url = 2; string day = 3; }'
PROTOBUF = Protobuf("r.desc", descriptors(PROTO), "R")
FLAT: dict[str, Any] = {"date_expression": "to_date(day)", "coordinates": "kafka"}


@pytest.mark.parametrize(
    ("fields", "looks_at_it"),
    [
        ({}, "from_json("),
        ({"compression": "gzip"}, "from_json("),
        ({"compression": "gzip"}, "readNBytes"),
        ({"compression": "zstd"}, "from_json("),
        ({"compression": "zstd"}, "getFrameContentSize"),
        ({"format": Csv(), "record_ddl": "method string, url string, day string", **FLAT}, "from_csv("),
        ({"format": Avro(SCHEMA), "record_ddl": "", **FLAT}, "from_avro("),
        ({"format": AvroSingleObject(SCHEMA, (SCHEMA,)), "record_ddl": "", **FLAT}, "from_avro("),
        ({"format": PROTOBUF, "record_ddl": "", **FLAT}, "ArrowEvalPython"),
        ({"format": PROTOBUF, "record_ddl": "", "filter": "method = 'GET'", **FLAT}, "ArrowEvalPython"),
    ],
)
def test_a_message_is_decoded_once(spark: SparkSession, fields: dict[str, Any], looks_at_it: str) -> None:
    """Spark copies an expression to every place of use, unless something stands in between."""
    from pyspark.sql import Observation

    stream = web_requests("t", KafkaCluster("main", "nowhere:1"), **fields)
    messages = spark.createDataFrame([], KAFKA_DDL)
    now = datetime.now(UTC)
    rows = judge(messages, stream, stream_decoder(stream), now=now, topic_partitions=1, counts=Observation())

    plan = rows._jdf.queryExecution().optimizedPlan().toString()

    assert plan.lower().count(looks_at_it.lower()) == 1
