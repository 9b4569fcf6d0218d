"""The oracle of Kinesis: ``tests/oracle.py`` is asked about its records, and the ledger about their places."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from kdi_assets.documents.model.stream import OffsetRange, Stream, TopicPartition
from kdi_assets.messages.kinesis.shards import id_of
from tests.kafka_log import Produced
from tests.kinesis_ledger import Numbered, PutRecord, by_shard, live_entries, read_by_ledger
from tests.oracle import Found, Reading, Row, assert_each_offset_once, is_set_back, read_back

MOST_EARLY = timedelta(seconds=2)
"""Of an arrival, before the call that put the record: tests order up to so much jitter."""


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
    assert_rows_are(stream, lake, by_shard(log), given_up=given_up)
    entries = live_entries(stream, lake)
    epochs = {topic_id: epoch for epoch, topic_id in enumerate(dict.fromkeys(entry.topic_id for entry in entries))}
    of_all = {(epoch, shard): of for epoch in epochs.values() for shard, of in parents.items()}
    read = read_by_ledger(entries, log, epochs=epochs, parents=of_all)
    for shard, records in by_shard(log).items():
        numbered = read.numbered[shard]
        assert len(numbered) == len(records), f"missing: {shard} has the position {len(numbered)} of {len(records)}"


def assert_rows_are(stream: Stream, lake: str, numbered: Numbered, *, given_up: Collection[OffsetRange] = ()) -> None:
    """Each record is a row or a dead letter once, with its number; letters do not count that are to be read again.

    Args:
        given_up: As of the oracle.
    """
    found, entries = read_back(stream, lake), live_entries(stream, lake)
    found = replace(found, dead_letters=[x for x in found.dead_letters if not is_set_back(x, stream, entries)])
    by_message: dict[tuple[int, int, bytes], PutRecord] = {}
    produced = []
    for (_, shard), records in sorted(numbered.items()):
        for number, record in enumerate(records):
            if record is None:
                continue
            by_message[shard, number, record.value] = record
            tp, key = TopicPartition(stream.topic, shard), record.key.encode()
            arrived = _arrival(found, shard, number, record)
            produced.append(Produced(tp, number, key, record.value, (), arrived))
    assert_each_offset_once(
        produced, found, coordinates="kinesis", given_up=given_up, reading=record_reading(by_message)
    )


def _arrival(found: Found, shard: int, number: int, record: PutRecord) -> datetime:
    """The arrival that the table tells, if it can be: the answer to a put tells none."""
    places: list[Any] = [row["kinesis"] for row in found.rows if row["kinesis"]["offset"] == number]
    places += [letter for letter in found.dead_letters if letter["offset"] == number]
    told = (p["timestamp"].astimezone(UTC) for p in places if p["partition"] == shard)
    return next((at for at in told if record.put_at - MOST_EARLY <= at <= record.put_at), record.put_at)
