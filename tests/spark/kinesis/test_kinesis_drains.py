"""Whole drains of a Kinesis stream by polling: every record once, whatever fails."""

from __future__ import annotations

import json
import logging
import random
from dataclasses import replace
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from kdi_assets.messages.kinesis import capture
from kdi_assets.messages.kinesis.errors import KinesisRequestRefused, KinesisUnanswered, SeamOpen
from kdi_assets.messages.kinesis.reader import read_shards
from kdi_assets.tools.local.kinesis.faults import Fault
from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.kinesis.drains import HOUR, Crash, Put, crash_at

FAULTS = {
    "throttled": [Fault("GetRecords", times=4, code="ProvisionedThroughputExceededException")],
    "iterator expired": [Fault("GetRecords", times=2, code="ExpiredIteratorException")],
    "server error": [Fault("GetRecords", code="InternalFailure", status=500)],
    "throttled, then server errors": [
        Fault("GetRecords", times=4, code="ProvisionedThroughputExceededException"),
        Fault("GetRecords", times=2, code="InternalFailure", status=500),
    ],
    "cut off": [Fault("GetRecords", cut_after=200)],
    "answered twice": [Fault("GetRecords", times=2, repeats=True)],
}


@pytest.mark.core
@pytest.mark.scenario("Kinesis: shards split, merged, scaled")
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
    orders.split(at=1 << 126)
    orders.put(300)
    assert orders.drain() == 2, "the parent, then its children"

    assert orders.drained() == orders.ids
    last = orders.entries()[-1]
    assert sum(last.positions.values()) == len(orders.ids)
    assert {tp.partition: mark.ended for tp, mark in last.bookmarks.items()} == {0: True, 1: False, 2: False, 3: False}
    spans = [span for entry in orders.entries() for span in entry.spans.values()]
    assert sum(span.records for span in spans) == len(orders.ids)
    assert orders.audit().complete


@pytest.mark.scenario("Kinesis: requests throttled, failed, cut off, repeated")
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
        server.order(replace(fault, skip=2 if fault.repeats else 4))  # only calls with records can be repeated

    orders.drain()

    orders.assert_each_record_once()


def test_records_of_any_size_are_rows(spark: SparkSession, lake: str, server: KinesisServer) -> None:
    """Procedure: put texts of which some fit into a piece of the rows on disk, some lie in two, and some in many."""
    orders = Put(spark, lake, server, shards=1, schema="id bigint, text string")
    chance = random.Random(1)
    texts = {i: chance.randbytes(chance.choice([8, 4_000, 30_000, 400_000])).hex() for i in range(60)}
    for i, text in texts.items():
        orders.put_value(json.dumps({"id": i, "text": text[chance.randrange(16) :]}).encode(), id_=i)

    orders.drain()

    orders.assert_each_record_once()
    rows = DeltaTable(orders.stream.table_uri(lake)).to_pyarrow_table(columns=["id", "text"]).to_pylist()
    assert all(texts[row["id"]].endswith(row["text"]) and row["text"] for row in rows)


@pytest.mark.scenario("Kinesis: retention passes a shard's position")
def test_records_that_were_lost_from_the_disk_and_read_again_from_elsewhere_are_refused(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: capture the first 50 of 100 records; before they are written, drop the capture, and let retention
    pass 10 of them. Read again, the next 10 would get the same numbers.
    """
    orders = Put(spark, lake, server, shards=1, max_records=50)
    orders.put(10)
    server.advance(HOUR)
    orders.put(90)

    def lose(point: str) -> None:
        if point == "before reading":
            for held in spark.sparkContext._jsc.getPersistentRDDs().values():
                held.unpersist()
            server.advance(23.5 * HOUR)

    with pytest.raises(SeamOpen, match="lost"):
        orders.drain(at=lose)

    assert not orders.drained()


def test_records_that_were_lost_from_the_disk_are_read_again(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: drop a capture before its records are written, and put more into the same shard."""
    orders = Put(spark, lake, server, shards=1)
    orders.put(50)

    def lose(point: str) -> None:
        if point == "before reading" and len(orders.ids) == 50:
            for held in spark.sparkContext._jsc.getPersistentRDDs().values():
                held.unpersist()
            orders.put(5)

    orders.drain(at=lose)

    assert [entry.messages for entry in orders.entries() if entry.kind == "drain"][:1] == [50]
    orders.drain()
    orders.assert_each_record_once()


@pytest.mark.scenario("Kinesis: requests throttled, failed, cut off, repeated")
@pytest.mark.parametrize(
    ("code", "error"),
    [("AccessDeniedException", KinesisRequestRefused), ("ResourceNotFoundException", KinesisUnanswered)],
)
def test_what_the_executors_are_refused_stops_a_drain_before_it_commits(
    spark: SparkSession, lake: str, server: KinesisServer, code: str, error: type[Exception]
) -> None:
    """A shard that expires while it is read is another matter than a right: the next drain does not list it."""
    orders = Put(spark, lake, server, shards=1)
    orders.put(10)
    server.order(Fault("GetRecords", skip=1, code=code))

    with pytest.raises(error, match=code):
        orders.drain()
    assert orders.drained() == []
    orders.drain()

    orders.assert_each_record_once()


def test_a_drain_takes_its_records_in_plans_of_max_records(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = Put(spark, lake, server, shards=2, max_records=400)
    orders.put(1_000)

    assert orders.drain() == 3

    assert orders.drained() == orders.ids
    assert [entry.messages for entry in orders.entries() if entry.kind == "drain"][:2] == [400, 400]


def test_a_plan_of_a_part_of_what_was_read_ends_at_a_record(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: limit the bytes of a plan; of a stream without drains, 10 kB are expected of each record."""
    orders = Put(spark, lake, server, shards=2, max_bytes=1_500_000)
    orders.put(400)

    assert orders.drain() == 2

    assert orders.drained() == orders.ids
    assert [entry.messages for entry in orders.entries() if entry.kind == "drain"] == [150, 250]


@pytest.mark.scenario("idle topic, start at its end")
def test_latest_is_the_moment_of_the_first_commit(spark: SparkSession, lake: str, server: KinesisServer) -> None:
    orders = Put(spark, lake, server, shards=1, start="latest")
    orders.put(10)
    server.advance(5)

    assert orders.drain() == 0
    orders.put(20)
    assert orders.drain() == 1

    assert orders.drained() == orders.ids[10:]


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

    orders.assert_each_record_once()


def test_no_log_has_the_keys_that_the_executors_get(
    spark: SparkSession, lake: str, server: KinesisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Procedure: let py4j log everything; it logs each call of Java with its arguments."""
    orders = Put(spark, lake, server, shards=1)
    orders.put(10)
    for name in ("py4j.clientserver", "py4j.java_gateway"):
        caplog.set_level(logging.DEBUG, name)

    orders.drain()

    assert orders.drained() == orders.ids
    assert "ShardReader" in caplog.text, "py4j logs the calls beside it"
    assert server.environment()["AWS_SECRET_ACCESS_KEY"] not in caplog.text
