"""What a look at streams of Kinesis costs, and what it says of shards that it has not read to their ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from kdi_assets.documents.model.limits import FreshnessLimits
from kdi_assets.documents.model.message_rules import Route, RouteMember
from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.kinesis import watch
from kdi_assets.messages.kinesis.errors import EndlessAnswers
from kdi_assets.messages.kinesis.shards import id_of
from kdi_assets.messages.kinesis.watch import LOOKS, SUMMARIES_A_SECOND, WALKED_PAGES
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.operate.monitoring.backlog import State, state_of
from kdi_assets.operate.monitoring.backlog_reader import BacklogReader, read_backlog
from kdi_assets.operate.monitoring.checks.backlog_checks import fresh
from kdi_assets.operate.monitoring.checks.subject import CheckSubject
from kdi_assets.operate.monitoring.errors import BacklogNotKnownYet
from kdi_assets.streams.drain.errors import RoutesChanged
from tests.kinesis.shard import OneShard
from tests.kinesis.ticks import TICK, Ticks
from tests.table_by_hand import TOPIC, orders


def test_an_idle_stream_of_four_shards_costs_one_call_a_shard_and_tick(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake, shards=4)

    looks = [ticks.tick() for _ in range(4)]

    assert [calls for _, calls in looks] == [[4, 4, 1, 1], [4, 0, 0, 0], [4, 0, 0, 0], [4, 0, 0, 0]]
    assert [(one.known, one.offsets, one.word) for (one,), _ in looks] == [(True, 0, State.OK)] * 4


def test_an_end_is_renewed_for_a_table_with_bookmarks_only(shard: OneShard, lake: str) -> None:
    """Purpose: what is due for a table that has not begun stays the same, or its failed first run is tried anew."""
    ticks = Ticks(shard, lake)
    ticks.streams.append(replace(ticks.streams[0], table="bronze/new", app_id="new"))
    shard.client.split_shard(StreamName=TOPIC, ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
    shard.server.advance(400)

    (read, new), _ = [ticks.tick() for _ in range(4)][-1]

    assert read.renews is not None
    assert new.renews is None and new.needs_position_commit


def test_looks_that_come_more_often_than_ticks_ask_no_more_often(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake)

    for _ in range(61):
        ticks.read(ticks.streams, lake=lake)
        ticks.server.advance(1)

    assert ticks.server.calls("GetRecords", stream=TOPIC) <= 60 / TICK + 2


def test_a_shard_on_which_a_record_waits_is_not_asked_until_the_position_moves_and_the_others_are(
    shard: OneShard, lake: str
) -> None:
    ticks = Ticks(shard, lake, shards=2)
    ticks.tick()
    put = shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a", ExplicitHashKey="0")
    first, waits = TopicPartition(TOPIC, 0), []
    for _ in range(3):
        ((found,), calls) = ticks.tick()
        waits.append((found.offsets, found.topic_partitions[first].offsets, calls))

    topic_id = shard.source.topic(TOPIC).topic_id
    mark = shard.bookmark(put["SequenceNumber"], "a")
    ticks.commit(ticks.streams[0], "drain", {0: mark, 1: Bookmark()}, topic_id, at=1)
    ticks.tick()
    ((drained,), calls) = ticks.tick()

    assert waits == [(1, 1, [2, 0, 0, 0]), (1, 1, [1, 0, 0, 0]), (1, 1, [1, 0, 0, 0])]
    assert (drained.offsets, drained.known, calls) == (0, True, [2, 0, 0, 0])
    assert shard.server.calls("GetShardIterator", stream=TOPIC, shard=id_of(0)) == 2, "one more, for the new position"
    assert shard.server.calls("GetShardIterator", stream=TOPIC, shard=id_of(1)) == 1


def test_a_shard_is_not_idle_before_it_was_walked_to_its_end_and_is_not_unknown_for_ever(
    shard: OneShard, lake: str
) -> None:
    ticks = Ticks(shard, lake)
    ticks.server.behaviour.empty_pages = 250

    looks = [ticks.tick() for _ in range(52)]

    known = [one.known for (one,), _ in looks]
    assert 30 < known.index(True) <= 250 // WALKED_PAGES
    assert all(known[known.index(True) :])
    assert max(calls[0] for _, calls in looks) == WALKED_PAGES
    ((walking,), _), ((idle,), _) = looks[0], looks[-1]
    assert (walking.word, state_of(ticks.streams[0], walking), walking.time_to_close_seconds) == (
        None,
        State.UNKNOWN,
        None,
    )
    assert (idle.word, idle.time_to_close_seconds) == (State.OK, 0.0)
    assert sum(calls[1] for _, calls in looks) == 1, "one iterator is followed across all looks"


def test_a_record_behind_empty_pages_is_found(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake)
    shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a")
    ticks.server.behaviour.empty_pages = 12

    looks = [ticks.tick()[0][0] for _ in range(3)]

    assert [(one.known, one.offsets) for one in looks] == [(False, 0), (False, 0), (True, 1)]


def test_a_shard_that_is_never_quite_at_its_end_is_idle(shard: OneShard, lake: str) -> None:
    """Procedure: every answer is 3 seconds behind, as on some streams on which nothing arrives."""
    ticks = Ticks(shard, lake)
    ticks.server.behaviour.least_behind_ms = 3000

    looks = [ticks.tick() for _ in range(10)]

    assert [one.known for (one,), _ in looks[1:]] == [True] * 9
    assert max(calls[0] for _, calls in looks[1:]) <= 2


@pytest.mark.parametrize("lost", ["expired by the server", "not used for long"])
def test_an_iterator_that_is_lost_costs_another_one_and_is_no_error(shard: OneShard, lake: str, lost: str) -> None:
    ticks = Ticks(shard, lake)
    ticks.tick()
    if lost == "not used for long":
        ticks.server.advance(299)
    else:
        ticks.server.expire_iterators()
    shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a")

    ((found,), calls) = ticks.tick()

    assert (found.refusal, found.offsets) == (None, 1)
    assert calls[:2] == ([1, 1] if lost == "not used for long" else [2, 1])


def test_a_shard_that_was_walked_is_not_walked_again_after_its_iterator_was_lost(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake)
    for _ in range(5):
        made = shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a")
    ticks.server.advance(3600)
    mark = replace(shard.bookmark(made["SequenceNumber"], "a"), arrived=int((shard.server.now() - 3600) * 1000))
    ticks.commit(ticks.streams[0], "drain", {0: mark}, shard.source.topic(TOPIC).topic_id, at=1)
    ticks.tick()
    ticks.server.expire_iterators()
    ticks.server.behaviour.trimmed_position = "refused"

    ((found,), calls) = ticks.tick()

    assert (found.refusal, found.known, found.offsets, calls[:2]) == (None, True, 0, [2, 1])


def test_many_streams_stay_below_the_limits_of_the_account(shard: OneShard, lake: str) -> None:
    """Procedure: 60 streams of 4 shards; a look asks for at most two seconds' summaries, and about 200 shards.

    The server refuses more than 20 summaries and more than five looks at a shard in a second of its clock.
    """
    names = [f"s{number:03}" for number in range(60)]
    ticks = Ticks(shard, lake, shards=4, names=names)

    def asked() -> list[int]:
        return [shard.server.calls("GetRecords", stream=name, shard=id_of(i)) for name in names for i in range(4)]

    looks = [ticks.tick() for _ in range(8)]
    before = asked()
    looks += [ticks.tick() for _ in range(12)]

    assert [one.refusal for backlogs, _ in looks for one in backlogs] == [None] * 60 * 20
    assert all(one.known for one in looks[-1][0])
    assert max(calls[3] for _, calls in looks) <= 3 * SUMMARIES_A_SECOND
    assert sum(calls[3] for _, calls in looks) == len(names), "each is described once"
    assert max(calls[0] for _, calls in looks) <= LOOKS
    assert {after - first for first, after in zip(before, asked(), strict=True)} <= {9, 10, 11}, (
        "240 shards, 200 a tick"
    )


def test_one_look_alone_asks_about_every_shard(shard: OneShard, lake: str) -> None:
    """A command has no next look."""
    names = [f"s{number:03}" for number in range(25)]
    ticks = Ticks(shard, lake, names=names)

    found = BacklogReader()(ticks.streams, lake=lake)

    assert [(one.refusal, one.known) for one in found] == [(None, True)] * 25


def test_a_shard_that_is_not_known_yet_is_not_fresh(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake)
    ticks.server.behaviour.empty_pages = 250
    stream = replace(ticks.streams[0], freshness=FreshnessLimits(60, 120))
    subject = CheckSubject(stream, lake, lambda: pytest.fail("no session is needed"))

    with pytest.raises(BacklogNotKnownYet):
        fresh(subject)


@pytest.mark.parametrize(("start", "waits"), [("earliest", 1), ("latest", 0)])
def test_before_the_first_drain_the_backlog_says_what_waits(
    shard: OneShard, lake: str, start: Literal["earliest", "latest"], waits: int
) -> None:
    shard.put("a")
    shard.server.advance(3600)
    stream = replace(orders(), topic="s", start=start, cluster=shard.connection)

    found = read_backlog(stream, lake)

    assert (found.refusal, found.offsets, found.needs_position_commit) == (None, waits, True)
    assert bool(found.topic_partitions[TopicPartition("s", 0)].next_at) == bool(waits)
    assert found.time_to_loss_seconds is None, "what retention removes before a start is not lost"


def test_a_record_that_comes_after_too_many_empty_answers_waits(
    shard: OneShard, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdi_assets.messages.kinesis.walk.MOST_PAGES", 3 * WALKED_PAGES)
    ticks = Ticks(shard, lake)
    for _ in range(3):
        shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a")
        ticks.server.advance(60)
    ticks.server.behaviour.empty_pages = 3 * WALKED_PAGES + 2

    looks = [ticks.tick()[0][0] for _ in range(6)]

    assert isinstance(looks[2].refusal, EndlessAnswers)
    assert [(one.refusal, one.offsets) for one in looks[3:]] == [(None, 1)] * 3


def test_a_shard_that_was_not_asked_for_minutes_is_not_known(
    shard: OneShard, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = Ticks(shard, lake, shards=2)
    ticks.tick()
    monkeypatch.setattr(watch, "LOOKS", 1)
    ticks.server.advance(600)

    looks = [ticks.tick()[0][0] for _ in range(2)]

    assert [one.known for one in looks] == [False, True]


def test_what_waits_is_unknown_while_a_decision_is_due(shard: OneShard, lake: str) -> None:
    """Procedure: a record waits; somebody changes the document's route conditions."""
    ticks = Ticks(shard, lake)
    shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a")
    ((before,), _) = ticks.tick()
    (stream,) = ticks.streams
    ticks.streams = [replace(stream, route=Route("id < 1", group={stream.name: RouteMember("id < 1", False, TOPIC)}))]

    ((found,), _) = ticks.tick()

    assert (before.refusal, before.known, before.offsets) == (None, True, 1)
    assert isinstance(found.refusal, RoutesChanged)
    assert not found.known
