"""Streams of Kinesis that tests fill and drain."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import SparkSession

from kdi_assets.config.loader import load_streams
from kdi_assets.dev.kinesis.server import KinesisServer
from kdi_assets.drain.drain import drain
from kdi_assets.runtime.threads import start_in_thread
from kdi_assets.sources.kinesis.shards import id_of
from kdi_assets.stream.stream import Stream
from tests.documents import written
from tests.kinesis import kinesis_client
from tests.oracle import entries, read_back

BATCH = 500
HOUR = 3600
EFO = {"mode": "efo"}
PATIENCE_SECONDS = 60
NEVER_NEAR_MS = 100_000
"""A drain goes on until it is so old, or this is 0 again."""


def described(folder: Path, server: KinesisServer, fields: Mapping[str, Any]) -> Stream:
    """The stream of a document; ``fields`` are further ones of its table."""
    window = {"start": "2020-01-01", "ahead": "9 days"}  # tests advance the server's clock
    table = {"stream_name": "orders", "connection": "main", "table": "bronze/orders", "schema": "id bigint", **fields}
    documents = {
        "KinesisConnection": {"name": "main", "region": "us-east-1", "endpoint": server.endpoint},
        "KinesisTable": {**table, "date": "to_date(kinesis.timestamp)", "date_window": window},
    }
    components = [{"type": f"kdi_assets.components.{type_}", "attributes": a} for type_, a in documents.items()]
    (only,) = load_streams(written(folder, kinesis=yaml.safe_dump_all(components))).values()
    return only


class Put:
    """The stream ``orders`` of a server of ours, its table, and what was put into it."""

    def __init__(self, spark: SparkSession, lake: str, server: KinesisServer, *, shards: int, **fields: Any) -> None:
        self.spark, self.lake, self.server = spark, lake, server
        self.client = kinesis_client(server.endpoint)
        self.client.create_stream(StreamName="orders", ShardCount=shards)
        server.advance(60)
        self.stream = described(Path(lake).parent / "defs", server, fields)
        self.ids: list[int] = []

    def put(self, count: int, **fields: str) -> list[str]:
        """Put more records, each with an id of its own and these fields; their sequence numbers."""
        put: list[str] = []
        for start in range(len(self.ids), len(self.ids) + count, BATCH):
            ids = range(start, min(start + BATCH, start + count))
            records = [{"Data": json.dumps({"id": i, **fields}).encode(), "PartitionKey": f"key {i}"} for i in ids]
            answer = self.client.put_records(StreamName="orders", Records=records)
            assert answer["FailedRecordCount"] == 0
            self.ids += ids
            put += [record["SequenceNumber"] for record in answer["Records"]]
            self.server.advance(1)
        return put

    def split(self, *, at: int = 1 << 127) -> None:
        """Split the first shard at a hash key."""
        self.client.split_shard(StreamName="orders", ShardToSplit=id_of(0), NewStartingHashKey=str(at))
        self.server.advance(60)

    def drain(self, at: Callable[[str], None] = lambda point: None) -> int:
        """The number of plans that a drain commits."""
        return len(drain(self.stream, lake=self.lake, session=lambda: self.spark, at=at).commits)

    def drained(self) -> list[int]:
        return sorted(row["id"] for row in read_back(self.stream, self.lake).rows)

    def entries(self) -> list[Any]:
        return entries(self.stream.table_uri(self.lake), self.stream.app_id)


class Crash(Exception):
    """The end of a drain, where a test wants it."""


def crash_at(wanted: str) -> Callable[[str], None]:
    def at(point: str) -> None:
        if point == wanted:
            raise Crash

    return at


def reads_on(spark: SparkSession, lake: str, server: KinesisServer) -> Put:
    """A stream with records, whose drain reads on by fan-out until the server is near the end again."""
    orders = Put(spark, lake, server, shards=1, consumer=EFO)
    orders.put(300)
    server.behaviour.least_behind_ms = NEVER_NEAR_MS
    return orders


def meanwhile(
    server: KinesisServer, act: Callable[[], object], *, operation: str = "SubscribeToShard", calls: int = 1
) -> Future[None]:
    """Act once there were so many calls."""

    def wait_and_act() -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while server.calls(operation) < calls:
            assert time.monotonic() < deadline, f"fewer than {calls} calls of {operation}"
            time.sleep(0.05)
        act()

    return start_in_thread(wait_and_act, name="meanwhile")
