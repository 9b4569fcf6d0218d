"""The oracle of Kinesis: ``tests/oracle.py`` is asked about its records, and the ledger about their places."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.history import live_history
from kdi_assets.sources.kinesis.shards import id_of, number_of
from kdi_assets.stream.stream import OffsetRange, Stream, TopicPartition
from tests.kafka_log import Produced
from tests.oracle import Found, Reading, Row, assert_each_offset_once, read_back

MOST_EARLY = timedelta(seconds=2)
"""Of an arrival, before the call that put the record: tests order up to so much jitter."""


@dataclass(frozen=True)
class PutRecord:
    """One user record, as the answer to its put tells it.

    Attributes:
        sequence: Of its record; user records of one aggregate share it.
        put_at: The server's time after the call.
        epoch: How often the stream was created again before.
    """

    shard: int
    sequence: int
    key: str
    value: bytes
    put_at: datetime
    epoch: int = 0


def record_reading(log: Mapping[tuple[int, int, bytes], PutRecord]) -> Reading:
    """Python's reading of ``{"id": 7}``, with the place of the record on the stream."""

    def said(message: Produced) -> Row:
        put = log[message.topic_partition.partition, message.offset, message.value or b""]
        place = {"kinesis.sequence_number": str(put.sequence), "kinesis.shard_id": id_of(put.shard)}
        return {"id": json.loads(put.value)["id"], **place}

    return Reading(said, is_good)


def is_good(message: Produced) -> bool:
    """Whether the message has an id that is a number."""
    try:
        return type(json.loads(message.value or b"")["id"]) is int
    except (ValueError, TypeError, KeyError):
        return False


def assert_each_record_once(
    stream: Stream,
    lake: str,
    log: Sequence[PutRecord],
    *,
    parents: Mapping[int, Collection[int]],
    given_up: Collection[OffsetRange] = (),
) -> None:
    """Each record is a row or a dead letter once, its number is its place in its shard, and the ledger agrees.

    Args:
        log: All that was put, as far as it must be there.
        parents: Of each shard that was made by a split or a merge.
        given_up: As of the oracle.
    """
    found = read_back(stream, lake)
    by_message: dict[tuple[int, int, bytes], PutRecord] = {}
    produced = []
    for (_, shard), records in sorted(_by_shard(log).items()):
        for number, record in enumerate(records):
            by_message[shard, number, record.value] = record
            tp, key = TopicPartition(stream.topic, shard), record.key.encode()
            arrived = _arrival(found, shard, number, record)
            produced.append(Produced(tp, number, key, record.value, (), arrived))
    assert_each_offset_once(
        produced, found, coordinates="kinesis", given_up=given_up, reading=record_reading(by_message)
    )
    _assert_ledger_agrees(stream, lake, log, parents)


def _by_shard(log: Iterable[PutRecord]) -> dict[tuple[int, int], list[PutRecord]]:
    """The records by epoch and shard, in the order of their sequence numbers."""
    shards: dict[tuple[int, int], list[PutRecord]] = defaultdict(list)
    for record in sorted(log, key=lambda record: record.sequence):
        shards[record.epoch, record.shard].append(record)
    return shards


def _arrival(found: Found, shard: int, number: int, record: PutRecord) -> datetime:
    """The arrival that the table tells, if it can be: the answer to a put tells none."""
    places: list[Any] = [row["kinesis"] for row in found.rows if row["kinesis"]["offset"] == number]
    places += [letter for letter in found.dead_letters if letter["offset"] == number]
    told = (p["timestamp"].astimezone(UTC) for p in places if p["partition"] == shard)
    return next((at for at in told if record.put_at - MOST_EARLY <= at <= record.put_at), record.put_at)


def _assert_ledger_agrees(
    stream: Stream, lake: str, log: Sequence[PutRecord], parents: Mapping[int, Collection[int]]
) -> None:
    """Spans follow each other without a hole, as the records were put; positions and bookmarks are at their ends."""
    history = live_history(stream.table_uri(lake), stream.app_id, archive_uri=stream.archive_uri(lake))
    assert history
    by_epoch = _by_shard(log)
    topics = list(dict.fromkeys(entry.topic_id for entry in history.entries))
    read: dict[tuple[int, int], int] = defaultdict(int)
    for entry in history.entries:
        epoch = topics.index(entry.topic_id)
        if entry.kind == "drain":
            _assert_spans_follow(entry, epoch, by_epoch, read)
            _assert_parents_ended(entry, parents)
    last = history.entries[-1]
    for tp, position in last.positions.items():
        of_shard = by_epoch.get((topics.index(last.topic_id), tp.partition), [])
        assert position == len(of_shard), f"missing: {tp} has the position {position} of {len(of_shard)}"
        sequence = str(of_shard[-1].sequence) if of_shard else ""
        found = last.bookmarks[tp].sequence if tp in last.bookmarks else ""  # a shard that nobody looked at has none
        assert found == sequence, f"{tp} has the bookmark {found}, the last record is {sequence}"


def _assert_spans_follow(
    entry: LedgerEntry,
    epoch: int,
    by_epoch: Mapping[tuple[int, int], Sequence[PutRecord]],
    read: dict[tuple[int, int], int],
) -> None:
    assert {r.range.topic_partition for r in entry.ranges} == entry.spans.keys()
    for counts in entry.ranges:
        tp, span = counts.range.topic_partition, entry.spans[counts.range.topic_partition]
        at, where = (epoch, tp.partition), f"{tp} in version {entry.version}"
        assert span.records == counts.became_rows + counts.dead_letters + counts.filtered, f"missing: {where}: {counts}"
        assert read[at] == counts.range.start, f"missing: {where} begins at {counts.range.start}, not {read[at]}"
        records = by_epoch[at][counts.range.start : counts.range.end]
        edges = (str(records[0].sequence), str(records[-1].sequence)) if records else ("", "")
        assert (span.first, span.last) == edges, f"missing: {where} is {span}, and {edges} were put"
        assert span.records == len(records), f"missing: {where} has {span.records} of {len(records)}"
        read[at] = counts.range.end


def _assert_parents_ended(entry: LedgerEntry, parents: Mapping[int, Collection[int]]) -> None:
    """A child is read once its parents are at their end: records of a key stay in order."""
    for tp in entry.spans:
        for parent in parents.get(tp.partition, ()):
            of_parent = TopicPartition(tp.topic, parent)
            ended = of_parent not in entry.positions or entry.bookmarks[of_parent].ended
            assert ended and of_parent not in entry.spans, f"out of order: {tp} was read before its parent {parent}"


def lineage(shards: Iterable[Mapping[str, Any]]) -> dict[int, tuple[int, ...]]:
    """The parents of the shards that ListShards names."""
    found = {}
    for shard in shards:
        ids = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
        found[number_of(shard["ShardId"])] = tuple(number_of(each) for each in ids if each)
    return {number: of for number, of in found.items() if of}


def moment(seconds: float) -> datetime:
    """The server's time as a moment."""
    return datetime.fromtimestamp(seconds, UTC)
