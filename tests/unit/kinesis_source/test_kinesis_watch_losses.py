"""What a look says of shards that ended, streams that were deleted, and records that retention removed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from kdi_assets.messages.kinesis import watch
from kdi_assets.messages.kinesis.errors import BookmarkDiffers, NoSuchKinesisStream, ShardTrimmed
from kdi_assets.messages.kinesis.shards import id_of
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.tools.local.kinesis.faults import Fault
from tests.kinesis.shard import DAY, OneShard
from tests.kinesis.ticks import Ticks
from tests.table_by_hand import TOPIC


def test_a_shard_that_ends_gives_way_to_its_children(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake)
    ticks.tick()
    shard.client.split_shard(StreamName=TOPIC, ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
    ticks.server.advance(1)
    shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a", ExplicitHashKey="0")

    looks = [ticks.tick()[0][0] for _ in range(2)]

    assert [one.refusal for one in looks] == [None, None]
    assert [sorted(tp.partition for tp, held in looks[1].topic_partitions.items() if held.offsets)] == [[1]]
    assert shard.server.calls("ListShards", stream=TOPIC) == 3, "one for the set-up; one look and one after the end"


def test_a_shard_that_a_drain_has_ended_asks_for_no_renewal(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake)
    shard.client.split_shard(StreamName=TOPIC, ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
    needs = [ticks.tick()[0][0].needs_position_commit for _ in range(2)]
    seen = Bookmark(seen_at=int(shard.server.now() * 1000))
    marks = {0: Bookmark(ended=True), 1: seen, 2: seen}
    ticks.commit(ticks.streams[0], "renewal", marks, shard.source.topic(TOPIC).topic_id)

    needs += [ticks.tick()[0][0].needs_position_commit for _ in range(2)]

    assert needs == [True, True, False, False]


def test_a_shard_that_ends_asks_for_a_run_that_commits_its_end(shard: OneShard, lake: str) -> None:
    ticks, tp = Ticks(shard, lake), 0
    seen = Bookmark(seen_at=int(shard.server.now() * 1000), held_seconds=DAY)
    ticks.commit(ticks.streams[0], "renewal", {tp: seen}, shard.source.topic(TOPIC).topic_id)
    needs = [ticks.tick()[0][0].needs_position_commit]
    shard.client.split_shard(StreamName=TOPIC, ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))

    needs += [ticks.tick()[0][0].needs_position_commit for _ in range(2)]
    marks = {tp: replace(seen, ended=True), 1: seen, 2: seen}
    ticks.commit(ticks.streams[0], "renewal", marks, shard.source.topic(TOPIC).topic_id)
    needs += [ticks.tick()[0][0].needs_position_commit for _ in range(2)]

    assert needs == [False, True, True, False, False]


def test_a_drain_that_found_newer_shards_is_no_refusal(shard: OneShard, lake: str) -> None:
    """Procedure: a record waits, so nobody asks the shard; it is split, and a drain commits it and its children."""
    ticks = Ticks(shard, lake)
    made = shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a")
    ticks.tick()
    shard.client.split_shard(StreamName=TOPIC, ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
    ended = replace(shard.bookmark(made["SequenceNumber"], "a"), ended=True)
    topic_id = shard.source.topic(TOPIC).topic_id
    ticks.commit(ticks.streams[0], "drain", {0: ended, 1: Bookmark(), 2: Bookmark()}, topic_id, at=1)

    ((found,), _) = ticks.tick()

    assert (found.refusal, found.offsets, len(found.topic_partitions)) == (None, 0, 3)


def test_a_stream_that_was_deleted_is_missed_within_two_ticks(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake, names=(TOPIC, "other"))
    ticks.tick()
    shard.client.delete_stream(StreamName=TOPIC)

    for _ in range(2):
        found, _ = ticks.tick()

    assert isinstance(found[0].refusal, NoSuchKinesisStream)
    assert found[1].refusal is None


def test_a_record_that_retention_has_passed_while_it_waited_is_a_loss(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake)
    topic_id, now = shard.source.topic(TOPIC).topic_id, int(shard.server.now() * 1000)
    ticks.commit(ticks.streams[0], "renewal", {0: Bookmark(seen_at=now, held_seconds=DAY)}, topic_id)
    shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a")
    ticks.tick()
    ticks.server.advance(DAY - 30)
    ((near,), _) = ticks.tick()
    ticks.server.advance(60)

    ((lost,), _) = ticks.tick()

    assert near.refusal is None
    assert (near.time_to_loss_seconds or 99) < 30
    assert isinstance(lost.refusal, ShardTrimmed)


def past_retention(shard: OneShard, lake: str, *, seen: bool) -> Ticks:
    """A table whose bookmark's record retention has removed an hour ago; the shard was looked at since, if ``seen``."""
    ticks = Ticks(shard, lake)
    made = shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a")
    mark = replace(shard.bookmark(made["SequenceNumber"], "a"), arrived=int(shard.server.now() * 1000))
    ticks.server.advance(DAY + 3600)
    mark = replace(mark, seen_at=int((shard.server.now() - 3600) * 1000)) if seen else mark
    ticks.commit(ticks.streams[0], "drain", {0: mark}, shard.source.topic(TOPIC).topic_id, at=1)
    return ticks


@pytest.mark.parametrize("answer", ["horizon", "refused", "empty"])
@pytest.mark.parametrize("seen", [True, False])
def test_a_bookmark_that_retention_has_passed_is_a_loss_unless_it_was_seen_since(
    shard: OneShard, lake: str, answer: Literal["horizon", "refused", "empty"], seen: bool
) -> None:
    ticks = past_retention(shard, lake, seen=seen)
    ticks.server.behaviour.trimmed_position = answer

    looks = [ticks.tick()[0][0] for _ in range(3)]

    expected = (None, True) if seen else (ShardTrimmed, False)
    assert (looks[-1].refusal and type(looks[-1].refusal), looks[-1].known) == expected


def test_another_record_in_the_place_of_the_bookmark_s_is_a_refusal(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake)
    made = shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a")
    mark = shard.bookmark(made["SequenceNumber"], "another")
    ticks.commit(ticks.streams[0], "drain", {0: mark}, shard.source.topic(TOPIC).topic_id, at=1)

    ((found,), _) = ticks.tick()
    (_, calls) = ticks.tick()

    assert isinstance(found.refusal, BookmarkDiffers)
    assert calls[0] == 0, "nothing changes until someone decides"


def made_again(ticks: Ticks) -> None:
    """Delete the stream, create it with one shard, and commit that the table goes on with the new one."""
    ticks.shard.client.delete_stream(StreamName=TOPIC)
    ticks.server.advance(60)
    ticks.shard.client.create_stream(StreamName=TOPIC, ShardCount=1)
    ticks.server.advance(60)
    ticks.commit(ticks.streams[0], "resolve", {0: Bookmark()}, ticks.shard.source.topic(TOPIC).topic_id)


def test_a_record_of_a_stream_that_was_deleted_does_not_wait_on_the_one_that_was_made_again(
    shard: OneShard, lake: str
) -> None:
    ticks = Ticks(shard, lake)
    shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a")
    ((before,), _) = ticks.tick()
    made_again(ticks)

    ((found,), _) = ticks.tick()

    assert (before.offsets, found.refusal, found.known, found.offsets) == (1, None, True, 0)


def test_a_shard_that_ended_before_its_stream_was_made_again_has_not_ended(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake)
    shard.client.split_shard(StreamName=TOPIC, ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
    ticks.tick()
    made_again(ticks)
    shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a")

    ((found,), _) = ticks.tick()

    assert (found.refusal, found.offsets) == (None, 1)


class RefusedLate:
    """A client of one shard: GetShardIterator takes the number of a record that is gone, and GetRecords refuses it."""

    def __init__(self, shard: OneShard) -> None:
        self._shard, self._is_at_record = shard, False
        self.exceptions = shard.client.exceptions

    def get_shard_iterator(self, **asked: Any) -> Any:
        self._is_at_record = asked["ShardIteratorType"] == "AT_SEQUENCE_NUMBER"
        return self._shard.client.get_shard_iterator(**asked)

    def get_records(self, **asked: Any) -> Any:
        if self._is_at_record:
            self._shard.server.order(Fault("GetRecords", code="InvalidArgumentException"))
        return self._shard.client.get_records(**asked)


@pytest.mark.parametrize("seen", [True, False])
def test_a_bookmark_whose_iterator_is_refused_is_gone(
    shard: OneShard, lake: str, seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = past_retention(shard, lake, seen=seen)
    monkeypatch.setattr(watch, "kinesis_client", lambda *_, **__: RefusedLate(shard))

    looks = [ticks.tick()[0][0] for _ in range(3)]

    expected = (None, True) if seen else (ShardTrimmed, False)
    assert (looks[-1].refusal and type(looks[-1].refusal), looks[-1].known) == expected
