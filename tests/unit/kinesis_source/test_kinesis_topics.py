"""A stream of Kinesis as a topic: its id and shards, where it begins, and what a drain holds of an idle one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.kinesis.client import LATE_MS
from kdi_assets.messages.kinesis.errors import BookmarkMissing, NoSuchKinesisStream, ShardTrimmed
from kdi_assets.messages.kinesis.shards import id_of
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.positions import LedgerState
from tests.kinesis.shard import DAY, OneShard, ledger_of


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
