"""What a look at streams of Kinesis costs, and what it says of shards that it has not read to their ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

import pytest
from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

from kdi_assets.documents.model.limits import FreshnessLimits
from kdi_assets.documents.model.message_rules import Route, RouteMember
from kdi_assets.documents.model.stream import Stream, TopicPartition
from kdi_assets.messages.kinesis import watch
from kdi_assets.messages.kinesis.client import kinesis_client, translated
from kdi_assets.messages.kinesis.errors import (
    BookmarkDiffers,
    EndlessAnswers,
    KinesisUnanswered,
    NoSuchKinesisStream,
    ShardTrimmed,
)
from kdi_assets.messages.kinesis.look_ahead import SHARDS_AT_ONCE
from kdi_assets.messages.kinesis.shards import id_of
from kdi_assets.messages.kinesis.watch import COMMAND_ATTEMPTS, LOOKS, SUMMARIES_A_SECOND, WALKED_PAGES
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.messages.topic_state import TopicState
from kdi_assets.operate.monitoring.backlog import Backlog, State, state_of
from kdi_assets.operate.monitoring.backlog_reader import BacklogReader, read_backlog
from kdi_assets.operate.monitoring.checks.backlog_checks import fresh
from kdi_assets.operate.monitoring.checks.subject import CheckSubject
from kdi_assets.operate.monitoring.errors import BacklogNotKnownYet
from kdi_assets.sensors.incidents import CurrentIncidents, IncidentKind, current_incidents
from kdi_assets.sensors.memory import Memory
from kdi_assets.streams.drain.errors import RoutesChanged
from kdi_assets.streams.ledger.entry import Kind
from kdi_assets.tools.local.kinesis.faults import Fault
from tests.kinesis.shard import DAY, OneShard
from tests.table_by_hand import TOPIC, TableByHand, orders

TICK = 5.0
OPERATIONS = ("GetRecords", "GetShardIterator", "ListShards", "DescribeStreamSummary")


class Ticks:
    """Looks at streams whose tables have read nothing yet, every five seconds of the server's clock."""

    def __init__(self, shard: OneShard, lake: str, *, shards: int = 1, names: Sequence[str] = (TOPIC,)) -> None:
        self.shard, self.server, self.lake = shard, shard.server, lake
        self.streams: list[Stream] = []
        self._tables: dict[str, TableByHand] = {}
        for name in names:
            shard.client.create_stream(StreamName=name, ShardCount=shards)
            shard.server.advance(1)
            table = f"bronze/{name}"
            self.streams.append(replace(orders(), topic=name, table=table, app_id=name, cluster=shard.connection))
        shard.server.advance(60)
        for stream in self.streams:
            topic = shard.source.topic(stream.topic)
            self.commit(stream, "start", dict.fromkeys(range(shards), Bookmark()), topic.topic_id)
            shard.server.advance(1)
        self._calls = self._counts()
        self.read = BacklogReader(leader_seconds=0.0, clock=lambda: datetime.fromtimestamp(shard.server.now(), UTC))

    def commit(self, stream: Stream, kind: Kind, marks: dict[int, Bookmark], topic_id: str, *, at: int = 0) -> None:
        """Commit these bookmarks, and the position of the shards of which a record was read."""
        tps = {number: TopicPartition(stream.topic, number) for number in marks}
        if stream.table not in self._tables:
            self._tables[stream.table] = TableByHand(self.lake, table=stream.table)
        self._tables[stream.table].ledger_commit(
            kind,
            at={tps[number]: at if mark.sequence else 0 for number, mark in marks.items()},
            topic_id=topic_id,
            bookmarks={tps[number]: mark for number, mark in marks.items()},
        )

    def tick(self) -> tuple[list[Backlog], list[int]]:
        """The backlogs, and the calls of this tick by ``OPERATIONS``."""
        found = self.read(self.streams, lake=self.lake)
        before, self._calls = self._calls, self._counts()
        self.server.advance(TICK)
        return found, [self._calls[name] - before[name] for name in OPERATIONS]

    def _counts(self) -> dict[str, int]:
        return {name: self.server.calls(name) for name in OPERATIONS}


def test_an_idle_stream_of_four_shards_costs_one_call_a_shard_and_tick(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake, shards=4)

    looks = [ticks.tick() for _ in range(4)]

    assert [calls for _, calls in looks] == [[4, 4, 1, 1], [4, 0, 0, 0], [4, 0, 0, 0], [4, 0, 0, 0]]
    assert [(one.known, one.offsets, one.word) for (one,), _ in looks] == [(True, 0, State.OK)] * 4


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


def test_throttled_looks_leave_what_is_known_and_are_tried_again(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake, shards=2, names=(TOPIC, "other"))
    code = "ProvisionedThroughputExceededException"
    ticks.server.order(Fault("GetRecords", shard=id_of(0), code=code, times=2))

    first, _ = ticks.tick()
    second, _ = ticks.tick()
    ticks.server.order(Fault("GetRecords", code=code, times=4))
    third, calls = ticks.tick()

    assert [(one.refusal, one.known) for one in first] == [(None, False)] * 2
    assert first[0].topic_partitions[TopicPartition(TOPIC, 1)].is_idle
    assert [(one.refusal, one.known) for one in second] == [(None, True)] * 2
    assert [(one.refusal, one.known) for one in third] == [(None, True)] * 2
    assert calls[0] == 4, "a call that was one too many is not repeated at once"


def test_a_stream_that_is_throttled_for_minutes_does_not_answer(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake, names=(TOPIC, "other"))
    ticks.tick()
    fault = Fault("GetRecords", shard=id_of(0), code="ProvisionedThroughputExceededException", times=1000)
    ticks.server.order(fault)

    refusals = [[one.refusal for one in ticks.tick()[0]] for _ in range(70)]
    ticks.server.unmet_faults()
    again, _ = ticks.tick()

    assert refusals[0] == refusals[58] == [None, None]
    assert [type(refusal) for refusal in refusals[-1]] == [KinesisUnanswered] * 2
    assert [one.refusal for one in again] == [None, None]


def test_a_right_that_one_stream_lacks_refuses_only_that_stream(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake, names=(TOPIC, "other"))
    ticks.server.order(Fault("GetShardIterator", code="AccessDeniedException"))

    found, _ = ticks.tick()

    assert sorted(one.refusal is None for one in found) == [False, True]


def test_a_connection_that_is_down_is_not_asked_about_every_shard(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake, shards=4, names=(TOPIC, "b", "c", "d"))
    ticks.tick()
    ticks.server.order(Fault("GetRecords", code="ExpiredTokenException", times=1000))

    found, calls = ticks.tick()
    ticks.server.unmet_faults()
    again, _ = ticks.tick()

    assert [type(one.refusal) for one in found] == [KinesisUnanswered] * 4
    assert calls[0] <= SHARDS_AT_ONCE
    assert [one.refusal for one in again] == [None] * 4


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


@pytest.mark.parametrize("answer", ["horizon", "refused", "empty"])
@pytest.mark.parametrize("seen", [True, False])
def test_a_bookmark_that_retention_has_passed_is_a_loss_unless_it_was_seen_since(
    shard: OneShard, lake: str, answer: Literal["horizon", "refused", "empty"], seen: bool
) -> None:
    ticks = Ticks(shard, lake)
    made = shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a")
    mark = replace(shard.bookmark(made["SequenceNumber"], "a"), arrived=int(shard.server.now() * 1000))
    ticks.server.advance(DAY + 3600)
    mark = replace(mark, seen_at=int((shard.server.now() - 3600) * 1000)) if seen else mark
    ticks.commit(ticks.streams[0], "drain", {0: mark}, shard.source.topic(TOPIC).topic_id, at=1)
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
    ticks = Ticks(shard, lake)
    made = shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a")
    mark = replace(shard.bookmark(made["SequenceNumber"], "a"), arrived=int(shard.server.now() * 1000))
    ticks.server.advance(DAY + 3600)
    mark = replace(mark, seen_at=int((shard.server.now() - 3600) * 1000)) if seen else mark
    ticks.commit(ticks.streams[0], "drain", {0: mark}, shard.source.topic(TOPIC).topic_id, at=1)
    monkeypatch.setattr(watch, "kinesis_client", lambda *_, **__: RefusedLate(shard))

    looks = [ticks.tick()[0][0] for _ in range(3)]

    expected = (None, True) if seen else (ShardTrimmed, False)
    assert (looks[-1].refusal and type(looks[-1].refusal), looks[-1].known) == expected


def test_iterators_that_expire_at_once_are_no_answer(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake)
    ticks.tick()
    ticks.server.order(Fault("GetRecords", code="ExpiredIteratorException", times=1000))

    looks = [ticks.tick()[0][0] for _ in range(70)]
    ticks.server.unmet_faults()
    ((again,), _) = ticks.tick()

    assert (looks[0].refusal, looks[0].known, looks[55].refusal) == (None, True, None)
    assert isinstance(looks[-1].refusal, KinesisUnanswered)
    assert (again.refusal, again.known) == (None, True)


def test_a_summary_that_cannot_be_renewed_for_minutes_is_no_answer(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake)
    ticks.tick()
    ticks.server.order(Fault("DescribeStreamSummary", code="LimitExceededException", times=1000))

    looks = [ticks.tick()[0][0] for _ in range(125)]
    ticks.server.unmet_faults()
    ((again,), _) = ticks.tick()

    assert looks[100].refusal is None
    assert isinstance(looks[-1].refusal, KinesisUnanswered)
    assert again.refusal is None


def test_a_shard_that_ended_is_not_known_before_its_children_are_listed(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake)
    ticks.tick()
    shard.client.split_shard(StreamName=TOPIC, ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
    ticks.server.order(Fault("ListShards", code="LimitExceededException", times=2))

    looks = [ticks.tick()[0][0] for _ in range(4)]

    assert [(one.refusal, one.known) for one in looks] == [(None, False)] * 3 + [(None, True)]


def unreachable(shard: OneShard, monkeypatch: pytest.MonkeyPatch, *shards: int) -> None:
    """From now on no connection can be made for calls about these shards."""
    first = {id_of(number) for number in shards}

    class Client:
        exceptions = shard.client.exceptions

        def get_shard_iterator(self, **asked: Any) -> Any:
            if asked["ShardId"] in first:
                raise ConnectTimeoutError(endpoint_url=shard.server.endpoint)
            return shard.client.get_shard_iterator(**asked)

        def get_records(self, **asked: Any) -> Any:
            return shard.client.get_records(**asked)

    monkeypatch.setattr(watch, "kinesis_client", lambda *_, **__: Client())


def test_one_connection_that_cannot_be_made_leaves_what_is_known(
    shard: OneShard, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = Ticks(shard, lake, shards=2, names=(TOPIC, "other"))
    shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a", ExplicitHashKey="0")
    unreachable(shard, monkeypatch, 1)

    found, _ = ticks.tick()

    assert [(one.refusal, one.offsets) for one in found] == [(None, 1), (None, 0)]
    assert [one.topic_partitions[TopicPartition("other", 0)].is_idle for one in found[1:]] == [True]


def test_a_connection_that_no_call_can_make_is_down(
    shard: OneShard, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = Ticks(shard, lake, shards=2, names=(TOPIC, "other"))
    unreachable(shard, monkeypatch, 0, 1)

    found, _ = ticks.tick()

    assert [(type(one.refusal), one.known) for one in found] == [(KinesisUnanswered, False)] * 2


@pytest.mark.parametrize(
    ("code", "kind"),
    [("ExpiredTokenException", IncidentKind.UNREACHABLE), ("UnrecognizedClientException", IncidentKind.REFUSED)],
)
def test_a_loss_that_is_near_is_not_over_while_nothing_answers(
    shard: OneShard, lake: str, code: str, kind: IncidentKind
) -> None:
    """Procedure: retention is near a record that waits; the call about the other shard is refused with the keys."""
    ticks = Ticks(shard, lake, shards=2)
    (stream,) = ticks.streams
    shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a", ExplicitHashKey="0")
    ticks.tick()
    ticks.server.advance(DAY - 60)

    def incidents() -> CurrentIncidents:
        names, found = {stream.name: stream}, ticks.tick()[0]
        return current_incidents(found, streams=names, in_flight=(), memories={stream.name: Memory()}, tables={})

    near = incidents()
    ticks.server.order(Fault("GetRecords", code=code, times=1000))
    down = incidents()
    ticks.server.unmet_faults()

    key = f"{IncidentKind.LOSS_NEAR}:{stream.name}"
    assert near[key]
    assert down[f"{kind}:{stream.name}"]
    assert key not in down, "nobody knows, so that the incident goes on"


def test_a_summary_for_which_no_connection_can_be_made_leaves_what_is_known(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake)
    watching = shard.source.watch()
    watching.topics([TOPIC], leader_seconds=0.0)
    ticks.server.advance(300)

    def describe(name: str, *, attempts: int) -> Any:
        with translated(shard.connection, name):
            raise ConnectTimeoutError(endpoint_url=shard.server.endpoint)

    watching.describe = describe
    found = watching.topics([TOPIC, "s"], leader_seconds=0.0)

    assert isinstance(found[TOPIC], TopicState)
    assert isinstance(found["s"], KinesisUnanswered)


def test_a_shard_that_does_not_answer_hides_no_records_of_the_others(shard: OneShard, lake: str) -> None:
    ticks = Ticks(shard, lake, shards=2)
    shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a", ExplicitHashKey="0")
    code = "ProvisionedThroughputExceededException"
    ticks.server.order(Fault("GetRecords", shard=id_of(1), code=code, times=1000))

    found = [ticks.tick()[0][0] for _ in range(70)][-1]
    ticks.server.unmet_faults()

    assert (found.refusal, found.offsets) == (None, 1)
    assert found.topic_partitions[TopicPartition(TOPIC, 1)].unknown


@pytest.mark.parametrize(
    ("leader_seconds", "waits", "told"), [(0.0, 5, type(None)), (3.0, 15, KinesisUnanswered)], ids=["tick", "command"]
)
def test_a_look_at_a_server_that_does_not_answer_comes_to_an_end(
    shard: OneShard, lake: str, monkeypatch: pytest.MonkeyPatch, leader_seconds: float, waits: int, told: type
) -> None:
    """Procedure: every call about a shard waits as long as the client allows it, with its attempts.
    Pass: a person who asks how far 48 shards are hears of it after some calls, and not after all; another tick follows.
    """
    ticks, asked = Ticks(shard, lake, shards=8, names=(TOPIC, "b", "c", "d", "e", "f")), []

    class Silent:
        exceptions = shard.client.exceptions

        def get_shard_iterator(self, **asks: Any) -> Any:
            asked.append(asks["ShardId"])
            ticks.server.advance(waits)
            raise ReadTimeoutError(endpoint_url=shard.server.endpoint)

    monkeypatch.setattr(watch, "kinesis_client", lambda *_, **__: Silent())

    found = BacklogReader(leader_seconds=leader_seconds)(ticks.streams, lake=lake)

    assert 0 < len(asked) <= SHARDS_AT_ONCE
    assert [(type(one.refusal), one.known) for one in found] == [(told, False)] * 6


def test_a_command_asks_for_no_more_summaries_once_one_was_not_answered_in_time(shard: OneShard, lake: str) -> None:
    """Each of them would wait as long, one after the other."""
    ticks, asked, names = Ticks(shard, lake), list[str](), [f"s{number}" for number in range(20)]
    watching = shard.source.watch()

    def describe(name: str, *, attempts: int) -> Any:
        asked.append(name)
        ticks.server.advance(5 * attempts)
        with translated(shard.connection, name):
            raise ReadTimeoutError(endpoint_url=shard.server.endpoint)

    watching.describe = describe
    found = watching.topics(names, leader_seconds=3.0)

    assert 0 < len(asked) <= 3
    assert [type(found[name]) for name in names] == [KinesisUnanswered] * len(names)


def test_calls_of_a_look_wait_for_no_more_than_five_seconds(shard: OneShard) -> None:
    """The next look repeats the call, or a person waits."""
    waits = [kinesis_client(shard.connection, attempts=n).meta.config.read_timeout for n in (1, COMMAND_ATTEMPTS, 4)]

    assert waits == [5, 5, 20]


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
