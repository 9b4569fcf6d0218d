"""Calls of kafka-delta-ingest as its README, its scripts, its tests and a Dockerfile have them, and their tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TABLES: Mapping[str, tuple[dict[str, Any], str]] = {
    "web_requests": (
        {
            "meta": {
                "producer": {"timestamp": "string"},
                "kafka": {"offset": "long", "topic": "string", "partition": "integer"},
            },
            "method": "string", "session_id": "string", "status": "integer", "url": "string", "uuid": "string",
            "date": "string",
        },
        "date",
    ),
    "emails": (
        {"id": "string", "sender": "string", "recipient": "string", "timestamp": "timestamp", "date": "string"},
        "date",
    ),
    "example": ({"id": "string", "value": "integer", "modified": "string", "modified_date": "string"}, "modified_date"),
    "zero_offset": ({"color": "string", "id": "integer"}, "color"),
    "default": ({"id": "integer", "name": "string", "date": "string"}, "date"),
    "dlq_test": ({"value": "string", "a_list_of_structs": [{"value": "string"}], "date": "string"}, "date"),
}  # fmt: skip
"""The columns of the tables in its tests, and the column that each is partitioned by."""
AVRO = json.dumps(
    {
        "type": "record",
        "name": "test",
        "fields": [{"name": n, "type": t} for n, t in {"id": "int", "name": "string", "date": "string"}.items()],
    }
)
WEB_REQUESTS = (
    "date: substr(meta.producer.timestamp, `0`, `10`)",
    "meta.kafka.offset: kafka.offset",
    "meta.kafka.partition: kafka.partition",
    "meta.kafka.topic: kafka.topic",
)
EMAILS = ("-l", "2", "-m", "10", "-b", "370", "-c", "-t", "date: substr(timestamp,`0`,`10`)",
          "-t", "_kafka_offset: kafka.offset")  # fmt: skip
SCRIPT = r"""#!/bin/bash

export AWS_ENDPOINT_URL=http://0.0.0.0:4566
export AWS_ACCESS_KEY_ID=test
export AWS_SECRET_ACCESS_KEY=hunter2

RUST_LOG=debug ./target/debug/kafka-delta-ingest ingest web_requests ./data/web_requests \
  -l 60 \
  -a web_requests \
  -K "auto.offset.reset=earliest" \
  -t 'date: substr(meta.producer.timestamp, `0`, `10`)' \
      'meta.kafka.offset: kafka.offset' \
      'meta.kafka.partition: kafka.partition' \
      'meta.kafka.topic: kafka.topic' \
  -s "localhost:8125"
"""
BLOG = r"""kafka-delta-ingest ingest web_requests s3://path_to_web_requests_delta_table \
  -l 60 \
  -K "auto.offset.reset=earliest" \
  -t 'date: substr(meta.producer.timestamp, `0`, `10`)' \
      'meta.kafka.offset: kafka.offset' \
      'meta.kafka.partition: kafka.partition' \
      'meta.kafka.topic: kafka.topic'
"""
EVENT_HUBS = """docker run -it --network=host ^
  -e RUST_LOG="debug" ^
  -e SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt ^
  -e AZURE_STORAGE_ACCOUNT_NAME=account ^
  -e "AZURE_STORAGE_ACCOUNT_KEY=hunter2" ^
  kdi:0.1 ^
  ingest web_requests adls2://files/web_requests ^
  --allowed_latency 5 ^
  --kafka kdi.servicebus.windows.net:9093 ^
  --Kafka security.protocol=SASL_SSL ^
  --Kafka sasl.mechanism=PLAIN ^
  --Kafka sasl.username=$ConnectionString ^
  --Kafka sasl.password=Endpoint=sb://kdi.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=hunter2 ^
  --Kafka socket.keepalive.enable=true ^
  --Kafka metadata.max.age.ms=180000 ^
  --Kafka heartbeat.interval.ms=3000 ^
  --Kafka session.timeout.ms=30000 ^
  --Kafka debug=broker,security,protocol ^
  --app_id web_requests ^
  --transform "date: substr(meta.producer.timestamp, `0`, `10`)" ^
  --transform "meta.kafka.offset: kafka.offset" ^
  --transform "meta.kafka.partition: kafka.partition" ^
  --transform "meta.kafka.topic: kafka.topic" ^
  --auto_offset_reset earliest
"""
DOCKERFILE = """FROM rust:1.86 AS builder
ENV APP_ID=not_of_the_last_stage
FROM debian:12
ENV KAFKA_BROKERS=broker-1:9092,broker-2 APP_ID=default_app \\
    DECOMPRESS_GZIP=true WRITE_CHECKPOINTS=0
ENV TOPIC default
ENTRYPOINT ["/build/kafka-delta-ingest"]
CMD ["ingest", "${TOPIC}", "data/default", "-K", "security.protocol=SASL_SSL", "-K", "sasl.mechanism=SCRAM-SHA-512", \\
     "-e", "-o", "latest"]
"""


@dataclass(frozen=True)
class Call:
    """A call, and what its import gives.

    Attributes:
        words: Our options and its arguments.
        files: Further files of the working directory.
        variables: Of the environment.
        table: Its columns are in the file ``log.json``.
        stream: Lines of the stream's document; empty if someone must decide.
        cluster: Lines of the documents of the cluster and of the registry.
        said: What the command prints.
    """

    name: str
    words: Sequence[str]
    table: str
    stream: Sequence[str] = ()
    cluster: Sequence[str] = ()
    said: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)


def _transforms(option: str) -> list[str]:
    return [word for transform in WEB_REQUESTS for word in (option, transform)]


CALLS = (
    Call(
        "its README's example",
        ["--", "ingest", "web_requests", "./data/web_requests", "--allowed_latency", "60", "--app_id", "web_requests",
         *_transforms("--transform"), "--auto_offset_reset", "earliest"],
        "web_requests",
        ["table: web_requests  # below KDI_LAKE, HERE/data", "app_id: web_requests", "start: earliest",
         "drain_when: {backlog_messages: null, lag_seconds: 60}", "meta struct<producer: struct<timestamp: string>>,",
         "date: substr(meta.producer.timestamp, 1, 10)  # date: substr(meta.producer.timestamp, `0`, `10`)",
         "coordinates: meta.kafka"],
        ["bootstrap_servers: localhost:9092"],
        ["ADD COLUMNS (meta.kafka.timestamp timestamp)"],
    ),
    Call(
        "its script, with the options of an older release",
        ["--command", "consume.sh"],
        "web_requests",
        ["app_id: web_requests", "coordinates: meta.kafka", "date: substr(meta.producer.timestamp, 1, 10)"],
        said=["none: `start` decides", "kdi metrics serve --statsd localhost:8125", "AWS_ACCESS_KEY_ID"],
        files={"consume.sh": SCRIPT},
    ),
    Call(
        "the blog's call: a table that is a whole bucket",
        ["--command", "blog.sh", "--table-log", "log.json"],
        "web_requests",
        said=["table_location s3://path_to_web_requests_delta_table (blog.sh:1): is the root of its bucket"],
        files={"blog.sh": BLOG},
    ),
    Call(
        "its README on Event Hubs",
        ["--command", "hubs.txt", "--table-log", "log.json"],
        "web_requests",
        ["table: web_requests  # below KDI_LAKE, abfss://files@account.dfs.core.windows.net", "lag_seconds: 5"],
        ["bootstrap_servers: kdi.servicebus.windows.net:9093",
         "sasl: {mechanism: PLAIN, connection_string: {env: KAFKA_SASL_PASSWORD}}", "metadata.max.age.ms: '180000'"],
        ["Set KAFKA_SASL_PASSWORD: the value of --Kafka sasl.password", "none: no consumer group is joined"],
        {"hubs.txt": EVENT_HUBS},
    ),
    Call(
        "its README on client certificates",
        ["--environment", "--", "ingest", "web_requests", "data/web_requests", "-K", "security.protocol=SSL",
         *_transforms("-t")],
        "web_requests",
        ["app_id: kafka_delta_ingest"],
        ["tls: {certificate: {env: KAFKA_DELTA_INGEST_CERT}, key: {env: KAFKA_DELTA_INGEST_KEY}}"],
        variables={"KAFKA_DELTA_INGEST_CERT": "hunter2", "KAFKA_DELTA_INGEST_KEY": "hunter2"},
    ),
    Call(
        "its test on S3: a time as text, a target that the table does not have",
        ["--env-file", "env", "--table-log", "log.json", "--", "ingest", "emails", "s3://tests/feeds/emails",
         "-aemails", *EMAILS],
        "emails",
        ["table: emails  # below KDI_LAKE, s3://tests/feeds", "timestamp string",
         "timestamp: CAST(timestamp AS timestamp)", "date: substr(timestamp, 1, 10)", "coordinates: kafka",
         "drain_when: {backlog_messages: null, lag_seconds: 2, backlog_bytes: 370}"],
        said=["the table has no column _kafka_offset", "none, remove it: commits are puts with a condition",
              "ADD COLUMNS (kafka struct<topic: string, partition: int, offset: bigint, timestamp: timestamp>)"],
        files={"env": "AWS_S3_LOCKING_PROVIDER=dynamodb\nAWS_SECRET_ACCESS_KEY=hunter2\n# DELTA_DYNAMO_TABLE_NAME=x\n"},
    ),
    Call(
        "its test on Azure",
        ["--table-log", "log.json", "--", "ingest", "emails", "az://tests/emails", "-a", "emails", *EMAILS],
        "emails",
        ["table: emails  # below KDI_LAKE, abfss://tests@ACCOUNT.dfs.core.windows.net"],
    ),
    Call(
        "its test of dead letters",
        ["--", "dlq", "data/dlq_test", "--dlq_table_location", "data/dlq", "-l", "5", "-m", "6", "-b", "20",
         "--dlq_transform", "date: substr(epoch_micros_to_iso8601(timestamp),`0`,`10`)"],
        "dlq_test",
        ["a_list_of_structs array<struct<value: string>>,", "date: date"],
        said=["the table `…_dead_letters`", "none: dead letters have their own date"],
    ),
    Call(
        "its test of JSON with an empty argument",
        ["--", "ingest", "default", "data/default", "--json", "", "-a", "test_json_with_args"],
        "default",
        ["date string", "date: date", "app_id: test_json_with_args"],
        said=["format: json, the default"],
    ),
    Call(
        "its test of JSON with a registry",
        ["--", "ingest", "default", "data/default", "--json", "http://localhost:8081"],
        "default",
        ["format: {json: {registry: main}}", "name string,"],
        ["url: http://localhost:8081"],
    ),
    Call(
        "its test of Avro without a schema",
        ["--", "ingest", "default", "data/default", "--avro", ""],
        "default",
        said=["each message is an Avro container, and a record has one schema here: give --avro FILE"],
    ),
    Call(
        "its test of Avro with a file",
        ["--", "ingest", "default", "data/default", "--avro=default_schema.avro"],
        "default",
        ["format: {avro: {container: true, schema_file: default_schema.avro}}", "date: date"],
        said=["all records of a message become rows", "kafka struct<", "index: int, count: int"],
        files={"default_schema.avro": AVRO},
    ),
    Call(
        "its test of Avro with a registry",
        ["--environment", "--", "ingest", "default", "data/default", "--avro", "http://localhost:8081"],
        "default",
        ["format: {avro: {registry: main}}"],
        ["username: {env: SCHEMA_REGISTRY_USERNAME}", "password: {env: SCHEMA_REGISTRY_PASSWORD}"],
        variables={"SCHEMA_REGISTRY_USERNAME": "hunter2", "SCHEMA_REGISTRY_PASSWORD": "hunter2"},
    ),
    Call(
        "its test of Avro's single objects",
        ["--", "ingest", "default", "data/default", "--soe-avro", "default_schema.avro"],
        "default",
        ["format: {avro: {schemas: default_schema.avro}}"],
        files={"default_schema.avro": AVRO},
    ),
    Call(
        "its test of explicit offsets",
        ["--", "ingest", "default", "data/default", "--seek_offsets", '{"0":3}', "-o", "earliest"],
        "default",
        ["start: {0: 4}"],
    ),
    Call(
        "its test of offset 0: a table without dates",
        ["--", "ingest", "zero", "data/zero_offset", "-a", "zero_offset", "-t", "id: kafka.partition"],
        "zero_offset",
        said=["is partitioned by color, and tables here are partitioned by date: leave it as it is"],
    ),
    Call(
        "its help's example: a date of another name",
        ["--", "ingest", "example", "data/example", "-t", "modified_date: substr(modified,`0`,`10`)"],
        "example",
        said=["is partitioned by modified_date, and tables here are partitioned by date"],
    ),
    Call(
        "a Dockerfile",
        ["--dockerfile", "Dockerfile", "--env-file", "env"],
        "default",
        ["topic: default", "app_id: default_app", "compression: gzip", "start: latest"],
        ["bootstrap_servers: broker-1:9092,broker-2:9092",
         "sasl: {mechanism: SCRAM-SHA-512, username: {env: KAFKA_USERNAME}, password: {env: KAFKA_PASSWORD}}"],
        ["none: a drain always ends with what was there when it began"],
        {"Dockerfile": DOCKERFILE, "env": 'KAFKA_DELTA_INGEST_SCRAM_JSON={"username":"u","password":"hunter2"}\n'},
    ),
    Call(
        "a Dockerfile whose CMD is a shell's",
        ["--dockerfile", "Dockerfile"],
        "default",
        ["topic: default", "app_id: kdi", "drain_when: {backlog_messages: null, lag_seconds: 9}"],
        files={
            "Dockerfile": "FROM scratch\nENV LATENCY=9\n"
            'CMD ["sh", "-c", "kafka-delta-ingest ingest default ./data/default -a kdi -l $LATENCY"]\n'
        },
    ),
    Call(
        "an authority of its own, and a registry behind a proxy",
        ["--environment", "--", "ingest", "default", "data/default", "-K", "security.protocol=SSL",
         "-K", "ssl.endpoint.identification.algorithm=none", "-K", "fetch.min.bytes=1", "--json", "http://localhost:8081"],
        "default",
        ["format: {json: {registry: main}}"],
        ["tls: {ca: {env: KAFKA_DELTA_INGEST_CA}}", "ssl.endpoint.identification.algorithm: none",
         "proxy: {env: SCHEMA_REGISTRY_PROXY}"],
        variables={"KAFKA_DELTA_INGEST_CA": "hunter2", "SCHEMA_REGISTRY_PROXY": "http://u:hunter2@proxy:3128"},
    ),
    Call(
        "gzip, explicit offsets and dead letters by environment variables",
        ["--environment", "--", "ingest", "dlq", "data/dlq_test"],
        "dlq_test",
        ["compression: gzip", "start: {0: 124, 1: 322}"],
        said=["the table `…_dead_letters`", "none: dead letters have their own date"],
        variables={"DECOMPRESS_GZIP": "true", "KAFKA_SEEK_OFFSETS": '{"0":123,"1":321}',
                   "DLQ_TABLE_LOCATION": "data/dlq",
                   "DLQ_TRANSFORMS": "date: substr(epoch_micros_to_iso8601(timestamp),`0`,`10`)"},
    ),
    Call(
        "environment variables alone",
        ["--environment"],
        "web_requests",
        ["topic: web_requests", "lag_seconds: 30", "target_file_size: 134217728", "date: to_date(timestamp_seconds("],
        variables={"KAFKA_TOPIC": "web_requests", "TABLE_LOCATION": "data/web_requests", "ALLOWED_LATENCY": "30",
                   "MIN_BYTES_PER_FILE": "134217728", "DECOMPRESS_GZIP": "false",
                   "TRANSFORMS": "date: substr(epoch_seconds_to_iso8601(to_number(sent_at)), `0`, `10`)"},
    ),
)  # fmt: skip


def write_tables(folder: Path, table: str, *transactions: Mapping[str, Any]) -> None:
    """The table below ``data``, with the commit with which it was made and one of transactions; and ``log.json``."""
    columns, partitioned_by = TABLES[table]
    metadata = {
        "id": "22ef18ba-191c-4c36-a606-3dad5cdf3830",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(columns_type(columns)),
        "partitionColumns": [partitioned_by],
        "configuration": {},
        "createdTime": 1564524294376,
    }
    first: list[Mapping[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": metadata},
    ]
    log = folder / "data" / table / "_delta_log"
    log.mkdir(parents=True)
    for version, actions in enumerate([first, *([list(transactions)] if transactions else [])]):
        (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))
    (folder / "log.json").write_text("\n".join(map(json.dumps, first)))


def columns_type(written: Any) -> Any:
    """Columns as Delta's schema JSON."""
    match written:
        case dict():
            fields = [
                {"name": n, "type": columns_type(t), "nullable": True, "metadata": {}} for n, t in written.items()
            ]
            return {"type": "struct", "fields": fields}
        case list():
            return {"type": "array", "elementType": columns_type(written[0]), "containsNull": True}
    return written
