"""What the second client sees before and after records are read: shards, what follows a bookmark, the last record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.java_gateway import JavaPackage

from kdi_assets.dev.kinesis.faults import ServerClock
from kdi_assets.dev.kinesis.server import KinesisServer, start_kinesis
from kdi_assets.dev.s3_server import start_s3_server
from kdi_assets.ledger.bookmarks import Bookmark, seen_until
from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.positions import LedgerState
from kdi_assets.monitoring.backlog_reader import BacklogReader
from kdi_assets.sources.kinesis import client, reader
from kdi_assets.sources.kinesis.client import LATE_MS, digest_of, reader_access
from kdi_assets.sources.kinesis.errors import (
    BookmarkDiffers,
    BookmarkMissing,
    EndlessAnswers,
    KinesisReaderMissing,
    KinesisRequestRefused,
    KinesisUnanswered,
    NoSuchKinesisStream,
    SeamOpen,
    ShardTrimmed,
)
from kdi_assets.sources.kinesis.look import (
    SHARDS_AT_ONCE,
    Ahead,
    HeldRecords,
    look_ahead,
    of_each,
    refuse_hole,
    refuse_other_last,
)
from kdi_assets.sources.kinesis.shards import ListedShard, id_of, ready
from kdi_assets.sources.kinesis.source import KinesisSource
from kdi_assets.stream.kinesis import KinesisRegion
from kdi_assets.stream.stream import TopicPartition
from tests.kinesis import kinesis_client
from tests.table_by_hand import TOPIC, TP, TableByHand, orders

DAY = 86_400


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


class OneShard:
    """A stream with one shard on a server whose clock stands still."""

    def __init__(self, server: KinesisServer) -> None:
        self.server, self.client = server, kinesis_client(server.endpoint)
        self.client.create_stream(StreamName="s", ShardCount=1)
        server.advance(60)

    def put(self, *data: str) -> list[str]:
        """The sequence numbers of new records."""
        made = [self.client.put_record(StreamName="s", Data=each.encode(), PartitionKey=each) for each in data]
        self.server.advance(1)
        return [record["SequenceNumber"] for record in made]

    def look(self, mark: Bookmark, *, until: int | None = None, days: int = 1) -> Ahead:
        now = int(self.server.now() * 1000)
        self.server.advance(1)  # more than five calls a second are refused
        return look_ahead(
            self.client, "s", id_of(0), mark, until=now if until is None else until, held=HeldRecords(now, days * DAY)
        )

    def bookmark(self, sequence: str, data: str) -> Bookmark:
        """After the record, seen just now."""
        now = int(self.server.now() * 1000)
        digest = digest_of(data.encode(), data.encode())
        return Bookmark(sequence, arrived=now - 1000, digest=digest, seen_at=now - 1000)


@pytest.fixture
def shard(monkeypatch: pytest.MonkeyPatch) -> Iterator[OneShard]:
    """A shard; pauses advance the clock of its server."""
    server = start_kinesis(clock=ServerClock(frozen=True))
    monkeypatch.setattr("time.sleep", lambda seconds: server.advance(seconds + 0.05))
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    yield OneShard(server)
    server.stop()
    assert (server.unmet_faults(), server.failures()) == ([], [])


def sequence_of(ahead: Ahead) -> str:
    assert ahead.first
    return ahead.first.sequence


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
    shard.server.behaviour.empty_pages = 60

    with pytest.raises(EndlessAnswers, match="50 answers"):
        shard.look(Bookmark())


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


def test_a_session_without_the_reader_is_refused_with_the_command_that_fetches_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_kinesis = SimpleNamespace(ShardReader=JavaPackage("kdi.kinesis.ShardReader", None))
    monkeypatch.setattr(reader, "jvm_view", lambda spark: SimpleNamespace(kdi=SimpleNamespace(kinesis=of_kinesis)))

    with pytest.raises(KinesisReaderMissing, match="kdi jars --kinesis"):
        reader.read_shards(cast("Any", None), (), "s", [], until=0, most=1)


def test_both_clients_have_the_keys_of_a_role(tmp_path: Path, shard: OneShard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the server of roles has its own clock
    for name, value in shard.server.environment().items():
        monkeypatch.setenv(name, value)
    role, roles = "arn:aws:iam::123456789012:role/kdi", start_s3_server(tmp_path, services=("sts",))
    own = KinesisRegion("main", "us-east-1", shard.server.endpoint)
    try:
        taken = reader_access(replace(own, role_arn=role, role_external_id="4711", sts_endpoint=roles.endpoint))
        source = KinesisSource(replace(own, role_arn=role, sts_endpoint=roles.endpoint))
        assert source.topic("s").partitions.keys() == {TopicPartition("s", 0)}
    finally:
        roles.stop()

    assert reader_access(own) == ("us-east-1", own.endpoint, "kdi-loopback", "kdi-loopback-secret", "")
    assert taken[2] != "kdi-loopback"
    assert all(taken)


def nobody() -> Any:
    raise AssertionError("no session is needed")


@pytest.mark.parametrize(("hours", "renewed"), [(1, False), (7, True)])
def test_a_shard_on_which_nothing_arrives_is_seen_again_in_time(shard: OneShard, hours: int, renewed: bool) -> None:
    """Procedure: hold what follows a bookmark after some hours; a quarter of the retention is six."""
    tp, source = TopicPartition("s", 0), KinesisSource(KinesisRegion("main", "us-east-1", shard.server.endpoint))
    (a,) = shard.put("a")
    mark = shard.bookmark(a, "a")
    entry = LedgerEntry(1, "drain", "s", "v1", "s", "topic", "table", {tp: 1}, bookmarks={tp: mark})
    ledger = LedgerState("/lake/s", 1, "table", 1, {tp: 1}, {}, None, True, True, entry)
    shard.server.advance(hours * 3600)
    topic = source.topic("s")

    with source.hold(nobody, topic, ledger, most=10) as held:
        assert topic.as_of
        at = round(topic.as_of.timestamp() * 1000) - LATE_MS
        assert held.renewal == ({tp: replace(mark, seen_at=at, held_seconds=DAY)} if renewed else {})
        assert held.topic.partitions[tp].end == 1


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
    parent, source = TopicPartition("s", 0), KinesisSource(KinesisRegion("main", "us-east-1", shard.server.endpoint))
    (a,) = shard.put("a")
    mark = replace(shard.bookmark(a, "a"), ended=True)
    entry = LedgerEntry(1, "drain", "s", "v1", "s", "topic", "table", {parent: 1}, bookmarks={parent: mark})
    ledger = LedgerState("/lake/s", 1, "table", 1, {parent: 1}, {}, None, True, True, entry)
    shard.client.split_shard(StreamName="s", ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
    shard.server.advance(hours * 3600)
    for key in "abcdefgh":
        shard.client.put_record(StreamName="s", Data=b"x", PartitionKey=key)

    if lost:
        with pytest.raises(ShardTrimmed, match="may be missing"):
            source.waiting(source.topic("s"), ledger)
    else:
        assert sorted(tp.partition for tp in source.waiting(source.topic("s"), ledger).first_at) == [1, 2]


def test_shards_whose_parents_came_and_went_unseen_are_refused(shard: OneShard) -> None:
    """Procedure: read the only shard to its end, split it, merge its children and let retention pass these."""
    parent, source = TopicPartition("s", 0), KinesisSource(KinesisRegion("main", "us-east-1", shard.server.endpoint))
    (a,) = shard.put("a")
    mark = replace(shard.bookmark(a, "a"), ended=True)
    entry = LedgerEntry(1, "drain", "s", "v1", "s", "topic", "table", {parent: 1}, bookmarks={parent: mark})
    ledger = LedgerState("/lake/s", 1, "table", 1, {parent: 1}, {}, None, True, True, entry)
    shard.client.split_shard(StreamName="s", ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
    shard.server.advance(60)
    shard.client.merge_shards(StreamName="s", ShardToMerge=id_of(1), AdjacentShardToMerge=id_of(2))
    shard.server.advance(DAY + 3600)
    topic = source.topic("s")

    assert [tp.partition for tp in topic.partitions] == [3]
    with pytest.raises(ShardTrimmed, match="may be missing"):
        source.waiting(topic, ledger)


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


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        ("AccessDeniedException: no (Service: Kinesis, Status Code: 400, Request ID: 1)", KinesisRequestRefused),
        ("InternalFailureException: oh (Service: Kinesis, Status Code: 500, Request ID: 1)", KinesisUnanswered),
        ("ProvisionedThroughputExceededException: busy (Service: Kinesis, Status Code: 400)", KinesisUnanswered),
        ("No space left on device", OSError),
    ],
)
def test_what_kinesis_says_to_the_executors_is_no_failure_of_the_storage(raised: str, error: type[Exception]) -> None:
    with pytest.raises(error), reader.reader_failures("main"):
        raise OSError(raised)


@pytest.mark.parametrize("entry", [None, LedgerEntry(1, "drain", "s", "v1", "s", "topic", "table", {})])
def test_a_position_without_a_bookmark_is_refused(shard: OneShard, entry: LedgerEntry | None) -> None:
    source = KinesisSource(KinesisRegion("main", "us-east-1", shard.server.endpoint))
    positions = {} if entry is None else {TopicPartition("s", 0): 3}
    ledger = LedgerState("/lake/s", 1, "table", 1, positions, {}, None, True, True, entry)

    with pytest.raises(BookmarkMissing, match=id_of(0)), source.hold(nobody, source.topic("s"), ledger, most=10):
        pass


def test_a_backlog_shows_that_a_record_waits_and_since_when(shard: OneShard, lake: str) -> None:
    shard.client.create_stream(StreamName=TOPIC, ShardCount=1)
    shard.server.advance(60)
    connection = KinesisRegion("main", "us-east-1", shard.server.endpoint)
    topic = KinesisSource(connection).topic(TOPIC)
    stream = replace(orders(), cluster=connection)
    TableByHand(lake).ledger_commit("start", at={TP: 0}, topic_id=topic.topic_id, bookmarks={TP: Bookmark()})
    look = BacklogReader(clock=lambda: datetime.fromtimestamp(shard.server.now(), UTC))

    (idle,) = look([stream], lake=lake)
    shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a")
    shard.server.advance(3600)
    (waits,) = look([stream], lake=lake)
    calls = shard.server.calls("GetRecords")
    (still,) = look([stream], lake=lake)

    assert (idle.refusal, idle.offsets, idle.lag_seconds) == (None, 0, None)
    assert (waits.refusal, waits.offsets) == (None, 1)
    assert waits.lag_seconds == pytest.approx(3600, abs=5)
    assert waits.topic_partitions[TP].time_to_loss_seconds == pytest.approx(DAY - 3600, abs=5)
    assert [each.needs_position_commit for each in (idle, waits, still)] == [True, False, False], "nobody looked before"
    assert still.offsets == 1
    assert shard.server.calls("GetRecords") == calls, "the record waits until the position moves"


def test_the_backlog_of_an_idle_shard_asks_for_a_run_that_renews_its_bookmark(shard: OneShard, lake: str) -> None:
    shard.client.create_stream(StreamName=TOPIC, ShardCount=1)
    shard.server.advance(60)
    sequence = shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a")["SequenceNumber"]
    connection = KinesisRegion("main", "us-east-1", shard.server.endpoint)
    topic, mark = KinesisSource(connection).topic(TOPIC), shard.bookmark(sequence, "a")
    TableByHand(lake).ledger_commit("drain", at={TP: 1}, topic_id=topic.topic_id, bookmarks={TP: mark})

    needs = []
    for hours in (1, 6):
        shard.server.advance(hours * 3600)
        (found,) = BacklogReader()([replace(orders(), cluster=connection)], lake=lake)
        needs.append((found.offsets, found.needs_position_commit))

    assert needs == [(0, False), (0, True)]


def parts(state: Any) -> Sequence[TopicPartition]:
    return sorted(state.partitions)


def test_a_stream_that_is_created_again_has_another_id_and_every_listed_shard(shard: OneShard) -> None:
    source = KinesisSource(KinesisRegion("main", "us-east-1", shard.server.endpoint))
    first = source.topic("s")
    shard.client.split_shard(StreamName="s", ShardToSplit=id_of(0), NewStartingHashKey=str(1 << 127))
    shard.server.advance(60)
    split = source.topic("s")
    shard.client.delete_stream(StreamName="s")
    shard.server.advance(60)

    with pytest.raises(NoSuchKinesisStream):
        source.topic("s")
    shard.client.create_stream(StreamName="s", ShardCount=1)
    shard.server.advance(60)

    assert [tp.partition for tp in parts(split)] == [0, 1, 2]
    assert split.topic_id == first.topic_id != source.topic_id("s")
    assert first.as_of is not None
    assert source.retention(["s"])["s"].seconds == DAY


def test_the_start_latest_is_the_time_of_the_bookmark_of_every_shard(shard: OneShard) -> None:
    source = KinesisSource(KinesisRegion("main", "us-east-1", shard.server.endpoint))
    topic = source.topic("s")
    assert topic.as_of

    marks = source.first_bookmarks(topic, "latest")

    assert marks == {
        TopicPartition("s", 0): Bookmark(at=round(topic.as_of.timestamp() * 1000) - 1000, held_seconds=DAY)
    }


@pytest.mark.parametrize("start", ["earliest", datetime(2020, 1, 1, tzinfo=UTC)])
def test_a_start_at_the_oldest_record_is_seen_up_to_now(shard: OneShard, start: Any) -> None:
    """What retention removes at once was there before the start; what arrives later is not lost unseen."""
    source = KinesisSource(KinesisRegion("main", "us-east-1", shard.server.endpoint))
    topic = source.topic("s")
    assert topic.as_of

    (mark,) = source.first_bookmarks(topic, start).values()

    assert mark == Bookmark(seen_at=round(topic.as_of.timestamp() * 1000) - LATE_MS, held_seconds=DAY)


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
