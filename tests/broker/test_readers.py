"""The table as three readers see it, compared row for row with what was produced."""

from __future__ import annotations

import json
import os
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from kdi_assets.tools.local.generator import Traffic, WebRequests
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream
from tests.kafka_log import Produced
from tests.readers import by_duckdb

# The full proof: KDI_PROOF_MESSAGES=1000000 pytest tests/broker/test_readers.py
MESSAGES = int(os.environ.get("KDI_PROOF_MESSAGES", "20000"))
KEPT = {name: f"meta.kafka.{name}" for name in ("partition", "offset", "timestamp", "topic")}
SAID = ("method", "session_id", "status", "url", "uuid")
COLUMNS = {**KEPT, "stamp": "meta.producer.timestamp", **{name: name for name in (*SAID, "host", "date")}}
TYPES = {
    **dict.fromkeys(COLUMNS, pa.string()),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "status": pa.int32(),
    "date": pa.date32(),
}
SCHEMA = pa.schema(TYPES.items())


@pytest.mark.core
def test_spark_delta_rs_and_duckdb_read_what_was_produced(driven: DrivenFactory) -> None:
    web = driven(partitions=4)
    values = WebRequests(Traffic(dates=3)).batch(MESSAGES, now=datetime.now(UTC))
    for number, value in enumerate(values):
        web.publisher.produce(web.stream.topic, value, partition=number % 4)
    produced = web.publisher.flush()

    web.drain()

    expected = pa.Table.from_pylist([_row(message) for message in produced], schema=SCHEMA)
    assert len(expected) == MESSAGES
    for read in (_by_spark, _by_delta_rs, _by_duckdb):
        assert read(web).cast(SCHEMA).sort_by([("partition", "ascending"), ("offset", "ascending")]).equals(expected)
    assert web.audit().complete
    protocol = DeltaTable(web.uri).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 7)
    assert set(protocol.writer_features or ()) == {"changeDataFeed", "invariants", "appendOnly"}


def _row(message: Produced) -> dict[str, Any]:
    """The row of a message, as Python reads it."""
    said = json.loads(message.value or b"")
    stamp = said["meta"]["producer"]["timestamp"]
    tp = message.topic_partition
    kept = {"partition": tp.partition, "offset": message.offset, "timestamp": message.timestamp, "topic": tp.topic}
    made = {"stamp": stamp, "host": urlparse(said["url"]).hostname, "date": date.fromisoformat(stamp[:10])}
    return {**{name: said[name] for name in SAID}, **kept, **made}


def _by_spark(web: DrivenStream) -> pa.Table:
    table = web.session().read.format("delta").load(web.uri)
    return table.selectExpr(*(f"{path} AS {name}" for name, path in COLUMNS.items())).toArrow()


def _by_delta_rs(web: DrivenStream) -> pa.Table:
    paths = ", ".join(f"{_brackets(path)} AS {name}" for name, path in COLUMNS.items())
    registered = QueryBuilder().register("requests", DeltaTable(web.uri))
    return pa.table(registered.execute(f"SELECT {paths} FROM requests").read_all())


def _brackets(path: str) -> str:
    first, *rest = path.split(".")
    return first + "".join(f"['{step}']" for step in rest)


def _by_duckdb(web: DrivenStream) -> pa.Table:
    return by_duckdb(web.uri, ", ".join(f"{path} AS {name}" for name, path in COLUMNS.items()))
