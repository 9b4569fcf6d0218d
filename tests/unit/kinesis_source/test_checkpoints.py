"""A table that begins where another reader of the stream ended."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kdi_assets.messages.kinesis.client import digest_of
from kdi_assets.messages.kinesis.errors import CheckpointUnusable
from kdi_assets.messages.kinesis.shards import id_of
from kdi_assets.messages.shard_bookmarks import Bookmark
from tests.kinesis.shard import DAY, OneShard

MIDDLE = str(1 << 127)


def started(shard: OneShard, checkpoints: Mapping[int, str]) -> dict[int, Bookmark]:
    """The first bookmarks by shard; the server's clock goes on, because it counts calls."""
    shard.server.advance(2)
    by_id = {id_of(number): at for number, at in checkpoints.items()}
    return {tp.partition: mark for tp, mark in shard.source.first_bookmarks(shard.source.topic("s"), by_id).items()}


def split(shard: OneShard) -> None:
    """The shard into 1 and 2."""
    shard.client.split_shard(StreamName="s", ShardToSplit=id_of(0), NewStartingHashKey=MIDDLE)
    shard.server.advance(60)


def test_reading_begins_after_the_record_of_the_checkpoint(shard: OneShard) -> None:
    _, second, _ = shard.put("a", "b", "c")

    mark = started(shard, {0: second})[0]

    assert (mark.sequence, mark.digest, mark.seen_at) == (second, digest_of(b"b", b"b"), mark.arrived)
    assert shard.look(mark).first


@pytest.mark.parametrize(
    ("checkpoints", "ended", "after"),
    [
        ({0: "first"}, set(), {0}),
        ({1: "trim_horizon", 2: "trim_horizon"}, {0}, set()),
        ({0: "shard_end"}, {0}, set()),
        ({0: "first", 1: "trim_horizon"}, set(), {0}),
    ],
)
def test_shards_above_a_checkpoint_were_read_and_those_below_were_not(
    shard: OneShard, checkpoints: dict[int, str], ended: set[int], after: set[int]
) -> None:
    first, _ = shard.put("a", "b")
    split(shard)

    marks = started(shard, {n: first if at == "first" else at for n, at in checkpoints.items()})

    assert sorted(marks) == [0, 1, 2]
    assert {number for number, mark in marks.items() if mark.ended} == ended
    assert {number for number, mark in marks.items() if mark.sequence} == after


@pytest.mark.parametrize(
    ("checkpoints", "said"),
    [
        ({1: "trim_horizon"}, f"{id_of(2)} has no checkpoint; give it one, or trim_horizon, or shard_end"),
        ({0: "shard_end", 7: "trim_horizon"}, f"{id_of(7)} is not a shard of the stream, or its records are gone"),
        ({0: "shard_end", 1: "shard_end"}, f"{id_of(1)} is open, so nobody has read it to its end"),
        ({0: "1" * 56}, f"{id_of(0)} has no record {'1' * 56} that can be read"),
    ],
)
def test_what_a_checkpoint_leaves_open_is_refused(shard: OneShard, checkpoints: dict[int, str], said: str) -> None:
    shard.put("a")
    split(shard)

    with pytest.raises(CheckpointUnusable, match=said):
        started(shard, checkpoints)


def test_a_checkpoint_that_retention_has_passed_is_refused(shard: OneShard) -> None:
    (first,) = shard.put("a")
    shard.server.advance(DAY + 120)
    shard.put("b")

    with pytest.raises(CheckpointUnusable, match="records after it may be gone, too"):
        started(shard, {0: first})


def test_an_expired_shard_that_was_read_to_its_end_is_no_mistake(shard: OneShard) -> None:
    shard.put("a")

    assert [mark.ended for mark in started(shard, {0: "trim_horizon", 9: "shard_end"}).values()] == [False]
