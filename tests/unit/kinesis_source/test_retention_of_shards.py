"""What retention may have removed unread, and what it removed without a loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.kinesis.client import digest_of
from kdi_assets.messages.kinesis.errors import ShardTrimmed
from kdi_assets.messages.kinesis.shards import id_of
from kdi_assets.messages.shard_bookmarks import Bookmark, after_record, seen_until
from tests.kinesis.shard import DAY, OneShard, ledger_of, sequence_of


@pytest.mark.parametrize("behaviour", ["horizon", "refused", "empty"])
def test_a_bookmark_that_retention_passed_is_no_loss_if_the_shard_was_seen_since(
    shard: OneShard, behaviour: Any
) -> None:
    shard.server.behaviour.trimmed_position = behaviour
    (a,) = shard.put("a")
    mark = shard.bookmark(a, "a")
    shard.server.advance(DAY / 2)
    seen = replace(mark, seen_at=int(shard.server.now() * 1000))
    (b,) = shard.put("b")
    shard.server.advance(DAY * 0.75)

    found = shard.look(seen)

    assert (sequence_of(found), found.horizon) == (b, True)
    with pytest.raises(ShardTrimmed, match="may be missing"):
        shard.look(mark)


@pytest.mark.parametrize("unread", [lambda ms: Bookmark(at=ms), lambda ms: Bookmark(seen_at=ms)], ids=["at", "seen_at"])
def test_a_shard_of_which_nothing_was_read_is_refused_once_retention_passed_what_was_seen(
    shard: OneShard, unread: Callable[[int], Bookmark]
) -> None:
    mark = unread(round(shard.server.now() * 1000))
    (a,) = shard.put("a")
    shard.server.advance(DAY - 3600)
    in_time = shard.look(mark)
    shard.server.advance(2 * 3600)
    shard.put("b")

    assert sequence_of(in_time) == a
    with pytest.raises(ShardTrimmed, match="may be missing"):
        shard.look(mark)
    assert shard.look(Bookmark()).first, "a table that begins at the oldest record misses none"


@pytest.mark.parametrize(("hours", "lost"), [(20, False), (26, True)])
def test_a_shard_that_appeared_is_refused_if_retention_may_have_passed_its_first_records(
    shard: OneShard, hours: int, lost: bool
) -> None:
    """Procedure: read the parent to its end, split it, put a record into each child, and come back after some hours."""
    parent = TopicPartition("s", 0)
    (a,) = shard.put("a")
    mark = replace(shard.bookmark(a, "a"), ended=True)
    ledger = ledger_of(parent, mark)
    shard.client.split_shard(StreamName="s", ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
    shard.server.advance(hours * 3600)
    for key in "abcdefgh":
        shard.client.put_record(StreamName="s", Data=b"x", PartitionKey=key)

    if lost:
        with pytest.raises(ShardTrimmed, match="may be missing"):
            shard.source.waiting(shard.source.topic("s"), ledger)
    else:
        assert sorted(tp.partition for tp in shard.source.waiting(shard.source.topic("s"), ledger).first_at) == [1, 2]


@pytest.mark.scenario("Kinesis: shards closed or expired unread")
def test_shards_whose_parents_came_and_went_unseen_are_refused(shard: OneShard) -> None:
    """Procedure: read the only shard to its end, split it, merge its children and let retention pass these."""
    parent = TopicPartition("s", 0)
    (a,) = shard.put("a")
    mark = replace(shard.bookmark(a, "a"), ended=True)
    ledger = ledger_of(parent, mark)
    shard.client.split_shard(StreamName="s", ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
    shard.server.advance(60)
    shard.client.merge_shards(StreamName="s", ShardToMerge=id_of(1), AdjacentShardToMerge=id_of(2))
    shard.server.advance(DAY + 3600)
    topic = shard.source.topic("s")

    assert [tp.partition for tp in topic.partitions] == [3]
    with pytest.raises(ShardTrimmed, match="may be missing"):
        shard.source.waiting(topic, ledger)


def test_a_longer_retention_brings_nothing_back_to_a_shard_of_which_nothing_was_read(shard: OneShard) -> None:
    """Procedure: see an empty shard at a retention of a day, put a record, and make it a week 30 hours later."""
    seen = Bookmark(seen_at=round(shard.server.now() * 1000), held_seconds=DAY)
    shard.put("a")
    shard.server.advance(30 * 3600)
    shard.client.increase_stream_retention_period(StreamName="s", RetentionPeriodHours=168)
    shard.put("b")

    with pytest.raises(ShardTrimmed):
        shard.look(seen, days=7)
    assert shard.look(replace(seen, held_seconds=7 * DAY), days=7).first


def test_a_shard_that_ended_keeps_the_moment_at_which_it_was_seen_before_that() -> None:
    """Its children's first records arrived between the two moments."""
    assert seen_until(Bookmark("1", seen_at=5), 9, ended=True) == Bookmark("1", seen_at=5, ended=True)
    assert seen_until(Bookmark("1", seen_at=5), 9, ended=False) == Bookmark("1", seen_at=9)


@pytest.mark.scenario("Kinesis: retention passes a shard's position")
def test_a_bookmark_that_a_shorter_retention_hid_is_a_loss_unless_the_shard_was_seen_within_a_day(
    shard: OneShard,
) -> None:
    """Procedure: shorten the retention until the record is hidden, and lengthen it: that brings nothing back.
    Pass: what arrived since an hour ago cannot be hidden, for no retention is below a day.
    """
    shard.client.increase_stream_retention_period(StreamName="s", RetentionPeriodHours=48)
    (a,) = shard.put("a")
    mark = shard.bookmark(a, "a")
    shard.server.advance(30 * 3600)
    shard.client.decrease_stream_retention_period(StreamName="s", RetentionPeriodHours=24)
    shard.server.advance(60)
    shard.client.increase_stream_retention_period(StreamName="s", RetentionPeriodHours=48)
    (b,) = shard.put("b")

    with pytest.raises(ShardTrimmed):
        shard.look(replace(mark, seen_at=int(shard.server.now() * 1000) - 25 * 3_600_000), days=2)
    assert sequence_of(shard.look(replace(mark, seen_at=int(shard.server.now() * 1000) - 3_600_000), days=2)) == b


def test_what_a_first_plan_left_unread_is_lost_once_retention_passes_it(shard: OneShard) -> None:
    """Purpose: a start at the oldest record says that all before it was seen, which is true of the start only.
    Procedure: a record an hour for ten hours; begin at the oldest one, and read one record in the first plan; nobody
    drains until retention has passed three more.
    """
    arrived, made = round(shard.server.now() * 1000), list[str]()
    for number in range(10):
        made += shard.put(f"{number}")
        shard.server.advance(3600)
    (start,) = shard.source.first_bookmarks(shard.source.topic("s"), "earliest").values()

    mark = after_record(start, sequence=made[0], arrived=arrived, digest=digest_of(b"0", b"0"))
    in_time = shard.look(mark)
    shard.server.advance(17.5 * 3600)

    assert sequence_of(in_time) == made[1]
    assert sequence_of(shard.look(Bookmark())) == made[4], "three unread ones are gone"
    with pytest.raises(ShardTrimmed, match="may be missing"):
        shard.look(mark)


def test_a_record_read_after_the_first_one_leaves_the_moment_at_which_the_shard_was_seen() -> None:
    later = after_record(Bookmark("1", arrived=3, seen_at=9), sequence="2", arrived=7, digest="d")
    of_a_child = after_record(Bookmark(seen_at=5), sequence="2", arrived=7, digest="d")

    assert later == Bookmark("2", arrived=7, digest="d", seen_at=9)
    assert of_a_child.seen_at == 5, "its parents were seen, and its records arrived later"
