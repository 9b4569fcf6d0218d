"""Whole drains of a Kinesis stream, by polling."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from kdi_assets.audit.audit import audit
from kdi_assets.config.loader import load_streams
from kdi_assets.dev.kinesis.faults import Fault
from kdi_assets.dev.kinesis.server import KinesisServer, start_kinesis
from kdi_assets.drain.drain import drain
from kdi_assets.drain.plan_errors import TopicRecreated
from kdi_assets.errors import KdiError
from kdi_assets.monitoring.checks.all_checks import run_check
from kdi_assets.monitoring.checks.subject import CheckSubject
from kdi_assets.recovery.resolve import decide
from kdi_assets.replay.replay_dates import replay_dates
from kdi_assets.replay.replay_letters import replay_letters
from kdi_assets.sources.kinesis import capture
from kdi_assets.sources.kinesis.errors import KinesisRequestRefused, SeamOpen, ShardTrimmed
from kdi_assets.sources.kinesis.reader import read_shards
from kdi_assets.sources.kinesis.shards import id_of
from kdi_assets.stream.message_rules import Contract
from kdi_assets.stream.stream import Stream, TopicPartition
from kdi_assets.upkeep.erase import erase
from kdi_assets.upkeep.erase_selection import EraseFilter
from tests.documents import written
from tests.kinesis import kinesis_client
from tests.oracle import entries, read_back
from tests.readers import assert_others_read_tables_of, by_duckdb

BATCH = 500
HOUR = 3600


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
    """A stream of a server of ours, its table, and what was put into it."""

    def __init__(self, spark: SparkSession, lake: str, server: KinesisServer, *, shards: int, **fields: Any) -> None:
        self.spark, self.lake, self.server = spark, lake, server
        self.client = kinesis_client(server.endpoint)
        self.client.create_stream(StreamName="orders", ShardCount=shards)
        server.advance(60)
        self.stream = described(Path(lake).parent / "defs", server, fields)
        self.ids: list[int] = []

    def put(self, count: int) -> list[str]:
        """Put more records, each with an id of its own; their sequence numbers."""
        put: list[str] = []
        for start in range(len(self.ids), len(self.ids) + count, BATCH):
            ids = range(start, min(start + BATCH, start + count))
            records = [{"Data": json.dumps({"id": i}).encode(), "PartitionKey": f"key {i}"} for i in ids]
            answer = self.client.put_records(StreamName="orders", Records=records)
            assert answer["FailedRecordCount"] == 0
            self.ids += ids
            put += [record["SequenceNumber"] for record in answer["Records"]]
            self.server.advance(1)
        return put

    def drain(self, at: Callable[[str], None] = lambda point: None) -> int:
        """The number of plans that a drain commits."""
        return len(drain(self.stream, lake=self.lake, session=lambda: self.spark, at=at).commits)

    def drained(self) -> list[int]:
        return sorted(row["id"] for row in read_back(self.stream, self.lake).rows)

    def entries(self) -> list[Any]:
        return entries(self.stream.table_uri(self.lake), self.stream.app_id)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[KinesisServer]:
    """A server that both clients reach with the keys of the environment."""
    server = start_kinesis()
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    yield server
    server.stop()


ROW = (
    "struct<stream:string,shard_id:string,sequence_number:string,subsequence_number:int,partition:int,offset:bigint,"
    "timestamp:timestamp>"
)


def records_of(client: Any, shards: int) -> list[dict[str, Any]]:
    """Every record that shards hold, as boto3 reads them, with the coordinates that its row should have."""
    found: list[dict[str, Any]] = []
    for number in range(shards):
        start = {"StreamName": "orders", "ShardId": id_of(number), "ShardIteratorType": "TRIM_HORIZON"}
        iterator = client.get_shard_iterator(**start)["ShardIterator"]
        for offset, record in enumerate(client.get_records(ShardIterator=iterator)["Records"]):
            place = {"stream": "orders", "shard_id": id_of(number), "sequence_number": record["SequenceNumber"]}
            place |= {"subsequence_number": None, "partition": number, "offset": offset}
            found.append({**record, "place": {**place, "timestamp": record["ApproximateArrivalTimestamp"]}})
    return found


def test_a_row_says_where_its_record_is_to_every_reader(spark: SparkSession, lake: str, server: KinesisServer) -> None:
    """Purpose: the struct of a row leads to its record on the stream, and expressions know the partition key.
    Procedure: put records into 2 shards; drain two tables of the stream, one of whose messages become two rows each.
    Pass: Spark, delta-rs and DuckDB find in each row what boto3 finds on the stream; no coordinates are there twice.
    """
    columns = {"key": "kinesis.partition_key", "place.id": "concat(kinesis.shard_id, '/', kinesis.sequence_number)"}
    orders = Put(spark, lake, server, shards=2, columns=columns)
    orders.put(100)
    orders.drain()
    uri = orders.stream.table_uri(lake)
    wanted = [
        {"id": json.loads(r["Data"])["id"], "key": r["PartitionKey"], "kinesis": r["place"]}
        for r in records_of(orders.client, 2)
    ]
    wanted = sorted(wanted, key=lambda row: row["id"])

    by_delta_rs = DeltaTable(uri).to_pyarrow_table(columns=["id", "key", "kinesis"]).sort_by("id")
    in_duckdb = by_duckdb(uri, "id, key, kinesis")
    by_spark = spark.read.format("delta").load(uri).orderBy("id").select("id", "key", "kinesis")

    assert len(wanted) == len(orders.ids)
    assert by_delta_rs.to_pylist() == wanted
    assert [(r["kinesis"]["offset"], r["kinesis"]["sequence_number"]) for r in in_duckdb.to_pylist()] == [
        (row["kinesis"]["offset"], row["kinesis"]["sequence_number"]) for row in wanted
    ]
    assert by_spark.toArrow().cast(by_delta_rs.schema).equals(by_delta_rs)
    assert by_spark.schema["kinesis"].dataType.simpleString() == ROW
    assert_others_read_tables_of(Path(lake))
    checked = run_check("no_duplicate_coordinates", CheckSubject(orders.stream, lake, lambda: spark))
    assert (checked.passed, checked.numbers["rows_looked_at"]) == (True, len(orders.ids))

    twice = described(Path(lake).parent / "twice", server, {"table": "twice", "explode": {"n": "array(1, 2)"}})
    drain(twice, lake=lake, session=lambda: spark)
    rows = DeltaTable(twice.table_uri(lake)).to_pyarrow_table().to_pylist()
    assert sorted((r["id"], r["kinesis"]["index"], r["kinesis"]["count"]) for r in rows) == [
        (i, index, 2) for i in orders.ids for index in (0, 1)
    ]


def test_a_dead_letter_leads_to_its_record_and_can_be_replayed(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: put text where the schema wants a number; replay it by a contract that leaves such values out."""
    orders = Put(spark, lake, server, shards=2, columns={"key": "kinesis.partition_key"})
    orders.put(5)
    bad = {"Data": b'{"id": "six"}', "PartitionKey": "schl\u00fcssel"}
    (put,) = orders.client.put_records(StreamName="orders", Records=[bad])["Records"]
    server.advance(1)
    orders.drain()

    (letter,) = read_back(orders.stream, lake).dead_letters
    at = {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": letter["sequence_number"]}
    shard = id_of(letter["partition"])
    iterator = orders.client.get_shard_iterator(StreamName=letter["topic"], ShardId=shard, **at)["ShardIterator"]
    (record,) = orders.client.get_records(ShardIterator=iterator, Limit=1)["Records"]
    assert (record["Data"], record["PartitionKey"].encode()) == (letter["value"], letter["key"])
    assert (letter["sequence_number"], shard) == (put["SequenceNumber"], put["ShardId"])
    assert (letter["subsequence_number"], letter["timestamp"]) == (None, record["ApproximateArrivalTimestamp"])

    orders.stream = replace(orders.stream, contract=Contract(types="discard_value"))
    replay_letters(orders.stream, lake=lake, session=lambda: spark)

    (row,) = (r for r in read_back(orders.stream, lake).rows if r["id"] is None)
    place = {"stream": "orders", "shard_id": shard, "sequence_number": put["SequenceNumber"]}
    assert place.items() <= row["kinesis"].items()
    assert row["key"] == bad["PartitionKey"]
    assert audit(orders.stream, lake=lake, session=lambda: spark).complete


class Crash(Exception):
    """The end of a drain, where a test wants it."""


def crash_at(wanted: str) -> Callable[[str], None]:
    def at(point: str) -> None:
        if point == wanted:
            raise Crash

    return at


def test_each_record_is_a_row_once_through_a_crash_and_a_split(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Purpose: the way of a record, from its shard to its row, with positions, bookmarks and spans that agree.
    Procedure: put 2,000 records into 2 shards and drain; put more, end a drain before its commit, drain; split a shard,
    put more, and drain.
    Pass: every id that was put is in the table once; positions count the records of each shard; the audit agrees.
    """
    orders = Put(spark, lake, server, shards=2)
    orders.put(2_000)
    assert (orders.drain(), orders.drain()) == (1, 0)
    assert orders.drained() == orders.ids

    orders.put(700)
    with pytest.raises(Crash):
        orders.drain(crash_at("accounted for"))
    assert len(orders.drained()) == 2_000
    assert orders.drain() == 1
    assert orders.drained() == orders.ids

    orders.put(100)
    orders.client.split_shard(StreamName="orders", ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 126))
    server.advance(60)
    orders.put(300)
    assert orders.drain() == 2, "the parent, then its children"

    assert orders.drained() == orders.ids
    last = orders.entries()[-1]
    assert sum(last.positions.values()) == len(orders.ids)
    assert {tp.partition: mark.ended for tp, mark in last.bookmarks.items()} == {0: True, 1: False, 2: False, 3: False}
    spans = [span for entry in orders.entries() for span in entry.spans.values()]
    assert sum(span.records for span in spans) == len(orders.ids)
    assert audit(orders.stream, lake=lake, session=lambda: spark).complete


FAULTS = {
    "throttled": [Fault("GetRecords", times=4, code="ProvisionedThroughputExceededException")],
    "iterator expired": [Fault("GetRecords", times=2, code="ExpiredIteratorException")],
    "server error": [Fault("GetRecords", code="InternalFailure", status=500)],
    "cut off": [Fault("GetRecords", cut_after=200)],
    "answered twice": [Fault("GetRecords", times=2, repeats=True)],
}


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_requests_that_fail_neither_lose_nor_double_a_record(
    spark: SparkSession, lake: str, server: KinesisServer, faults: list[Fault]
) -> None:
    """Procedure: the faults hit the reader on the executors, after the second client looked at both shards."""
    orders = Put(spark, lake, server, shards=2)
    orders.put(600)
    server.behaviour.empty_pages = 1
    server.behaviour.arrival_jitter_ms = 300
    for fault in faults:
        server.order(replace(fault, skip=4))

    orders.drain()

    assert orders.drained() == orders.ids


def test_what_the_executors_are_refused_stops_a_drain_before_it_commits(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = Put(spark, lake, server, shards=1)
    orders.put(10)
    server.order(Fault("GetRecords", skip=1, code="AccessDeniedException"))

    with pytest.raises(KinesisRequestRefused, match="AccessDenied"):
        orders.drain()
    assert orders.drained() == []
    orders.drain()

    assert orders.drained() == orders.ids


def test_a_drain_takes_its_records_in_plans_of_max_records(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = Put(spark, lake, server, shards=2, max_records=400)
    orders.put(1_000)

    assert orders.drain() == 3

    assert orders.drained() == orders.ids
    assert [entry.messages for entry in orders.entries() if entry.kind == "drain"][:2] == [400, 400]


def test_latest_is_the_moment_of_the_first_commit(spark: SparkSession, lake: str, server: KinesisServer) -> None:
    orders = Put(spark, lake, server, shards=1, start="latest")
    orders.put(10)
    server.advance(5)

    assert orders.drain() == 0
    orders.put(20)
    assert orders.drain() == 1

    assert orders.drained() == orders.ids[10:]


@pytest.mark.parametrize("behaviour", ["horizon", "refused", "empty"])
def test_a_record_that_retention_passed_after_it_was_read_is_no_loss(
    spark: SparkSession, lake: str, server: KinesisServer, behaviour: Any
) -> None:
    server.behaviour.trimmed_position = behaviour
    orders = Put(spark, lake, server, shards=1)
    orders.put(10)
    server.advance(10 * HOUR)
    orders.drain()
    orders.put(20)
    server.advance(15 * HOUR)

    orders.drain()

    assert orders.drained() == orders.ids


def test_retention_that_may_have_passed_unread_records_is_refused(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = Put(spark, lake, server, shards=1)
    orders.put(10)
    orders.drain()
    orders.put(20)
    server.advance(30 * HOUR)

    with pytest.raises(ShardTrimmed):
        orders.drain()

    assert orders.drained() == orders.ids[:10]


def test_a_shard_that_is_idle_for_longer_than_retention_is_no_loss_while_it_is_drained(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = Put(spark, lake, server, shards=2)
    orders.put(10)
    orders.drain()
    for _ in range(4):
        server.advance(8 * HOUR)
        assert orders.drain() == 0
    orders.put(20)
    orders.drain()

    assert orders.drained() == orders.ids
    assert [entry.kind for entry in orders.entries()] == ["start", "drain", *["renewal"] * 4, "drain"]


def test_a_shard_may_expire_once_it_was_read_to_its_end(spark: SparkSession, lake: str, server: KinesisServer) -> None:
    orders = Put(spark, lake, server, shards=1)
    orders.put(10)
    orders.client.split_shard(StreamName="orders", ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
    server.advance(60)
    for hours in (0, 20, 10):
        server.advance(hours * HOUR)
        orders.put(20)
        orders.drain()
    listed = [shard["ShardId"] for shard in orders.client.list_shards(StreamName="orders")["Shards"]]

    assert orders.drained() == orders.ids
    assert listed == [id_of(1), id_of(2)]
    assert orders.entries()[-1].positions[TopicPartition("orders", 0)] == 10


def test_after_a_restore_the_records_since_that_version_are_drained_again(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = Put(spark, lake, server, shards=2)
    orders.put(30)
    orders.drain()
    orders.put(40)
    orders.drain()
    version = orders.entries()[-2].version
    spark.sql(f"RESTORE TABLE delta.`{orders.stream.table_uri(lake)}` TO VERSION AS OF {version}")
    assert orders.drained() == orders.ids[:30]

    orders.drain()

    assert orders.drained() == orders.ids


def test_a_decision_moves_no_position_that_is_only_a_number(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = Put(spark, lake, server, shards=1)
    orders.put(30)
    orders.drain()
    shard = TopicPartition("orders", 0)

    for action, numbers in (("rewind", {"to": 10}), ("accept-loss", {"until": 40})):
        with pytest.raises(KdiError):
            decide(orders.stream, lake, action, topic_partition=shard, session=lambda: spark, **numbers)  # type: ignore[arg-type]

    orders.put(5)
    orders.drain()
    assert orders.drained() == orders.ids


def test_a_reader_that_begins_too_late_stops_a_drain(
    spark: SparkSession, lake: str, server: KinesisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: the reader goes on after a record that nobody has read."""
    orders = Put(spark, lake, server, shards=1)
    orders.put(10)
    orders.drain()
    (skipped,) = orders.put(1)
    orders.put(5)

    def late(session: SparkSession, access: Any, stream: str, starts: Any, **options: Any) -> DataFrame:
        passed_over = [replace(start, bookmark=replace(start.bookmark, sequence=skipped)) for start in starts]
        return read_shards(session, access, stream, passed_over, **options)

    with monkeypatch.context() as mutated:
        mutated.setattr(capture, "read_shards", late)
        with pytest.raises(SeamOpen, match="first record"):
            orders.drain()
    orders.drain()

    assert orders.drained() == orders.ids


def test_a_stream_that_was_created_again_is_refused(spark: SparkSession, lake: str, server: KinesisServer) -> None:
    orders = Put(spark, lake, server, shards=1)
    orders.put(10)
    orders.drain()
    orders.client.delete_stream(StreamName="orders")
    server.advance(60)
    orders.client.create_stream(StreamName="orders", ShardCount=1)
    server.advance(60)

    with pytest.raises(TopicRecreated):
        orders.drain()


def test_shards_that_were_closed_before_they_were_read_are_read_before_their_children(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: split an empty shard and merge its children while nothing is drained; then put records."""
    orders = Put(spark, lake, server, shards=1)
    orders.drain()
    orders.client.split_shard(StreamName="orders", ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
    server.advance(60)
    orders.put(40)
    orders.client.merge_shards(StreamName="orders", ShardToMerge=id_of(1), AdjacentShardToMerge=id_of(2))
    server.advance(60)
    orders.put(50)

    assert orders.drain() == 2, "the empty one needs no plan, its children and their child need one each"

    assert orders.drained() == orders.ids
    assert {tp.partition: mark.ended for tp, mark in orders.entries()[-1].bookmarks.items()} == {
        **dict.fromkeys((0, 1, 2), True),
        3: False,
    }


def test_a_plan_of_a_part_of_what_was_read_ends_at_a_record(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: limit the bytes of a plan; of a stream without drains, 10 kB are expected of each record."""
    orders = Put(spark, lake, server, shards=2, max_bytes=1_500_000)
    orders.put(400)

    assert orders.drain() == 2

    assert orders.drained() == orders.ids
    assert [entry.messages for entry in orders.entries() if entry.kind == "drain"] == [150, 250]


def test_what_was_drained_is_replayed_from_dead_letters_erased_and_checked_as_of_a_topic(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Purpose: whatever changes rows after a drain works as of a topic, and the next drain goes on.
    Procedure: drain records of which one is a dead letter by the document; replay it by another document; erase two
    records, replay dates; put more and drain; run every check.
    Pass: the dead letter is a row once, the erased records are gone, also after the replay of dates; all else is
    there, and only the share of dead letters is over its limit.
    """
    small = {"small": {"sql": "id < 29", "then": "dead_letter"}}
    orders = Put(spark, lake, server, shards=2, expectations=small)
    orders.put(30)
    orders.drain()
    assert orders.drained() == orders.ids[:29]

    orders.stream = replace(orders.stream, expectations={})
    replay_letters(orders.stream, lake=lake, session=lambda: spark)
    assert orders.drained() == orders.ids
    erase(orders.stream, lake=lake, session=lambda: spark, chosen=EraseFilter("id < 2"), because="asked to")
    replay_dates(orders.stream, lake=lake, session=lambda: spark, first=date(2020, 1, 1), last=date(2030, 1, 1))
    orders.put(10)
    assert orders.drain() == 1

    assert orders.drained() == orders.ids[2:]
    assert audit(orders.stream, lake=lake, session=lambda: spark).complete
    results = {
        name: run_check(name, CheckSubject(orders.stream, lake, lambda: spark)) for name in orders.stream.check_names
    }
    assert {name for name, result in results.items() if result.level != "passed"} == {"dead_letter_rate"}
