"""A stream of Kinesis as a topic: its id and shards, where it begins, and what a drain holds of an idle one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.kinesis.client import LATE_MS
from kdi_assets.messages.kinesis.errors import BookmarkMissing, KinesisUnanswered, NoSuchKinesisStream, ShardTrimmed
from kdi_assets.messages.kinesis.shards import id_of
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.positions import LedgerState
from kdi_assets.tools.local.kinesis.faults import Fault
from tests.kinesis.shard import DAY, OneShard, ledger_of, sequence_of


def parts(state: Any) -> Sequence[TopicPartition]:
    return sorted(state.partitions)


def test_a_stream_that_is_created_again_has_another_id_and_every_listed_shard(shard: OneShard) -> None:
    first = shard.source.topic("s")
    shard.client.split_shard(StreamName="s", ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
    shard.server.advance(60)
    split = shard.source.topic("s")
    shard.client.delete_stream(StreamName="s")
    shard.server.advance(60)

    with pytest.raises(NoSuchKinesisStream):
        shard.source.topic("s")
    shard.client.create_stream(StreamName="s", ShardCount=1)
    shard.server.advance(60)

    assert [tp.partition for tp in parts(split)] == [0, 1, 2]
    assert split.topic_id == first.topic_id != shard.source.topic_id("s")
    assert first.as_of is not None
    assert shard.source.retention(["s"])["s"].seconds == DAY


def test_the_start_latest_is_the_time_of_the_bookmark_of_every_shard(shard: OneShard) -> None:
    topic = shard.source.topic("s")
    assert topic.as_of

    marks = shard.source.first_bookmarks(topic, "latest")

    assert marks == {
        TopicPartition("s", 0): Bookmark(at=round(topic.as_of.timestamp() * 1000) - 1000, held_seconds=DAY)
    }


@pytest.mark.parametrize("start", ["earliest", datetime(2020, 1, 1, tzinfo=UTC)])
def test_a_start_at_the_oldest_record_is_seen_up_to_now(shard: OneShard, start: Any) -> None:
    """What retention removes at once was there before the start; what arrives later is not lost unseen."""
    topic = shard.source.topic("s")
    assert topic.as_of

    (mark,) = shard.source.first_bookmarks(topic, start).values()

    assert mark == Bookmark(seen_at=round(topic.as_of.timestamp() * 1000) - LATE_MS, held_seconds=DAY)


@pytest.mark.parametrize(("hours", "refused"), [(23, False), (25, True)])
def test_what_retention_may_have_taken_since_a_stream_was_created_is_refused(
    shard: OneShard, hours: int, refused: bool
) -> None:
    """Purpose: a stream that was made again is drained from its start, whenever someone decides it.
    Procedure: a stream some hours old, whose retention was made longer just now.
    """
    shard.server.advance(hours * 3600)
    shard.client.increase_stream_retention_period(StreamName="s", RetentionPeriodHours=48)

    (mark,) = shard.source.bookmarks_at_creation(shard.source.topic("s")).values()

    with pytest.raises(ShardTrimmed) if refused else nullcontext():
        shard.look(mark, days=2)


@pytest.mark.parametrize("shards", [2, 3, 5])
def test_a_stream_has_the_shards_of_all_pages(shard: OneShard, monkeypatch: pytest.MonkeyPatch, shards: int) -> None:
    """Kinesis lists a thousand on a page, and refuses a stream's name beside a token."""
    monkeypatch.setattr("kdi_assets.tools.local.kinesis.manage_streams.PAGE_SHARDS", 2)
    shard.client.create_stream(StreamName="wide", ShardCount=shards)
    shard.server.advance(60)

    assert [tp.partition for tp in parts(shard.source.topic("wide"))] == list(range(shards))


def test_a_start_in_the_future_begins_now(shard: OneShard) -> None:
    """Kinesis refuses such a time, and the committed start could not be corrected."""
    topic = shard.source.topic("s")
    assert topic.as_of

    (mark,) = shard.source.first_bookmarks(topic, topic.as_of + timedelta(hours=5)).values()

    assert mark == Bookmark(at=round(topic.as_of.timestamp() * 1000) - 1000, held_seconds=DAY)
    (a,) = shard.put("a")
    assert sequence_of(shard.look(mark)) == a


def test_a_stream_that_is_not_active_yet_does_not_answer(shard: OneShard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinesis refuses ListShards while a stream is created or deleted, or answers without a shard."""
    shard.server.order(Fault("ListShards", code="ResourceInUseException"))
    with pytest.raises(KinesisUnanswered, match="ResourceInUseException"):
        shard.source.topic("s")
    monkeypatch.setattr("kdi_assets.messages.kinesis.source.list_shards", lambda *_: [])

    with pytest.raises(KinesisUnanswered, match="not ACTIVE yet"):
        shard.source.topic("s")


def test_an_end_that_nobody_has_committed_is_committed_at_once(shard: OneShard) -> None:
    """Purpose: a shard that expires before its end is committed is taken for one that was not read.
    Procedure: begin at `latest` on an idle stream whose only shard was split 23 hours ago.
    """
    shard.put("before the start")
    shard.client.split_shard(StreamName="s", ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
    shard.server.advance(23 * 3600)
    topic = shard.source.topic("s")
    marks = shard.source.first_bookmarks(topic, "latest")
    positions = dict.fromkeys(topic.partitions, 0)
    entry = LedgerEntry(0, "start", "s", "v1", "s", topic.topic_id, "table", positions, bookmarks=marks)
    ledger = LedgerState("/lake/s", 0, "table", 0, positions, {}, None, True, True, entry)
    shard.server.advance(1)

    waits = shard.source.waiting(topic, ledger).renews
    with shard.source.hold(nobody, topic, ledger, most=10) as held:
        ended = {tp.partition: mark.ended for tp, mark in held.renewal.items()}

    assert waits is not None
    assert ended == {0: True, 1: False, 2: False}


def nobody() -> Any:
    raise AssertionError("no session is needed")


@pytest.mark.parametrize(("hours", "renewed"), [(1, False), (7, True)])
def test_a_shard_on_which_nothing_arrives_is_seen_again_in_time(shard: OneShard, hours: int, renewed: bool) -> None:
    """Procedure: hold what follows a bookmark after some hours; a quarter of the retention is six."""
    tp = TopicPartition("s", 0)
    (a,) = shard.put("a")
    mark = shard.bookmark(a, "a")
    ledger = ledger_of(tp, mark)
    shard.server.advance(hours * 3600)
    topic = shard.source.topic("s")

    with shard.source.hold(nobody, topic, ledger, most=10) as held:
        assert topic.as_of
        at = round(topic.as_of.timestamp() * 1000) - LATE_MS
        assert held.renewal == ({tp: replace(mark, seen_at=at, held_seconds=DAY)} if renewed else {})
        assert held.topic.partitions[tp].end == 1


@pytest.mark.parametrize("entry", [None, LedgerEntry(1, "drain", "s", "v1", "s", "topic", "table", {})])
def test_a_position_without_a_bookmark_is_refused(shard: OneShard, entry: LedgerEntry | None) -> None:
    positions = {} if entry is None else {TopicPartition("s", 0): 3}
    ledger = LedgerState("/lake/s", 1, "table", 1, positions, {}, None, True, True, entry)

    with (
        pytest.raises(BookmarkMissing, match=id_of(0)),
        shard.source.hold(nobody, shard.source.topic("s"), ledger, most=10),
    ):
        pass
