"""The table as three readers see it, row for row against what was produced."""

from __future__ import annotations

import importlib.util
import json
import os
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlparse

import pyarrow as pa
import pytest

from kdi_assets.sources.generator import Traffic, WebRequests
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream
from tests.kafka_log import Produced

if TYPE_CHECKING:
    from collections.abc import Sequence

# The full proof: KDI_PROOF_MESSAGES=1000000 pytest tests/broker/test_readers.py
MESSAGES = int(os.environ.get("KDI_PROOF_MESSAGES", "20000"))
COLUMNS = {
    "partition": "meta.kafka.partition",
    "offset": "meta.kafka.offset",
    "timestamp": "meta.kafka.timestamp",
    "topic": "meta.kafka.topic",
    "stamp": "meta.producer.timestamp",
    "method": "method",
    "session_id": "session_id",
    "status": "status",
    "url": "url",
    "uuid": "uuid",
    "host": "host",
    "date": "date",
}
SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        *((name, pa.string()) for name in ("topic", "stamp", "method", "session_id")),
        ("status", pa.int32()),
        *((name, pa.string()) for name in ("url", "uuid", "host")),
        ("date", pa.date32()),
    ]
)


@pytest.mark.core
def test_spark_delta_rs_and_duckdb_read_what_was_produced(driven: DrivenFactory, tmp_path: Path) -> None:
    web = driven(partitions=4)
    values = WebRequests(Traffic(dates=3)).batch(MESSAGES, now=datetime.now(UTC))
    for number, value in enumerate(values):
        web.publisher.produce(web.stream.topic, value, partition=number % 4)
    produced = web.publisher.flush()

    web.drain()

    expected = _expected(produced)
    assert len(expected) == MESSAGES
    assert _by_spark(web, tmp_path).equals(expected)
    assert _by_delta_rs(web).equals(expected)
    assert _by_duckdb(web).equals(expected)
    assert web.audit().complete


def _expected(produced: Sequence[Produced]) -> pa.Table:
    rows = []
    for message in produced:
        assert message.value is not None
        said = json.loads(message.value)
        stamp = said["meta"]["producer"]["timestamp"]
        rows.append(
            {
                **{name: said[name] for name in ("method", "session_id", "status", "url", "uuid")},
                "partition": message.topic_partition.partition,
                "offset": message.offset,
                "timestamp": message.timestamp,
                "topic": message.topic_partition.topic,
                "stamp": stamp,
                "host": urlparse(said["url"]).hostname,
                "date": date.fromisoformat(stamp[:10]),
            }
        )
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _by_spark(web: DrivenStream, tmp_path: Path) -> pa.Table:
    import pyarrow.parquet as pq

    table = web.session().read.format("delta").load(web.uri)
    flat = table.selectExpr(*(f"{path} AS {name}" for name, path in COLUMNS.items()))
    flat.orderBy("partition", "offset").coalesce(1).write.parquet(str(tmp_path / "flat"))
    return pq.read_table(tmp_path / "flat").cast(SCHEMA)


def _by_delta_rs(web: DrivenStream) -> pa.Table:
    from deltalake import DeltaTable, QueryBuilder

    paths = ", ".join(f"{_brackets(path)} AS {name}" for name, path in COLUMNS.items())
    found = QueryBuilder().register("requests", DeltaTable(web.uri)).execute(f"SELECT {paths} FROM requests").read_all()
    return pa.table(found).cast(SCHEMA).sort_by([("partition", "ascending"), ("offset", "ascending")])


def _brackets(path: str) -> str:
    first, *rest = path.split(".")
    return first + "".join(f"['{step}']" for step in rest)


def _by_duckdb(web: DrivenStream) -> pa.Table:
    return by_duckdb(web.uri, ", ".join(f"{path} AS {name}" for name, path in COLUMNS.items())).cast(SCHEMA)


def by_duckdb(uri: str, columns: str) -> pa.Table:
    """What DuckDB reads of a table, in the order of its values."""
    import duckdb

    spec = importlib.util.find_spec("duckdb_extension_delta")
    assert spec is not None and spec.submodule_search_locations
    (extension,) = Path(spec.submodule_search_locations[0]).rglob("delta.duckdb_extension")
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"LOAD '{extension}'")
        found: pa.Table = (
            connection.execute(f"SELECT {columns} FROM delta_scan('{uri}') ORDER BY ALL").arrow().read_all()
        )
    return found
