"""The incidents of a tick, and how they change from tick to tick."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kdi_assets.documents.model.stream import Cluster, Status, Stream, TopicPartition
from kdi_assets.messages.kafka.errors import BrokerUnreachable
from kdi_assets.operate.monitoring.backlog import Backlog, State
from kdi_assets.operate.monitoring.table_facts import TableFacts
from kdi_assets.sensors.incidents import MOMENT_SECONDS, IncidentKind, after_delivery, current_incidents, notices, track
from kdi_assets.sensors.memory import Memory, TrackedIncident
from kdi_assets.sensors.policy import progress_digest
from kdi_assets.streams.drain.plan_errors import RetentionPassedPosition
from tests.unit.monitoring.backlogs import waits

NAME, TP = "bronze/orders", TopicPartition("orders", 0)
MAIN = Cluster("main", "localhost:9092")
SILENT = BrokerUnreachable(cluster="main", bootstrap_servers="localhost:1", detail="timed out")
LOST = RetentionPassedPosition(stream=NAME, topic_partition=TP, position=10, earliest=25)
STANDS, LOSS, REFUSED, FAILS = (
    f"{kind}:{NAME}"
    for kind in (IncidentKind.STANDS_STILL, IncidentKind.LOSS_NEAR, IncidentKind.REFUSED, IncidentKind.RUNS_FAIL)
)


def stream(status: Status = "active") -> Stream:
    return Stream("orders", NAME, "id bigint", "current_date()", MAIN, status=status)


def backlog(offsets: int = 10, *, lag: float = 5000.0, loss: float = math.inf, **more: Any) -> Backlog:
    return waits(offsets, lag if offsets else None, loss=loss if offsets else None, **more)


@dataclass
class Watcher:
    """Ticks like a sensor, with a cursor that holds what was sent."""

    known: dict[str, TrackedIncident] = field(default_factory=dict)
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
        """What is sent: places, ended ones with an exclamation mark."""
        current = current_incidents(
            [seen],
            streams={NAME: stream(self.status)},
            in_flight={NAME} if running else (),
            memories={NAME: memory or Memory()},
            tables={NAME: table} if table else {},
        )
        self.known = track(self.known, current, streams={NAME}, now=1e9 + at)
        fresh = notices(self.known, current, now=1e9 + at)
        if self.delivers:
            self.known = after_delivery(self.known, fresh)
        return [f"{'' if n.incident else '!'}{n.kind}" for n in fresh]


STOP, STALL, GOOD = (backlog(word=word) for word in (State.STOP, State.STALL, State.OK))
GONE, EMPTY = backlog(word=State.STOP, refusal=LOST), backlog(0)
UNSEEN = replace(backlog(0, refusal=SILENT), topic_partitions={})
NEAR = backlog(loss=3599.0)
STUCK = {"memory": Memory(positions=progress_digest(GOOD), requested_at=1e9, runs_in_vain=1)}
MOVED = {"memory": Memory(positions="others", requested_at=1e9)}
RUNNING: dict[str, Any] = {"running": True}


def facts(messages: int, letters: int) -> dict[str, Any]:
    return {"table": TableFacts(messages_1h=messages, dead_letters_1h=letters)}


Tick = tuple[float, Backlog, str] | tuple[float, Backlog, str, dict[str, Any]]
TICKS: dict[str, list[Tick]] = {
    "what stands still is told once, and once more when it is over": [
        (0, STOP, ""),
        (60, STOP, "stands_still"),
        (65, STOP, ""),
        (70, GOOD, ""),
        (70 + MOMENT_SECONDS, GOOD, "!stands_still"),
        (500, GOOD, ""),
    ],
    "a stall is a stop": [(0, STALL, ""), (60, STALL, "stands_still")],
    "a stop that the next run ends, as after a night without the daemon": [
        (0, STOP, ""),
        (59, STOP, "", RUNNING),
        (62, EMPTY, ""),
    ],
    "the run that is started before a loss gets a moment to help": [
        (0, NEAR, ""),
        (55, NEAR, ""),
        (60, NEAR, "loss_near"),
        (65, NEAR, ""),
    ],
    "a refusal is told at once and stands for what follows from it, but no run can help against a loss": [
        (0, GONE, "refused"),
        (100, GONE, ""),
        (105, backlog(word=State.STOP, refusal=LOST, loss=3000.0), "loss_near"),
    ],
    "a silent broker is told of if it stays silent": [(0, UNSEEN, ""), (59, UNSEEN, ""), (60, UNSEEN, "unreachable")],
    "runs that move nothing are told of if the next one does not either": [
        (0, GOOD, "", STUCK),
        (30, GOOD, "", STUCK | RUNNING),
        (65, GOOD, "", STUCK | RUNNING),
        (70, GOOD, "runs_fail", STUCK),
        (75, GOOD, "", MOVED),
        (140, GOOD, "!runs_fail", MOVED),
    ],
    "many dead letters are an incident until messages come that are better": [
        (0, GOOD, "dead_letters", facts(10_000, 101)),
        (5000, GOOD, "", facts(0, 0)),
        (5005, GOOD, "", facts(100, 0)),
        (5070, GOOD, "!dead_letters", facts(100, 0)),
    ],
    "a hundredth of dead letters is no incident": [(0, GOOD, "", facts(10_000, 100))],
    "nor are nine": [(0, GOOD, "", facts(20, 9))],
}


@pytest.mark.parametrize("ticks", TICKS.values(), ids=TICKS.keys())
def test_each_incident_is_told_in_its_time(watcher: Watcher, ticks: list[Tick]) -> None:
    for at, seen, told_then, *options in ticks:
        assert watcher.tick(seen, at=at, **(options[0] if options else {})) == ([told_then] if told_then else []), at


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


def test_a_long_run_is_not_taken_for_a_stop_and_one_that_hangs_is(watcher: Watcher) -> None:
    large = backlog(5_000_000, word=State.STOP)  # at the usual pace 252 s

    told_at = [at for at in range(0, 1000, 5) if watcher.tick(large, at=at, running=True)]

    assert told_at == [760]


def test_what_comes_and_goes_is_one_incident(watcher: Watcher) -> None:
    watcher.tick(backlog(word=State.STOP), at=0)
    words = [State.STOP if n % 2 == 0 else State.OK for n in range(20)]

    told_of = [line for n, word in enumerate(words) for line in watcher.tick(backlog(word=word), at=60 + 5.0 * n)]

    assert told_of == ["stands_still"]


@pytest.mark.parametrize("word", [State.WARN, State.REWIND, State.OK])
def test_a_stream_that_moves_is_no_incident(watcher: Watcher, word: State) -> None:
    assert watcher.tick(backlog(word=word), at=0) == []
    assert watcher.known == {}


def test_a_paused_stream_does_not_stand_still_but_may_lose_messages(watcher: Watcher) -> None:
    watcher.status = "paused"

    assert watcher.tick(backlog(word=State.STALL), at=0) == []
    assert watcher.tick(backlog(word=State.STALL, loss=3599.0), at=5) == ["loss_near"]


def test_a_loss_is_told_of_before_it_comes_however_short_retention_is(watcher: Watcher) -> None:
    """With 40 s of retention and messages that nobody drains, a tick every 5 s."""
    told_at = [
        left for left in range(20, -1, -5) if watcher.tick(backlog(lag=40.0 - left, loss=float(left)), at=20.0 - left)
    ]

    assert told_at == [10]


def test_what_cannot_be_seen_is_not_over(watcher: Watcher) -> None:
    watcher.tick(backlog(word=State.STOP), at=0)
    watcher.tick(backlog(word=State.STOP), at=60)
    watcher.tick(backlog(word=State.STOP, refusal=LOST), at=65)
    silent = replace(backlog(0, refusal=SILENT), topic_partitions={})

    told_of = [line for n in range(100) for line in watcher.tick(silent, at=70.0 + 5 * n)]

    assert told_of == ["unreachable"]
    assert watcher.known.keys() >= {STANDS, REFUSED}


def test_what_was_not_delivered_is_told_at_the_next_tick_and_its_end_only_after_its_beginning(watcher: Watcher) -> None:
    watcher.delivers = False
    bad, good = backlog(refusal=LOST), backlog()
    first, second = watcher.tick(bad, at=0), watcher.tick(bad, at=5)
    over = watcher.tick(good, at=10)

    assert (first, second, over) == (["refused"], ["refused"], [])
    assert watcher.known == {}


def test_the_incidents_of_a_stream_without_a_document_are_over(watcher: Watcher) -> None:
    watcher.tick(backlog(refusal=LOST), at=0)

    after = track(watcher.known, {}, streams=(), now=1e9 + 5)

    assert [n.incident for n in notices(after, {}, now=1e9 + 5 + MOMENT_SECONDS)] == [None]
