"""What the second client sees around a bookmark: the next record, the end of the shard, another record, a hole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from threading import Barrier
from typing import Any
from unittest.mock import MagicMock

import pytest

from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.kinesis import client, source
from kdi_assets.messages.kinesis.capture import Capture, ShardRead
from kdi_assets.messages.kinesis.errors import BookmarkDiffers, EndlessAnswers, SeamOpen
from kdi_assets.messages.kinesis.look_ahead import SHARDS_AT_ONCE, Ahead, of_each, refuse_hole, refuse_other_last
from kdi_assets.messages.kinesis.reader import ShardStart
from kdi_assets.messages.kinesis.shards import ListedShard, id_of, ready
from kdi_assets.messages.shard_bookmarks import Bookmark, Span
from tests.kinesis.shard import OneShard, ledger_of, sequence_of


@pytest.mark.parametrize(
    ("parents", "ended", "may"),
    [
        ({0: (), 1: ()}, [], [0, 1]),
        ({0: (), 1: (0,), 2: (0,)}, [], [0]),
        ({0: (), 1: (0,), 2: (0,)}, [0], [1, 2]),
        ({0: (), 1: (), 2: (0, 1)}, [0], [1]),  # merged of one that is read to its end and one that is not
        ({1: (0,), 2: (0,)}, [], [1, 2]),  # the parent has expired
        ({0: (), 1: (0,), 2: (1,)}, [0], [1]),
        ({0: ()}, [0], []),
    ],
)
def test_a_shard_may_be_read_once_its_parents_ended(
    parents: dict[int, tuple[int, ...]], ended: list[int], may: list[int]
) -> None:
    shards = [ListedShard(id_of(number), (0, 0), of) for number, of in parents.items()]

    assert [s.number for s in ready(shards, {n: Bookmark("1", ended=True) for n in ended})] == may


def test_a_closed_shard_is_looked_at_to_its_end_after_answers_without_records(shard: OneShard) -> None:
    """Purpose: answers without records may come before the end, and say that they are almost of now; the records of
    its children, which arrived in time, wait until the end is seen.
    Procedure: an empty shard is split; two empty answers before the end; the look comes after the drain's moment.
    """
    shard.client.split_shard(StreamName="s", ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
    moment = int(shard.server.now() * 1000)
    shard.server.advance(60)
    shard.server.behaviour.empty_pages = 2

    assert shard.look(Bookmark(), until=moment, is_open=False) == Ahead(ended=True)


def test_the_record_after_a_bookmark_is_ahead_and_none_that_arrived_too_late(shard: OneShard) -> None:
    a, b = shard.put("a", "b")
    before = int(shard.server.now() * 1000) - 500
    (c,) = shard.put("c")

    assert sequence_of(shard.look(Bookmark())) == a
    assert sequence_of(shard.look(shard.bookmark(a, "a"))) == b
    assert sequence_of(shard.look(shard.bookmark(b, "b"))) == c
    assert shard.look(shard.bookmark(b, "b"), until=before) == Ahead()
    assert shard.look(shard.bookmark(c, "c")) == Ahead()


def test_a_start_at_a_time_passes_over_what_arrived_before(shard: OneShard) -> None:
    shard.put("a")
    at = int(shard.server.now() * 1000)
    (b,) = shard.put("b")

    assert sequence_of(shard.look(Bookmark(at=at))) == b


@pytest.mark.parametrize("empty_pages", [0, 250])
def test_a_shard_ends_where_it_is_closed_and_has_nothing_more(shard: OneShard, empty_pages: int) -> None:
    a, b = shard.put("a", "b")
    shard.client.split_shard(StreamName="s", ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
    shard.server.advance(60)
    shard.server.behaviour.empty_pages = empty_pages

    assert sequence_of(shard.look(shard.bookmark(a, "a"))) == b, "closed is not ended"
    assert shard.look(shard.bookmark(b, "b")) == Ahead(ended=True)


def test_a_shard_that_answers_without_an_end_is_not_taken_for_empty(
    shard: OneShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MOST_PAGES", 50)
    shard.put("a")
    shard.server.advance(3600)  # so far behind is each of these answers
    shard.server.behaviour.empty_pages = 60

    with pytest.raises(EndlessAnswers, match="50 answers"):
        shard.look(Bookmark())


def test_a_shard_is_followed_to_its_next_record_however_many_answers_come_before_it(
    shard: OneShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: a stream that was idle for days has more empty answers than limits allow, and each try begins anew.
    Procedure: each empty answer of the server is a second less behind.
    """
    monkeypatch.setattr(client, "MOST_PAGES", 50)
    (a,) = shard.put("a")
    shard.server.behaviour.empty_pages = 60

    assert sequence_of(shard.look(Bookmark())) == a


def test_another_record_in_the_place_of_the_bookmark_s_is_refused(shard: OneShard) -> None:
    a, b = shard.put("a", "b")

    with pytest.raises(BookmarkDiffers):
        shard.look(shard.bookmark(a, "another"))
    with pytest.raises(SeamOpen):
        refuse_other_last(shard.client, "s", id_of(0), shard.bookmark(b, "another"))
    shard.server.advance(1)
    refuse_other_last(shard.client, "s", id_of(0), shard.bookmark(b, "b"))


def test_a_record_between_two_that_were_read_one_after_the_other_is_a_hole(shard: OneShard) -> None:
    a, b, c = shard.put("a", "b", "c")

    refuse_hole(shard.client, "s", id_of(0), a, b)
    with pytest.raises(SeamOpen, match=f"after {a} the reader read {c}, and the second client sees .*{b}"):
        refuse_hole(shard.client, "s", id_of(0), a, c)
    shard.server.advance(1)
    refuse_hole(shard.client, "s", id_of(0), c, "")
    with pytest.raises(SeamOpen, match=f"after {b} the reader read the end, and the second client sees .*{c}"):
        refuse_hole(shard.client, "s", id_of(0), b, "")


def test_many_shards_are_asked_at_once_and_an_error_of_one_is_raised() -> None:
    shards, together = [TopicPartition("s", number) for number in range(20)], Barrier(SHARDS_AT_ONCE, timeout=20)

    def ask(tp: TopicPartition) -> int:
        if tp.partition < SHARDS_AT_ONCE:
            together.wait()  # passes only if that many ask at the same time
        return tp.partition

    def refuse(tp: TopicPartition) -> None:
        if tp.partition == 13:
            raise SeamOpen(stream="s", shard=id_of(13), detail="a hole")

    assert of_each(shards, ask) == {tp: tp.partition for tp in shards}
    assert of_each([], ask) == {}
    with pytest.raises(SeamOpen, match="shardId-000000000013"):
        of_each(shards, refuse)


@pytest.mark.parametrize("last", ["b", "c"])
def test_an_end_of_a_shard_is_believed_if_nothing_follows_it(
    shard: OneShard, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """Purpose: a shard that has ended is never read again, so a wrong end is a loss for good.
    Procedure: after the record a, the reader says that it read up to the end of a closed shard: to b, or to c.
    """
    sequences = dict(zip("abc", shard.put("a", "b", "c"), strict=True))
    shard.client.split_shard(StreamName="s", ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
    shard.server.advance(60)
    tp, mark = TopicPartition("s", 0), shard.bookmark(sequences["a"], "a")
    end = replace(shard.bookmark(sequences[last], last), ended=True)
    read = OffsetRange(tp, 1, "abc".index(last) + 1)
    span = Span(sequences["b"], sequences[last], read.offset_count, 0)
    told = ShardRead(ShardStart(tp, 1, mark, (0, 1)), read, end, span, ())

    @contextmanager
    def captured(*_: object, **__: object) -> Iterator[Capture]:
        yield Capture(MagicMock(), {tp: told})

    monkeypatch.setattr(source, "captured", captured)
    believed: Any = nullcontext() if last == "c" else pytest.raises(SeamOpen, match="the reader read the end")
    with believed, shard.source.hold(MagicMock(), shard.source.topic("s"), ledger_of(tp, mark), most=10) as held:
        assert held.topic.partitions[tp].end == 3
