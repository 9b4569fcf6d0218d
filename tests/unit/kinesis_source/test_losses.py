"""What accept-loss gives up of each shard: what a drain refuses, with its interval, and where reading goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.kinesis.errors import BookmarkDiffers, ShardTrimmed
from kdi_assets.messages.kinesis.shards import id_of
from kdi_assets.messages.shard_bookmarks import Bookmark, Loss
from kdi_assets.streams.ledger.positions import LedgerState
from tests.kinesis.shard import DAY, OneShard, ledger_of, sequence_of

HOUR = 3600
FIRST = TopicPartition("s", 0)


def now(shard: OneShard) -> int:
    return round(shard.server.now() * 1000)


def hours_before(shard: OneShard, moment: int) -> float:
    """How long before now, in hours; to a minute, by which arrivals may be out of order."""
    return round((now(shard) - moment) / 3_600_000, 1)


def losses(shard: OneShard, ledger: LedgerState) -> Mapping[TopicPartition, Loss]:
    shard.server.advance(1)  # more than five calls a second are refused
    return shard.source.losses(shard.source.topic("s"), ledger)


def after(mark: Bookmark) -> LedgerState:
    """A ledger that read one record of the first shard."""
    return ledger_of(FIRST, mark)


def split(shard: OneShard) -> None:
    shard.client.split_shard(StreamName="s", ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
    shard.server.advance(60)


def put_into_all(shard: OneShard) -> None:
    for key in "abcdefgh":
        shard.client.put_record(StreamName="s", Data=b"x", PartitionKey=key)
    shard.server.advance(2)


def test_nothing_is_lost_where_a_drain_reads_on(shard: OneShard) -> None:
    """Also while the record of the bookmark is gone, if the shard was seen since."""
    (a,) = shard.put("a")
    mark = shard.bookmark(a, "a")
    assert losses(shard, after(mark)) == {}
    shard.server.advance(DAY / 2)
    seen = replace(mark, seen_at=now(shard))
    shard.server.advance(DAY * 0.75)

    assert losses(shard, after(seen)) == {}
    assert losses(shard, after(replace(mark, ended=True))) == {}


@pytest.mark.parametrize("behaviour", ["horizon", "refused", "empty"])
def test_a_loss_ends_at_the_oldest_record_and_reading_goes_on_there(shard: OneShard, behaviour: str) -> None:
    shard.server.behaviour.trimmed_position = behaviour  # type: ignore[assignment]
    a, _ = shard.put("a", "lost")
    mark = shard.bookmark(a, "a")
    shard.server.advance(20 * HOUR)
    (held,) = shard.put("held")
    shard.server.advance(10 * HOUR)

    loss = losses(shard, after(mark))[FIRST]
    found = shard.look(loss.bookmark)

    assert [hours_before(shard, at) for at in (loss.since, loss.until)] == [30, 10]
    assert loss.bookmark.sequence == a, "neither it nor one before it is ever read again"
    assert (sequence_of(found), found.horizon) == (held, True)
    assert losses(shard, after(loss.bookmark)) == {}


def test_a_loss_that_was_accepted_does_not_cover_what_goes_later(shard: OneShard) -> None:
    """Procedure: accept a loss; then retention takes the record at which reading would have gone on.
    Pass: it is refused as a loss of its own, which begins where the first one ends.
    """
    a, _ = shard.put("a", "lost")
    mark = shard.bookmark(a, "a")
    shard.server.advance(20 * HOUR)
    shard.put("held")
    shard.server.advance(10 * HOUR)
    first = losses(shard, after(mark))[FIRST]
    shard.server.advance(13.9 * HOUR)
    in_time = shard.look(first.bookmark)
    shard.server.advance(0.2 * HOUR)
    shard.put("later")

    assert in_time.first
    with pytest.raises(ShardTrimmed):
        shard.look(first.bookmark)
    second = losses(shard, after(first.bookmark))[FIRST]
    assert second.since == first.until - 60_000
    assert hours_before(shard, second.until) == 0


@pytest.mark.parametrize(("minutes", "refused"), [(58, False), (61, True)])
def test_what_retention_takes_within_an_hour_of_the_decision_is_part_of_the_loss(
    shard: OneShard, minutes: int, refused: bool
) -> None:
    """Procedure: at the decision, the oldest record is held for another 6 minutes."""
    (a,) = shard.put("a")
    mark = shard.bookmark(a, "a")
    shard.server.advance(10 * HOUR)
    shard.put("soon")
    shard.server.advance(20 * HOUR)
    (held,) = shard.put("held")
    shard.server.advance(3.9 * HOUR)
    loss = losses(shard, after(mark))[FIRST]

    shard.server.advance(minutes * 60)

    assert hours_before(shard, loss.until) == pytest.approx(23 + minutes / 60, abs=0.1)
    if refused:
        with pytest.raises(ShardTrimmed):
            shard.look(loss.bookmark)
    else:
        assert sequence_of(shard.look(loss.bookmark)) == held


def test_a_retention_that_becomes_longer_after_the_decision_brings_nothing_back(shard: OneShard) -> None:
    """Procedure: accept a loss; two hours later the retention becomes a week."""
    (a,) = shard.put("a")
    mark = shard.bookmark(a, "a")
    shard.server.advance(10 * HOUR)
    shard.put("soon")
    shard.server.advance(23.9 * HOUR)
    loss = losses(shard, after(mark))[FIRST]
    shard.server.advance(2 * HOUR)
    shard.client.increase_stream_retention_period(StreamName="s", RetentionPeriodHours=168)

    with pytest.raises(ShardTrimmed):
        shard.look(loss.bookmark, days=7)


def test_a_bookmark_that_an_earlier_retention_passed_is_refused_under_a_longer_one(shard: OneShard) -> None:
    """Procedure: read a record and see the shard at a retention of a day; put one, come back after two weeks, of which
    the second one had a retention of a week. What arrived in the first one may be gone since the day after.
    """
    (a,) = shard.put("a")
    mark = replace(shard.bookmark(a, "a"), held_seconds=DAY)
    shard.server.advance(6 * DAY)
    seen = replace(mark, seen_at=now(shard))
    shard.put("lost")
    shard.server.advance(2 * DAY)
    shard.client.increase_stream_retention_period(StreamName="s", RetentionPeriodHours=168)
    shard.put("b")

    with pytest.raises(ShardTrimmed):
        shard.look(seen, days=7)


@pytest.mark.parametrize("at", [None, 1])
def test_a_shard_of_which_nothing_was_read_begins_at_its_oldest_record(shard: OneShard, at: int | None) -> None:
    begun = now(shard)
    shard.put("lost")
    mark = Bookmark(at=begun, held_seconds=DAY) if at else Bookmark(seen_at=begun, held_seconds=DAY)
    shard.server.advance(30 * HOUR)
    (held,) = shard.put("held")

    loss = losses(shard, after(mark))[FIRST]

    assert [hours_before(shard, moment) for moment in (loss.since, loss.until)] == [30, 0]
    assert sequence_of(shard.look(loss.bookmark)) == held
    assert losses(shard, after(loss.bookmark)) == {}


def test_an_idle_shard_is_accepted_as_seen_and_not_asked_again_before_retention_passes(shard: OneShard) -> None:
    (a,) = shard.put("a")
    mark = shard.bookmark(a, "a")
    shard.server.advance(30 * HOUR)

    loss = losses(shard, after(mark))[FIRST]
    shard.server.advance(23 * HOUR)

    assert not shard.look(loss.bookmark).first
    shard.server.advance(2 * HOUR)
    with pytest.raises(ShardTrimmed):
        shard.look(loss.bookmark)


def test_a_shard_that_is_closed_and_empty_ends_and_its_children_have_losses_of_their_own(shard: OneShard) -> None:
    """Procedure: read a record, split the shard ten hours later, and come back when it has no record and is listed.
    Pass: what the children lost is not covered by the shard's own loss, however late the next drain comes.
    """
    (a,) = shard.put("a")
    mark = shard.bookmark(a, "a")
    shard.put("lost")
    shard.server.advance(10 * HOUR)
    split(shard)
    put_into_all(shard)
    shard.server.advance(15 * HOUR)
    ledger = after(mark)

    found = losses(shard, ledger)

    assert [tp.partition for tp in found] == [0, 1, 2], "the shard is gone, and its children were never seen"
    assert found[FIRST].bookmark == replace(mark, ended=True)
    assert {hours_before(shard, loss.since) for loss in found.values()} == {25.0}
    assert ledger.entry
    marks = {tp: loss.bookmark for tp, loss in found.items()}
    decided = replace(ledger, positions={tp: 1 for tp in marks}, entry=replace(ledger.entry, bookmarks=marks))
    topic = shard.source.topic("s")
    assert sorted(tp.partition for tp in shard.source.waiting(topic, decided).first_at) == [1, 2]
    shard.server.advance(15 * HOUR)
    assert [tp.partition for tp in losses(shard, decided)] == [1, 2]


def test_a_shard_that_is_not_listed_any_more_and_was_not_read_to_its_end_is_lost(shard: OneShard) -> None:
    (a,) = shard.put("a")
    mark = shard.bookmark(a, "a")
    shard.put("lost")
    split(shard)
    shard.server.advance(30 * HOUR)
    put_into_all(shard)

    found = losses(shard, after(mark))
    read = losses(shard, after(replace(mark, ended=True)))

    assert [tp.partition for tp in found] == [0, 1, 2]
    assert (hours_before(shard, found[FIRST].until), found[FIRST].bookmark) == (24.0, replace(mark, ended=True))
    assert [tp.partition for tp in read] == [1, 2], "its children began when nobody looked"


def test_the_loss_of_a_shard_whose_parents_nobody_saw_begins_at_what_is_known(shard: OneShard) -> None:
    """Procedure: read a record, split the shard, merge its children, and come back when all three have expired."""
    (a,) = shard.put("a")
    mark = shard.bookmark(a, "a")
    split(shard)
    shard.client.merge_shards(StreamName="s", ShardToMerge=id_of(1), AdjacentShardToMerge=id_of(2))
    shard.server.advance(30 * HOUR)
    put_into_all(shard)

    found = losses(shard, after(mark))

    assert [tp.partition for tp in found] == [0, 3]
    assert {loss.since for loss in found.values()} == {mark.complete_until}


def test_of_another_record_in_the_place_of_the_last_one_only_what_follows_is_read(shard: OneShard) -> None:
    a, b = shard.put("a", "b")
    mark = replace(shard.bookmark(a, "another"), held_seconds=DAY)
    shard.server.advance(2 * HOUR)
    mark = replace(mark, seen_at=now(shard))  # up to here the other records were seen, and not these
    with pytest.raises(BookmarkDiffers):
        shard.look(mark)

    loss = losses(shard, after(mark))[FIRST]

    assert hours_before(shard, loss.until) == 2.0
    assert sequence_of(shard.look(loss.bookmark)) == b
    shard.server.advance(23 * HOUR)
    with pytest.raises(ShardTrimmed):
        shard.look(loss.bookmark)


def test_a_shard_that_expired_before_anybody_looked_into_it_ends(shard: OneShard) -> None:
    (a,) = shard.put("a")
    ledger, gone = after(shard.bookmark(a, "a")), TopicPartition("s", 9)

    found = losses(shard, replace(ledger, positions={**ledger.positions, gone: 0}))

    assert [(tp, loss.bookmark.ended) for tp, loss in found.items()] == [(gone, True)]
