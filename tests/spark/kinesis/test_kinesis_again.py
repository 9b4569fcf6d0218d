"""What was drained from Kinesis is read again: replays, audits against the source, decisions, peeks."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kdi_assets.cli.streams.peek import peek_at
from kdi_assets.cli.streams.peeked_ranges import Wanted, searched
from kdi_assets.documents.model.kinesis_stream import Consumer, KinesisStream
from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.kinesis import capture, held_spans, source
from kdi_assets.messages.kinesis.client import reader_access
from kdi_assets.messages.kinesis.errors import SpanDiffers, SpanTrimmed
from kdi_assets.messages.kinesis.look_ahead import Ahead, look_ahead
from kdi_assets.messages.kinesis.shards import id_of
from kdi_assets.streams.audit.source_comparison import compare
from kdi_assets.streams.replay.replay_dates import replay_dates
from kdi_assets.streams.replay.report import MessagesGone, ReplayReport
from kdi_assets.streams.spark_errors import WorkerPythonUnfit
from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.kinesis.drains import HOUR, Put
from tests.kinesis.wrong_readers import beginning_after, skipping
from tests.oracle import read_back

TIMES = "id * 2"


def replay(orders: Put, *, leave_missing: bool = False) -> ReplayReport:
    """Replay all dates by another document, whose rows can only be made of the records."""
    orders.stream = replace(orders.stream, columns={"times": "id * 3"})
    dates = sorted({row["date"] for row in read_back(orders.stream, orders.lake).rows})
    session = {"lake": orders.lake, "session": lambda: orders.spark}
    return replay_dates(orders.stream, first=dates[0], last=dates[-1], leave_missing=leave_missing, **session)  # type: ignore[arg-type]


def times(orders: Put) -> dict[int, int]:
    """The second column of each row, by its id; every record that was put has one row."""
    rows = read_back(orders.stream, orders.lake).rows
    assert sorted(row["id"] for row in rows) == orders.ids
    return {row["id"]: row["times"] for row in rows}


def numbers(orders: Put) -> dict[int, tuple[int, int]]:
    """Shard and number of the record of each row, by its id."""
    rows = read_back(orders.stream, orders.lake).rows
    return {row["id"]: (row["kinesis"]["partition"], row["kinesis"]["offset"]) for row in rows}


def test_a_replay_reads_the_records_of_several_spans_again(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: three drains of two shards, a split in between; then another document, and a replay of all dates."""
    orders = Put(spark, lake, server, shards=2, columns={"times": TIMES})
    for count in (100, 30, 50):
        orders.put(count)
        orders.drain()
        if count == 30:
            orders.client.split_shard(StreamName="orders", ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 126))
            server.advance(60)
    numbered = numbers(orders)

    report = replay(orders)

    assert report.commit and report.changes == {"changed": 179, "same": 1}
    assert times(orders) == {i: 3 * i for i in orders.ids}
    assert numbers(orders) == numbered
    orders.put(20)
    orders.drain()
    assert times(orders) == {i: 3 * i for i in orders.ids}
    assert orders.audit().complete


@pytest.mark.parametrize("behaviour", ["horizon", "refused", "empty"])
def test_a_span_whose_beginning_passed_retention_is_left_as_it_is(
    spark: SparkSession, lake: str, server: KinesisServer, behaviour: Any
) -> None:
    """Procedure: one drain reads records of two ages, another one younger records; retention passes the oldest ones."""
    server.behaviour.trimmed_position = behaviour
    orders = Put(spark, lake, server, shards=1, columns={"times": TIMES})
    for count, hours in ((40, 10), (20, 1), (0, 0)):
        orders.put(count)
        server.advance(hours * HOUR)
    orders.drain()
    orders.put(10)
    orders.drain()
    server.advance(14 * HOUR)
    with pytest.raises(MessagesGone, match="Kinesis .* 60 of the 70 messages"):
        replay(orders)
    assert times(orders) == {i: 2 * i for i in orders.ids}

    replay(orders, leave_missing=True)

    assert times(orders) == {i: (2 if i < 60 else 3) * i for i in orders.ids}


def test_other_records_than_those_of_a_span_replace_nothing(
    spark: SparkSession, lake: str, server: KinesisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: the drain's reader skips a record in the midst of others, so that the span is of one record less."""
    orders = Put(spark, lake, server, shards=1, columns={"times": TIMES})
    skipped = orders.put(50)[20]
    with monkeypatch.context() as mutated:
        mutated.setattr(capture, "read_shards", skipping(skipped))
        orders.drain()
    assert orders.drained() == orders.ids[:20] + orders.ids[21:]
    before = read_back(orders.stream, lake).rows

    with pytest.raises(SpanDiffers, match="shardId-000000000000 of orders has other records from offset 0 on"):
        replay(orders)

    assert read_back(orders.stream, lake).rows == before
    # As the refusal says: only another table reads the record, and the audit names the span meanwhile.
    assert "orders/0 [0, 49): v1 read 49 records, and 50 are between" in "".join(orders.compare().faults)
    orders.stream = replace(orders.stream, table="bronze/another")
    orders.drain()
    assert orders.drained() == orders.ids


def test_the_second_client_finds_all_that_the_reader_skipped(
    spark: SparkSession, lake: str, server: KinesisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: a reader skips a record within a span of one shard; another one begins after the first record of a
    second drain, and nobody looks at the seams.
    """
    orders = Put(spark, lake, server, shards=2, columns={"times": TIMES})
    orders.put(60)
    orders.drain()
    agreed = orders.compare()
    assert agreed.agrees and agreed.agreed == agreed.messages == 60

    shard = TopicPartition("orders", 0)
    at = orders.entries()[-1].positions[shard]
    with monkeypatch.context() as mutated:
        mutated.setattr(source, "_refuse_open_seams", lambda *seen: None)
        skipped = own(orders, orders.put(30))
        mutated.setattr(capture, "read_shards", skipping(skipped[3]))
        orders.drain()
        late = own(orders, orders.put(30))
        mutated.setattr(capture, "read_shards", beginning_after(shard, late[0]))
        orders.drain()
    assert len(orders.drained()) == 118
    assert orders.audit().complete, "the numbers alone do not show it"

    compared = orders.compare()

    read, all_of_it = len(skipped) - 1, len(skipped)
    assert not compared.agrees and not (compared.changed or compared.absent)
    commit, span = orders.entries()[-2].version, OffsetRange(shard, at, at + read)
    assert compared.faults == (
        f"{span}: v{commit} read {read} records, and {all_of_it} are between its first and last",
        f"orders/0: no drain read 1 records that are there; the first is {late[0]}",
    )
    assert compared.messages == 118 - read


def test_the_audit_against_the_source_begins_where_the_reading_began(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: `latest` passes over older records; retention then passes a part of a span."""
    orders = Put(spark, lake, server, shards=1, columns={"times": TIMES}, start="latest")
    orders.put(10)
    server.advance(5 * HOUR)
    orders.drain()
    for hours in (10, 1, 1):
        orders.put(20)
        server.advance(hours * HOUR)
    orders.drain()
    orders.put(20)
    orders.drain()
    orders.put(5)
    assert orders.compare().messages == 80

    server.advance(13 * HOUR)
    compared = orders.compare()

    assert compared.agrees and compared.messages == 20


def test_what_retention_passes_while_an_audit_reads_is_no_fault(
    spark: SparkSession, lake: str, server: KinesisServer, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """Procedure: retention passes the first records of a span between the look and the reading. Another audit does not
    find boto3 on the executors.

    Pass: the next span agrees, nothing else is said; py4j logs no key; the second audit names itself.
    """
    orders = of_two_ages(spark, lake, server)
    orders.put(20)
    orders.drain()
    assert orders.compare().messages == 40

    with monkeypatch.context() as meanwhile, caplog.at_level("DEBUG", logger="py4j"):
        meanwhile.setattr(source, "reader_access", late(server))
        compared = orders.compare()

    assert compared.agrees and (compared.messages, compared.ranges[0].start) == (20, 20)
    secret = server.environment()["AWS_SECRET_ACCESS_KEY"].encode()
    alike = {base64.b64encode(bytes(n) + secret).decode()[4 if n else 0 : -4] for n in range(3)}
    assert caplog.text and not [text for text in alike if text in caplog.text]

    def unfit(connection: Any) -> Any:
        raise OSError("ModuleNotFoundError: No module named 'boto3'")

    monkeypatch.setattr(source, "reader_access", unfit)
    with pytest.raises(WorkerPythonUnfit, match="kdi audit bronze/orders --against-source"):
        orders.compare()


@pytest.mark.parametrize(("behaviour", "apart"), [("horizon", 2), ("refused", 2), ("empty", 0)])
def test_a_replay_says_that_retention_passed_what_it_read(
    spark: SparkSession, lake: str, server: KinesisServer, monkeypatch: pytest.MonkeyPatch, behaviour: Any, apart: int
) -> None:
    """Procedure: retention passes the first records of a span between the look and the reading; replay once more."""
    server.behaviour.trimmed_position = behaviour
    orders = of_two_ages(spark, lake, server, apart=apart)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(held_spans, "reader_access", late(server))
        with pytest.raises(SpanTrimmed):
            replay(orders)
    with pytest.raises(MessagesGone):
        replay(orders)
    assert times(orders) == {i: 2 * i for i in orders.ids}


def test_the_audit_against_the_source_reads_what_lies_within_its_bounds(
    spark: SparkSession, lake: str, server: KinesisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: a drain takes a shard for ended that has unread records, and reads its children later; of one child
    three spans, and the middle one is compared.

    Pass: the records are found, also while nothing was read at all; within the bounds, they are not looked for.
    """
    orders = Put(spark, lake, server, shards=1, columns={"times": TIMES})
    orders.drain()
    unread = orders.put(10)
    server.advance(8 * HOUR)
    with monkeypatch.context() as mutated:
        mutated.setattr(source, "look_ahead", ending(0))
        orders.split()
        orders.drain()
    fault = f"orders/0: no drain read 10 records that are there; the first is {unread[0]}"
    found = orders.compare()
    assert (found.faults, found.messages) == ((fault,), 0)
    assert "nothing" not in found.line()

    for _ in range(3):
        orders.put(30)
        orders.drain()
        server.advance(600)
    assert orders.compare().faults == (fault,)
    child, calls = TopicPartition("orders", 1), server.calls("GetRecords", shard=id_of(0))
    ranges = [r.range for entry in orders.entries() for r in entry.ranges if r.range.topic_partition == child]
    bounds = replace(ranges[1], start=ranges[1].start + 2, end=ranges[1].end - 2)

    compared = compare(orders.stream, lake=lake, session=lambda: spark, bounds={child: bounds})

    assert compared.agrees and compared.ranges == (bounds,) and compared.messages == bounds.offset_count
    assert server.calls("GetRecords", shard=id_of(0)) == calls


def test_peek_shows_records_before_a_drain_and_drained_ones(
    spark: SparkSession, lake: str, server: KinesisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: peek before the first drain, after one, and with more records; nothing is written or registered."""
    monkeypatch.setenv("KDI_LAKE", lake)
    orders = Put(spark, lake, server, shards=1, consumer={"mode": "efo"})
    orders.put(5)
    assert peeked(orders, Wanted(3)) == ("next", [(0, "row"), (1, "row"), (2, "row")])
    assert not orders.client.list_stream_consumers(StreamARN=arn(orders))["Consumers"]
    assert not DeltaTable.is_deltatable(orders.stream.table_uri(lake))

    assert isinstance(orders.stream, KinesisStream)
    orders.stream = replace(orders.stream, consumer=Consumer())
    orders.drain()
    assert peeked(orders, Wanted(2)) == ("newest", [(3, "row"), (4, "row")])
    orders.put(2)
    shard = TopicPartition("orders", 0)

    assert peeked(orders, Wanted(9)) == ("next", [(5, "row"), (6, "row")])
    calls = server.calls("GetRecords")
    assert peeked(orders, Wanted(2, last=True)) == ("newest", [(3, "row"), (4, "row")])
    assert server.calls("GetRecords") == calls + 2, "one to look, one to read"
    assert peeked(orders, Wanted(2, shard, offset=1)) == ("from offset", [(1, "row"), (2, "row")])
    orders.drain()
    assert orders.drained() == orders.ids


def of_two_ages(spark: SparkSession, lake: str, server: KinesisServer, *, apart: int = 2) -> Put:
    """A table with one span, of records that were put hours apart; retention passes the older ones in half an hour."""
    orders = Put(spark, lake, server, shards=1, columns={"times": TIMES})
    orders.put(10)
    server.advance(apart * HOUR)
    orders.put(10)
    orders.drain()
    server.advance((23.5 - apart) * HOUR)
    return orders


def ending(shard: int) -> Callable[..., Ahead]:
    """``look_ahead`` that takes a shard for ended."""

    def look(client: Any, stream: str, name: str, mark: Any, **options: Any) -> Ahead:
        return Ahead(ended=True) if name == id_of(shard) else look_ahead(client, stream, name, mark, **options)

    return look


def late(server: KinesisServer) -> Callable[[Any], Sequence[str]]:
    """``reader_access`` an hour later."""

    def access(connection: Any) -> Sequence[str]:
        server.advance(HOUR)
        return reader_access(connection)

    return access


def peeked(orders: Put, asked: Wanted) -> tuple[str, list[tuple[int, str]]]:
    """What is shown, with the verdict at each offset."""
    with searched(orders.stream, lambda: orders.spark, asked) as there:
        found = peek_at(orders.spark, orders.stream, there, count=asked.count)
    return there.which, [(message.offset, message.verdict) for message in found]


def arn(orders: Put) -> str:
    summary = orders.client.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]
    return str(summary["StreamARN"])


def own(orders: Put, sequences: list[str]) -> list[str]:
    """Those of the records that are in the first shard."""
    start = {"ShardId": id_of(0), "ShardIteratorType": "TRIM_HORIZON"}
    iterator = orders.client.get_shard_iterator(StreamName="orders", **start)["ShardIterator"]
    held = {r["SequenceNumber"] for r in orders.client.get_records(ShardIterator=iterator)["Records"]}
    return [sequence for sequence in sequences if sequence in held]
