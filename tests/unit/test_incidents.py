"""Which incidents a tick sees, and what becomes of them from tick to tick."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest

from kdi_assets.drain.backlog import Backlog, PartitionBacklog
from kdi_assets.drain.refusals import RetentionPassedPosition
from kdi_assets.drain.status_word import StatusWord
from kdi_assets.errors import KdiError
from kdi_assets.ledger.table_facts import TableFacts
from kdi_assets.sources.kafka import BrokerUnreachable
from kdi_assets.stream import KafkaCluster, Status, Stream, TopicPartition
from sensors.incidents import MOMENT_SECONDS, Kind, Place, follow, judge, news, told
from sensors.memory import Followed, Memory
from sensors.policy import progress

NAME, TP = "bronze/orders", TopicPartition("orders", 0)
MAIN = KafkaCluster("main", "localhost:9092")
SILENT = BrokerUnreachable(cluster="main", bootstrap_servers="localhost:1", detail="timed out")
LOST = RetentionPassedPosition(stream=NAME, topic_partition=TP, position=10, earliest=25)
STANDS, LOSS, REFUSED, FAILS = (
    str(Place(kind, NAME)) for kind in (Kind.STANDS_STILL, Kind.LOSS_NEAR, Kind.REFUSED, Kind.RUNS_FAIL)
)


def stream(status: Status = "active") -> Stream:
    return Stream("orders", NAME, "id bigint", "current_date()", MAIN, status=status)


def backlog(
    offsets: int = 10, *, word: StatusWord | None = StatusWord.OK, refusal: KdiError | None = None, **partition: Any
) -> Backlog:
    given = {"lag_seconds": 5000.0, "time_to_loss_seconds": math.inf, **partition} if offsets else {}
    held = PartitionBacklog(100, 100 + offsets, 0, word=word, **given)
    looked = {} if refusal == SILENT else {TP: held}
    return Backlog(NAME, looked, offsets, given.get("lag_seconds"), refusal, 0)


@dataclass
class Watcher:
    """Ticks as a sensor does, with a cursor that holds what was told."""

    known: dict[str, Followed] = field(default_factory=dict)
    status: Status = "active"
    delivers: bool = True

    def tick(
        self,
        seen: Backlog,
        *,
        at: float,
        running: bool = False,
        memory: Memory | None = None,
        table: TableFacts | None = None,
    ) -> list[str]:
        """What is told: places, those that are over with an exclamation mark."""
        judged = judge(
            [seen],
            streams={NAME: stream(self.status)},
            in_flight={NAME} if running else (),
            memories={NAME: memory or Memory()},
            tables={NAME: table} if table else {},
        )
        self.known = follow(self.known, judged, streams={NAME}, now=1e9 + at)
        fresh = news(self.known, judged, now=1e9 + at)
        if self.delivers:
            self.known = told(self.known, fresh)
        return [f"{'' if n.incident else '!'}{n.place.kind.value}" for n in fresh]


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


@pytest.mark.parametrize("word", [StatusWord.STOP, StatusWord.STALL])
def test_a_stream_that_stands_still_is_told_once_and_once_more_when_it_is_over(
    watcher: Watcher, word: StatusWord
) -> None:
    bad, good = backlog(word=word), backlog(word=StatusWord.OK)

    ticks = [watcher.tick(bad, at=0), watcher.tick(bad, at=60), watcher.tick(bad, at=65), watcher.tick(good, at=70)]
    later = [watcher.tick(good, at=70 + MOMENT_SECONDS), watcher.tick(good, at=500)]

    assert ticks == [[], ["stands_still"], [], []]
    assert later == [["!stands_still"], []]
    assert watcher.known == {}


def test_a_stop_that_the_next_run_ends_is_not_told(watcher: Watcher) -> None:
    """As after a night without the daemon."""
    assert watcher.tick(backlog(word=StatusWord.STOP), at=0) == []
    assert watcher.tick(backlog(word=StatusWord.STOP), at=59, running=True) == []
    assert watcher.tick(backlog(0), at=62) == []
    assert watcher.known == {}


def test_a_long_run_is_not_taken_for_a_stop_and_one_that_hangs_is(watcher: Watcher) -> None:
    large = backlog(5_000_000, word=StatusWord.STOP)  # at the usual pace 252 s

    told_at = [at for at in range(0, 1000, 5) if watcher.tick(large, at=at, running=True)]

    assert told_at == [760]


def test_what_comes_and_goes_is_one_incident(watcher: Watcher) -> None:
    watcher.tick(backlog(word=StatusWord.STOP), at=0)
    words = [StatusWord.STOP if n % 2 == 0 else StatusWord.OK for n in range(20)]

    told_of = [line for n, word in enumerate(words) for line in watcher.tick(backlog(word=word), at=60 + 5.0 * n)]

    assert told_of == ["stands_still"]


@pytest.mark.parametrize("word", [StatusWord.WARN, StatusWord.REWIND, StatusWord.OK])
def test_a_stream_that_moves_is_no_incident(watcher: Watcher, word: StatusWord) -> None:
    assert watcher.tick(backlog(word=word), at=0) == []
    assert watcher.known == {}


def test_a_paused_stream_does_not_stand_still_but_may_lose_messages(watcher: Watcher) -> None:
    watcher.status = "paused"

    assert watcher.tick(backlog(word=StatusWord.STALL), at=0) == []
    assert watcher.tick(backlog(word=StatusWord.STALL, time_to_loss_seconds=3599.0), at=5) == ["loss_near"]


def test_the_run_that_is_started_before_a_loss_gets_a_moment_to_help(watcher: Watcher) -> None:
    near = backlog(time_to_loss_seconds=3599.0)

    ticks = [watcher.tick(near, at=0), watcher.tick(near, at=55), watcher.tick(near, at=60), watcher.tick(near, at=65)]

    assert ticks == [[], [], ["loss_near"], []]


def test_a_loss_is_told_of_before_it_comes_however_short_retention_is(watcher: Watcher) -> None:
    """With 40 s of retention and messages that nobody drains, a tick every 5 s."""
    told_at = [
        left
        for left in range(20, -1, -5)
        if watcher.tick(backlog(lag_seconds=40.0 - left, time_to_loss_seconds=float(left)), at=20.0 - left)
    ]

    assert told_at == [10]


def test_a_refusal_is_told_at_once_and_stands_for_what_follows_from_it(watcher: Watcher) -> None:
    assert watcher.tick(backlog(word=StatusWord.STOP, refusal=LOST), at=0) == ["refused"]
    assert watcher.tick(backlog(word=StatusWord.STOP, refusal=LOST), at=100) == []
    # What is about to be lost is told of beside it: no run can help.
    near = backlog(word=StatusWord.STOP, refusal=LOST, time_to_loss_seconds=3000.0)
    assert watcher.tick(near, at=105) == ["loss_near"]


def test_a_silent_broker_is_told_of_if_it_stays_silent(watcher: Watcher) -> None:
    silent = backlog(0, word=None, refusal=SILENT)

    ticks = [watcher.tick(silent, at=0), watcher.tick(silent, at=59), watcher.tick(silent, at=60)]

    assert ticks == [[], [], ["unreachable"]]


def test_what_cannot_be_seen_is_not_over(watcher: Watcher) -> None:
    watcher.tick(backlog(word=StatusWord.STOP), at=0)
    watcher.tick(backlog(word=StatusWord.STOP), at=60)
    watcher.tick(backlog(word=StatusWord.STOP, refusal=LOST), at=65)
    silent = backlog(0, word=None, refusal=SILENT)

    told_of = [line for n in range(100) for line in watcher.tick(silent, at=70.0 + 5 * n)]

    assert told_of == ["unreachable"]
    assert watcher.known.keys() >= {STANDS, REFUSED}


def test_runs_that_move_nothing_are_told_of_if_the_next_one_does_not_either(watcher: Watcher) -> None:
    seen = backlog()
    stuck = Memory(positions=progress(seen), requested_at=1e9, futile=1)

    ticks = [
        watcher.tick(seen, at=0, memory=stuck),
        watcher.tick(seen, at=30, memory=stuck, running=True),
        watcher.tick(seen, at=65, memory=stuck, running=True),
        watcher.tick(seen, at=70, memory=stuck),
    ]
    moved = Memory(positions="others", requested_at=1e9)
    ends = [watcher.tick(seen, at=75, memory=moved), watcher.tick(seen, at=140, memory=moved)]

    assert ticks == [[], [], [], ["runs_fail"]]
    assert ends == [[], ["!runs_fail"]]


def facts(messages: int, letters: int) -> TableFacts:
    return TableFacts(messages_1h=messages, dead_letters_1h=letters)


@pytest.mark.parametrize(("messages", "letters"), [(10_000, 100), (20, 9), (10_000, 0), (0, 0)])
def test_a_few_dead_letters_are_no_incident(watcher: Watcher, messages: int, letters: int) -> None:
    assert watcher.tick(backlog(), at=0, table=facts(messages, letters)) == []


def test_many_dead_letters_are_an_incident_until_messages_come_that_are_better(watcher: Watcher) -> None:
    ticks = [
        watcher.tick(backlog(), at=0, table=facts(10_000, 101)),
        watcher.tick(backlog(), at=5000, table=facts(0, 0)),
        watcher.tick(backlog(), at=5005, table=facts(100, 0)),
        watcher.tick(backlog(), at=5070, table=facts(100, 0)),
    ]

    assert ticks == [["dead_letters"], [], [], ["!dead_letters"]]


def test_what_nobody_was_told_of_is_told_at_the_next_tick_and_its_end_only_if_its_beginning_was(
    watcher: Watcher,
) -> None:
    watcher.delivers = False
    bad, good = backlog(refusal=LOST), backlog()
    first, second = watcher.tick(bad, at=0), watcher.tick(bad, at=5)
    over = watcher.tick(good, at=10)

    assert (first, second, over) == (["refused"], ["refused"], [])
    assert watcher.known == {}


def test_the_incidents_of_a_stream_without_a_document_are_over(watcher: Watcher) -> None:
    watcher.tick(backlog(refusal=LOST), at=0)

    after = follow(watcher.known, {}, streams=(), now=1e9 + 5)

    assert [n.incident for n in news(after, {}, now=1e9 + 5 + MOMENT_SECONDS)] == [None]
