"""From offsets back to records: the spans that count, and all that a shard still holds by the second client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import date
from sys import maxsize
from typing import Any

import pyarrow as pa
import pytest

from kdi_assets.documents.model.connections.kinesis import KinesisRegion
from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.kinesis import aggregates, held_records
from kdi_assets.messages.kinesis.errors import (
    KeysExpired,
    KinesisRequestRefused,
    KinesisUnanswered,
    OffsetsUnknown,
    SpanDiffers,
    SpanForgotten,
    SpanTrimmed,
)
from kdi_assets.messages.kinesis.held_records import HeldReading, HeldShard
from kdi_assets.messages.kinesis.held_spans import HeldSpans, held_spans
from kdi_assets.messages.kinesis.reader import failure_of
from kdi_assets.messages.kinesis.shards import id_of, list_shards
from kdi_assets.messages.kinesis.source import KinesisSource
from kdi_assets.messages.kinesis.spans import NumberedSpan, bookmark_at, spans_back, spans_of
from kdi_assets.messages.shard_bookmarks import Bookmark, Span
from kdi_assets.messages.topic_state import BrokerOffsets, TopicState
from kdi_assets.runtime.worker_code import send_by_value
from kdi_assets.streams.ledger.entry import LedgerEntry, RangeCounts
from kdi_assets.streams.ledger.positions import RETIRED
from kdi_assets.streams.replay.report import MessagesGone, Missing
from kdi_assets.tools.local.kinesis.faults import Fault
from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.deployment.bare_worker import called_in_bare_worker
from tests.kinesis.endpoint import kinesis_client
from tests.kinesis.kpl import UserRecord, aggregate_of, sealed

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
HOUR = 3600
OF_CLIENT = "botocore.exceptions.ClientError: An error occurred"
Ranges = Mapping[TopicPartition, tuple[int, int]]


def entry(version: int, at: Mapping[TopicPartition, int], read: Ranges | None = None, **fields: Any) -> LedgerEntry:
    """An entry that read ranges of shards; its sequence numbers are its numbers."""
    ranges = tuple(RangeCounts(OffsetRange(tp, *numbers)) for tp, numbers in (read or {}).items())
    spans = {r.range.topic_partition: Span(str(r.range.start), str(r.range.end - 1), 1, 0) for r in ranges}
    marks = {tp: Bookmark(str(position - 1) if position else "") for tp, position in at.items() if position != RETIRED}
    given = {"app_id": "a", "attempt_id": "", "topic": "orders", "topic_id": "t", "table_id": "", **fields}
    return LedgerEntry(version, "drain", positions=at, ranges=ranges, spans=spans, bookmarks=marks, **given)


DRAINED = [
    entry(4, {A: 30, B: 25}, {A: (20, 30), B: (15, 25)}),
    entry(3, {A: 20, B: 15}, {B: (10, 15)}),
    entry(2, {A: 20, B: 10}, {A: (10, 20), B: (0, 10)}),
    entry(1, {A: 10}, {A: (0, 10)}),
    entry(0, {A: 0}),
]


def test_spans_are_found_as_far_back_as_their_offsets_lie() -> None:
    read = iter(DRAINED)

    found = spans_of(read, [OffsetRange(A, 25, 27), OffsetRange(B, 12, 14)])

    assert {tp: [s.range.start for s in spans] for tp, spans in found.items()} == {A: [20], B: [10, 15]}
    assert [e.version for e in read] == [2, 1, 0], "older entries are not read"


def test_spans_that_are_read_once_more_after_a_decision_do_not_count_twice() -> None:
    set_back = [
        entry(6, {A: 18, B: 25}, {A: (10, 18)}),
        entry(5, {A: 10, B: 25}),
        *DRAINED,
        entry(-1, {A: 99}, {A: (0, 99)}, topic_id="an earlier stream of the name"),
    ]

    found = [(s.version, s.range.start) for s in spans_back(set_back) if s.range.topic_partition == A]

    assert found == [(6, 10), (1, 0)]
    assert bookmark_at(set_back, A, 10) == Bookmark("9")
    assert bookmark_at(set_back, A, 20) is None, "the position was set back over it"
    assert bookmark_at(set_back, A, 0) == Bookmark()


def test_a_shard_whose_number_an_earlier_stream_had_begins_where_it_appeared() -> None:
    """Procedure: `new-topic` retires a shard of the old stream; the new stream's shard of that number comes later."""
    of_new_stream = [entry(8, {A: 5, B: 3}, {B: (0, 3)}), entry(7, {A: 5, B: RETIRED})]

    assert bookmark_at(of_new_stream, B, 0) == Bookmark()


def test_a_span_that_is_another_one_now_names_the_commands_of_its_stream() -> None:
    found = failure_of(f"SpanDiffers: orders {id_of(3)} 40 4967 the shard has no more records after number 41", "eu")

    assert isinstance(found, SpanDiffers)
    assert (found.stream, found.shard, found.start, found.first) == ("orders", id_of(3), 40, "4967")
    assert found.message_parts()[0].endswith("the shard has no more records after number 41")
    assert found.message_parts()[2].startswith("kdi audit orders --against-source ")


@pytest.mark.parametrize(
    ("root", "error"),
    [
        ("botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL", KinesisUnanswered),
        ("botocore.exceptions.ReadTimeoutError: Read timeout on endpoint URL", KinesisUnanswered),
        ("botocore.exceptions.ParamValidationError: Parameter validation failed", type(None)),
        (f"{OF_CLIENT} (ExpiredTokenException) when calling the GetRecords operation: it is old", KeysExpired),
        (f"{OF_CLIENT} (AccessDeniedException) when calling the GetRecords operation: no", KinesisRequestRefused),
    ],
)
def test_what_the_second_client_meets_on_executors_says_whether_it_passes(root: str, error: type) -> None:
    assert type(failure_of(root, "eu")) is error


def test_keys_that_end_while_an_audit_reads_are_no_reason_to_read_all_of_it_again() -> None:
    (_, _, run) = KeysExpired(connection="eu", detail="").message_parts()

    assert "with new keys" in run and "--from" in run


def test_errors_name_the_table_of_a_stream_that_has_two(server: KinesisServer) -> None:
    client_and_records(server, [b"1"])
    source = KinesisSource(KinesisRegion("eu", "us-east-1", server.endpoint), table="silver/orders")
    first = str(10**56)

    differs = source.failure(f"SpanDiffers: orders {id_of(0)} 0 {first} their sequence numbers are others")
    with pytest.raises(OffsetsUnknown) as unknown:
        source.read(None, [OffsetRange(A, 0, 1)])  # type: ignore[arg-type]

    assert "kdi audit silver/orders " in str(differs)
    assert "kdi audit silver/orders " in str(unknown.value)


@pytest.mark.parametrize("detail", ["their sequence numbers are others", "InvalidArgument", "it gave 1001 answers"])
def test_records_that_retention_passed_while_they_were_read_are_no_others(server: KinesisServer, detail: str) -> None:
    """Procedure: a task could not read a span from its first record on; retention has passed this, or has not."""
    first, _ = client_and_records(server, [b"1", b"2"])
    source = KinesisSource(KinesisRegion("eu", "us-east-1", server.endpoint))
    failed = f"SpanDiffers: orders {id_of(0)} 0 {first} {detail}"

    assert isinstance(source.failure(failed), SpanDiffers)
    server.advance(25 * HOUR)
    assert isinstance(source.failure(failed), SpanTrimmed)


def test_what_kinesis_no_longer_gives_is_not_said_of_kafka() -> None:
    day = date(2026, 1, 2)

    gone = MessagesGone(stream="o", first=day, last=day, messages=9, missing=Missing(messages=3), system="kinesis")

    assert "Kinesis no longer holds the spans, or their first records, of 3 of the 9 messages" in str(gone)
    assert "Kafka" not in str(gone)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("GetRecords", skip=1, code="ExpiredIteratorException"),
        Fault("GetRecords", repeats=True),
        Fault("GetRecords", times=2, code="ProvisionedThroughputExceededException"),
    ],
    ids=["expired", "twice", "throttled"],
)
def test_the_second_client_numbers_each_record_of_a_span_once(server: KinesisServer, fault: Fault) -> None:
    """Procedure: two spans, with a record before them, one between them, and two after the last one that was read."""
    put = client_and_records(server, [b"%d" % i for i in range(20)])
    spans = [(put[1], put[8], 100), (put[10], put[17], 108)]
    server.behaviour.empty_pages = 1
    server.order(fault)

    found = held(server, held_shard(spans, last=put[17]))

    numbered = [100 + i for i in range(8)] + [None] + [108 + i for i in range(8)]
    assert [row["sequence_number"] for row in found] == put[:18]
    assert [row["offset"] for row in found] == [None, *numbered]
    assert [row["span"] for row in found] == [None, *[100] * 8, None, *[108] * 8]


def test_the_second_client_numbers_each_user_record_of_an_aggregate(server: KinesisServer) -> None:
    """Procedure: an aggregate, an ordinary record, what only looks like an aggregate, and an aggregate after them."""
    users = [UserRecord("a", b"1"), UserRecord("ü", b"2", 7), UserRecord("a", b"3")]
    broken = aggregate_of(users[0])[:-1] + b"?"
    put = client_and_records(server, [aggregate_of(*users), b"alone", broken, aggregate_of(*users[1:])])
    spans = [(put[0], put[2], 0), (put[3], put[3], 5)]

    found = held(server, held_shard(spans, last=put[3]))

    assert [(row["offset"], row["span"]) for row in found] == [*((i, 0) for i in range(5)), (5, 5), (6, 5)]
    assert [put.index(row["sequence_number"]) for row in found] == [0, 0, 0, 1, 2, 3, 3]
    assert [row["subsequence_number"] for row in found] == [0, 1, 2, None, None, 0, 1]
    assert [row["value"] for row in found] == [b"1", b"2", b"3", b"alone", broken, b"2", b"3"]
    assert [row["key"].decode() for row in found] == ["a", "ü", "a", "key", "key", "ü", "a"]


def test_the_second_client_reads_a_shard_that_ended_to_its_end(server: KinesisServer) -> None:
    put = client_and_records(server, [b"%d" % i for i in range(3)])
    client = kinesis_client(server.endpoint)
    client.split_shard(StreamName="orders", ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
    server.advance(60)

    assert [row["sequence_number"] for row in held(server, held_shard())] == put


@pytest.mark.parametrize("passes", [False, True], ids=["held", "trimmed"])
def test_the_second_client_reads_only_what_is_compared(server: KinesisServer, passes: bool) -> None:
    """Procedure: records of three hours; those of the second are compared. Retention passes the first hour, or not.

    Pass: the same records are found; how many others are read shows where the reading began.
    """
    server.behaviour.trimmed_position = "refused"
    put = client_and_records(server, [b"%d" % i for i in range(5)])
    client = kinesis_client(server.endpoint)
    since = round(server.now() * 1000)
    for _ in range(2):
        server.advance(HOUR)
        records = [{"Data": b"later", "PartitionKey": "key"}] * 5
        put += [r["SequenceNumber"] for r in client.put_records(StreamName="orders", Records=records)["Records"]]
    if passes:
        server.advance(22.5 * HOUR)

    shard = held_shard([(put[5], put[9], 100)], last=put[9], after=put[4], since=since)
    found = held(server, shard)

    assert [row["offset"] for row in found] == [100, 101, 102, 103, 104]


@pytest.mark.parametrize(
    "field",
    [
        b"\x23\x24",  # field 4, an empty group
        b"\x0b\x0c",  # the same of a field that is known
        b"\x1a\x06\x08\x00\x1a\x00\x23\x24",  # in a user record
        b"\x1a\x0d\x08" + b"\xff" * 9 + b"\x01\x1a\x00",  # the greatest index
        b"\x1a\x0c\x08" + b"\xff" * 8 + b"\x7f\x1a\x00",
        b"\x1a\x0f\x08\x00\x10" + b"\xff" * 9 + b"\x01\x1a\x00",  # of a hash key
    ],
)
def test_data_with_what_no_producer_writes_is_that_of_an_ordinary_record(field: bytes) -> None:
    whole = aggregate_of(UserRecord("a", b"1"))
    parse = aggregates.aggregate_parser()

    assert parse(whole) == [(b"a", b"1")]
    assert parse(sealed(whole[4:-16] + field)) == ()


def test_only_spans_whose_first_record_is_there_are_read_again(server: KinesisServer) -> None:
    """Procedure: three spans of which retention passes the first, and the first record of the second."""
    put = client_and_records(server, [b"%d" % i for i in range(5)])
    server.advance(20 * HOUR)
    client = kinesis_client(server.endpoint)
    put += [
        client.put_record(StreamName="orders", Data=b"%d" % i, PartitionKey="key")["SequenceNumber"] for i in range(5)
    ]
    server.advance(5 * HOUR)
    shards, source = list_shards(client, "orders"), KinesisSource(KinesisRegion("eu", "us-east-1", server.endpoint))
    edges = [(0, 3), (3, 8), (8, 10)]
    known = [NumberedSpan(OffsetRange(A, s, e), Span(put[s], put[e - 1], e - s, 0), s, 0) for s, e in edges]
    topic = source.topic("orders")

    def found(spans: Sequence[NumberedSpan], bookmark: Bookmark) -> HeldSpans:
        return held_spans(client, topic, shards, {A: spans}, [OffsetRange(A, 1, 10)], {A: bookmark}, table="table")

    assert found(known, Bookmark(put[-1])).topic(topic).partitions == {A: BrokerOffsets(8, 10, 10)}
    with pytest.raises(SpanForgotten, match=r"offsets \[1, 8\) of shardId-000000000000") as forgotten:
        found(known[2:], Bookmark(put[-1]))
    assert "kdi history table " in str(forgotten.value)
    with pytest.raises(SpanForgotten, match=r"offsets \[1, 10\)"):
        found([], Bookmark(put[5]))
    for unread in (Bookmark(), Bookmark(put[4])):
        assert not again_by_nobody(found([], unread), topic), "what waits has no number that could be forgotten"


def test_offsets_that_were_given_up_are_in_no_span_and_records_before_the_start_are_none_of_them(
    server: KinesisServer,
) -> None:
    """A table begins after records that are held; a loss is accepted before its first drain, which reads the others."""
    put = client_and_records(server, [b"%d" % i for i in range(5)])
    source = KinesisSource(KinesisRegion("eu", "us-east-1", server.endpoint))
    topic, lost = source.topic("orders"), OffsetRange(A, 0, 1)
    read = {A: Span(put[3], put[4], 2, 0)}
    begun: dict[str, Any] = {"topic_id": topic.topic_id, "declared_losses": (lost,)}
    drained = replace(entry(2, {A: 3}, {A: (1, 3)}, topic_id=topic.topic_id), spans=read)
    entries = [drained, entry(1, {A: 1}, **begun), entry(0, {A: 0}, topic_id="earlier")]

    again = source.again(topic, [OffsetRange(A, 0, 3)], entries)

    assert again.topic.partitions == {A: BrokerOffsets(1, 3, 3)}
    assert source.again(topic, [lost], entries[1:]).held([lost]) == ()
    with pytest.raises(SpanForgotten, match=r"offsets \[0, 1\)"):
        source.again(topic, [OffsetRange(A, 0, 3)], [drained])


def again_by_nobody(held: HeldSpans, topic: TopicState) -> list[BrokerOffsets]:
    """What can be read again."""
    return [offsets for offsets in held.topic(topic).partitions.values() if offsets.earliest < maxsize]


def held_shard(
    spans: Sequence[tuple[str, str, int]] = (),
    last: str | None = None,
    *,
    after: str = "",
    since: int | None = None,
) -> HeldShard:
    return HeldShard(0, id_of(0), spans, after, since, last, maxsize)


def client_and_records(server: KinesisServer, data: Sequence[bytes]) -> list[str]:
    """A stream of one shard, and the sequence numbers of records that were put."""
    client = kinesis_client(server.endpoint)
    client.create_stream(StreamName="orders", ShardCount=1)
    server.advance(60)
    records = [{"Data": each, "PartitionKey": "key"} for each in data]
    return [r["SequenceNumber"] for r in client.put_records(StreamName="orders", Records=records)["Records"]]


def held(server: KinesisServer, shard: HeldShard) -> list[dict[str, Any]]:
    """All rows of a shard, as a worker without this package reads them."""
    access = ("us-east-1", server.endpoint, "kdi-loopback", "kdi-loopback-secret", "")
    names = [field.name for field in fields(shard)]
    spans = [dict(zip(("first", "last", "start"), span, strict=True)) for span in shard.spans]
    shards = pa.RecordBatch.from_pylist([{**{name: getattr(shard, name) for name in names}, "spans": spans}])
    reading = HeldReading("orders", access)
    send_by_value(aggregates, held_records)
    rows: list[dict[str, Any]] = called_in_bare_worker(
        lambda shards: [row for batch in reading.batches(iter([shards])) for row in batch.to_pylist()], shards
    )
    return rows
