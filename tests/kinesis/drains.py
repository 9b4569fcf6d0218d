"""Streams of Kinesis that tests fill and drain."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import SparkSession

from kdi_assets.documents.loading.loader import load_streams
from kdi_assets.documents.model.kinesis_stream import KinesisStream
from kdi_assets.documents.model.stream import OffsetRange, Stream
from kdi_assets.messages.kinesis.shards import id_of, number_of
from kdi_assets.runtime.threads import start_in_thread
from kdi_assets.streams.audit.audit import AuditReport, audit
from kdi_assets.streams.audit.source_comparison import Comparison, compare
from kdi_assets.streams.drain.drain import drain
from kdi_assets.streams.resolve.resolve import Action, Decision, commit_decision, decide
from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.documents import written
from tests.kinesis.endpoint import hash_range, kinesis_client
from tests.kinesis.kpl import UserRecord, aggregate_of
from tests.kinesis.oracle import assert_each_record_once
from tests.kinesis_ledger import PutRecord, lineage, moment
from tests.oracle import entries, read_back

BATCH = 500
HOUR = 3600
EFO = {"mode": "efo"}
POLLING = {"mode": "polling"}
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
    """The stream ``orders`` of a server of ours, its table, and what was put into it.

    Args:
        folder: Of the documents; by default beside the lake.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: str,
        server: KinesisServer,
        *,
        shards: int,
        folder: Path | None = None,
        **fields: Any,
    ) -> None:
        self.spark, self.lake, self.server = spark, lake, server
        self.client = kinesis_client(server.endpoint)
        self.client.create_stream(StreamName="orders", ShardCount=shards, MaxRecordSizeInKiB=10_240)
        server.advance(60)
        self.stream = described(folder or Path(lake).parent / "defs", server, fields)
        self.ids: list[int] = []
        self.log: list[PutRecord] = []
        self.parents: dict[int, tuple[int, ...]] = {}
        self.epoch = 0

    def put(self, count: int, *, bad: int = 0, **fields: str) -> list[str]:
        """Put more records, each with an id of its own, and bad ones; the sequence numbers of the first."""
        put: list[str] = []
        for start in range(len(self.ids), len(self.ids) + count, BATCH):
            ids = range(start, min(start + BATCH, start + count))
            put += self._put([(f"key {i}", json.dumps({"id": i, **fields}).encode()) for i in ids])
            self.ids += ids
        if bad:
            begun = len(self.log)
            self._put([(f"bad {begun + n}", b'{"id": "bad %d"}' % (begun + n)) for n in range(bad)])
        return put

    def moment(self) -> datetime:
        """The server's time."""
        return moment(self.server.now())

    def put_versions(self, count: int) -> None:
        """Put a record of each of so many keys, with an id higher than those before."""
        ids = range(len(self.ids), len(self.ids) + count)
        self._put([(f"key {n}", json.dumps({"id": i}).encode()) for n, i in enumerate(ids)])
        self.ids += ids

    def put_value(self, value: bytes, *, id_: int | None = None) -> None:
        """Put a record, and say which id its row has."""
        self._put([("any", value)])
        self.ids += [] if id_ is None else [id_]

    def put_aggregate(self, *users: UserRecord, hash_key: int = 0) -> None:
        """Put user records as one record."""
        self._put([("any", aggregate_of(*users))], users=users, ExplicitHashKey=str(hash_key))

    def _put(self, records: Sequence[tuple[str, bytes]], *, users: Sequence[UserRecord] = (), **more: Any) -> list[str]:
        sent = [{"Data": data, "PartitionKey": key, **more} for key, data in records]
        answer = self.client.put_records(StreamName="orders", Records=sent)
        assert answer["FailedRecordCount"] == 0
        put_at = self.moment()
        for put, record in zip(answer["Records"], records, strict=True):
            place = number_of(put["ShardId"]), int(put["SequenceNumber"])
            each = [(user.key, user.data) for user in users] or [record]
            self.log += [PutRecord(*place, key, value, put_at, self.epoch) for key, value in each]
        self.server.advance(1)
        return [record["SequenceNumber"] for record in answer["Records"]]

    def split(self, *, at: int = 1 << 127) -> None:
        """Split the first shard at a hash key."""
        self.client.split_shard(StreamName="orders", ShardToSplit=id_of(0), NewStartingHashKey=str(at))
        self.server.advance(60)

    def open_shards(self) -> list[Any]:
        """The shards that take records, by their hash keys."""
        listed = self.client.list_shards(StreamName="orders")["Shards"]
        found = [shard for shard in listed if "EndingSequenceNumber" not in shard["SequenceNumberRange"]]
        return sorted(found, key=lambda shard: hash_range(shard)[0])

    def split_any(self) -> None:
        """Split the shard with the first hash keys in the middle."""
        shard = self.open_shards()[0]
        middle = (sum(hash_range(shard)) + 1) // 2
        self.client.split_shard(StreamName="orders", ShardToSplit=shard["ShardId"], NewStartingHashKey=str(middle))
        self._resharded()

    def merge_any(self) -> None:
        """Merge the two shards with the last hash keys."""
        *_, shard, adjacent = (shard["ShardId"] for shard in self.open_shards())
        self.client.merge_shards(StreamName="orders", ShardToMerge=shard, AdjacentShardToMerge=adjacent)
        self._resharded()

    def scale(self, more: int) -> None:
        """Have so many more or fewer shards, of equal shares of the hash keys."""
        count = len(self.open_shards()) + more
        self.client.update_shard_count(StreamName="orders", TargetShardCount=count, ScalingType="UNIFORM_SCALING")
        self._resharded()

    def _resharded(self) -> None:
        self.server.advance(60)
        self.parents |= lineage(self.client.list_shards(StreamName="orders")["Shards"])

    def make_again(self, *, shards: int) -> None:
        """Delete the stream, and create another one of its name."""
        self.client.delete_stream(StreamName="orders", EnforceConsumerDeletion=True)
        self.server.advance(60)
        self.client.create_stream(StreamName="orders", ShardCount=shards)
        self.server.advance(60)
        self.epoch, self.parents = self.epoch + 1, {}

    @property
    def uri(self) -> str:
        return self.stream.table_uri(self.lake)

    @property
    def by_fan_out(self) -> bool:
        assert isinstance(self.stream, KinesisStream)
        return self.stream.consumer.mode == "efo"

    def session(self) -> SparkSession:
        return self.spark

    def drain(self, at: Callable[[str], None] = lambda point: None) -> int:
        """The number of plans that a drain commits."""
        return len(drain(self.stream, lake=self.lake, session=self.session, at=at).commits)

    def decide(self, action: Action, **options: Any) -> Decision:
        """The decision that `kdi resolve` shows."""
        return decide(self.stream, self.lake, action, session=self.session, **options)

    def resolve(self, action: Action, **options: Any) -> Decision:
        """Make a decision and execute it, as `kdi resolve … --yes` does."""
        decision = self.decide(action, **options)
        commit_decision(self.spark, decision, self.stream, self.lake)
        return decision

    def audit(self) -> AuditReport:
        return audit(self.stream, lake=self.lake, session=self.session)

    def compare(self) -> Comparison:
        """Compare with Kinesis."""
        return compare(self.stream, lake=self.lake, session=self.session)

    def drained(self) -> list[int]:
        return sorted(row["id"] for row in read_back(self.stream, self.lake).rows)

    def entries(self) -> list[Any]:
        return entries(self.uri, self.stream.app_id)

    def assert_each_record_once(self, *, given_up: Collection[OffsetRange] = ()) -> None:
        """Ask the oracle, and the audit."""
        assert_each_record_once(self.stream, self.lake, self.log, parents=self.parents, given_up=given_up)
        audited = self.audit()
        assert audited.complete or given_up, f"missing: {audited.notes}"


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
