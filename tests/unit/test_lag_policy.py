"""Which streams are worth a run now, and how the sensor says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kdi_assets.drain.look import Backlog, PartitionBacklog
from kdi_assets.errors import KdiError
from kdi_assets.sources.kafka import TopicMissing
from kdi_assets.stream import DrainWhen, TopicPartition
from sensors.memory import Memory, read_cursor, write_cursor
from sensors.policy import Decision, explain, progress, streams_to_drain

NOW = 1_800_000_000.0
BEGUN = Memory(table_id="id", reconciled=0)
MISSING = TopicMissing(cluster="main", topic="payments")


def backlog(
    stream: str, offsets: int = 0, lag: float | None = None, *, position: int = 0, refusal: KdiError | None = None
) -> Backlog:
    seen = PartitionBacklog(position=position, end=position + offsets, earliest=0)
    return Backlog(
        stream=stream,
        topic_partitions={TopicPartition(stream, 0): seen},
        offsets=offsets,
        lag_seconds=lag,
        refusal=refusal,
        open_transaction_offsets=0,
    )


def decide(
    *backlogs: Backlog, in_flight: tuple[str, ...] = (), memories: Mapping[str, Memory] | None = None, now: float = NOW
) -> Decision:
    limits = {b.stream: DrainWhen(backlog_messages=1000, lag_seconds=60) for b in backlogs}
    known = {b.stream: (memories or {}).get(b.stream, BEGUN) for b in backlogs}
    runs = dict.fromkeys(in_flight, "run 1a2b3c4d for 9 s")
    return streams_to_drain(backlogs, limits=limits, in_flight=runs, memories=known, now=now)


def names(backlogs: tuple[Backlog, ...]) -> list[str]:
    return [b.stream for b in backlogs]


@pytest.mark.parametrize(
    ("offsets", "lag", "due"),
    [(999, 59.9, False), (1000, 0.0, True), (1, 60.0, True), (0, None, False), (999, None, False), (1000, None, True)],
)
def test_either_limit_makes_a_stream_due(offsets: int, lag: float | None, due: bool) -> None:
    decision = decide(backlog("orders", offsets, lag))

    assert names(decision.due) == (["orders"] if due else [])


def test_the_stream_that_waits_longest_comes_first_and_then_the_larger_backlog() -> None:
    decision = decide(backlog("a", 5000, 3.0), backlog("b", 10, 90.0), backlog("c", 9000, 3.0), backlog("d", 2000))

    assert names(decision.due) == ["b", "c", "a", "d"]


def test_a_stream_in_flight_is_not_requested_again() -> None:
    decision = decide(backlog("a", 5000, 3.0), backlog("b", 5000, 3.0), in_flight=("a",))

    assert names(decision.due) == ["b"]
    assert [b.stream for b, _ in decision.in_flight] == ["a"]


def test_a_refused_stream_costs_a_line_and_nothing_else() -> None:
    decision = decide(backlog("payments", 5000, 90.0, refusal=MISSING), backlog("orders", 5000, 90.0))

    assert names(decision.due) == ["orders"]
    assert "no topic 'payments'" in explain(decision)
    assert explain(decision).count("\n") == 1


def test_a_stream_whose_runs_move_nothing_is_requested_ever_more_rarely() -> None:
    stuck = backlog("orders", 5000, 90.0)
    memory, requests, now = BEGUN, [], NOW
    while now < NOW + 3600:
        if decide(stuck, memories={"orders": memory}, now=now).due:
            memory = memory.requested(progress(stuck), now)
            requests.append(now - NOW)
        now += 5

    waits = [later - earlier for earlier, later in zip(requests, requests[1:], strict=False)]
    assert waits == [10, 20, 40, 80, 160, 320, 600, 600, 600, 600]


def test_a_position_that_moved_ends_the_waiting() -> None:
    stuck = backlog("orders", 5000, 90.0)
    memory = replace(BEGUN, positions=progress(stuck), requested_at=NOW - 5, futile=6)
    moved = backlog("orders", 5000, 90.0, position=1)

    assert not decide(stuck, memories={"orders": memory}).due
    assert names(decide(moved, memories={"orders": memory}).due) == ["orders"]
    assert memory.requested(progress(moved), NOW).futile == 0


def test_an_unsettled_stream_is_due_at_once_and_waits_after_a_run_that_settled_nothing() -> None:
    """With `latest`, the positions that a look proposes move on with every message, and are nobody's progress."""
    first, later = (replace(backlog("orders", position=at), unsettled=True) for at in (7, 9))
    memory = Memory().requested(progress(first), NOW)

    assert names(decide(first, memories={"orders": Memory()}).due) == ["orders"]
    assert not decide(later, memories={"orders": memory}, now=NOW + 5).due


def test_the_reason_names_the_largest_backlog_what_drains_and_what_waits() -> None:
    held = backlog("held", 2000, 61.0)
    memory = replace(BEGUN, positions=progress(held), requested_at=NOW - 3)
    decision = decide(
        backlog("small", 7, 2.0),
        backlog("smaller", 3),
        backlog("running", 12_345, 70.0),
        held,
        in_flight=("running",),
        memories={"held": memory},
    )

    assert explain(decision).splitlines() == [
        "nothing due; largest backlog: running 12,345 offsets, 70 s",
        "in flight: running 12,345 offsets, 70 s, run 1a2b3c4d for 9 s",
        "held: the last run moved no position, next try in 7 s",
    ]


def test_a_refusal_that_is_about_the_cluster_says_whose_it_is() -> None:
    decision = decide(replace(backlog("payments_eu"), refusal=MISSING))

    assert "payments_eu: Kafka cluster main has no topic 'payments'. Run: create" in explain(decision)


def test_idle_streams_are_said_to_have_no_backlog() -> None:
    assert explain(decide(backlog("a"), backlog("b"))) == "nothing due; no backlog"


def test_the_cursor_keeps_what_a_tick_learned() -> None:
    memories = {"a": Memory("p", 12.5, 3, "id", 41), "b": Memory()}

    assert read_cursor(write_cursor(memories)) == memories


@pytest.mark.parametrize("cursor", [None, "", "not json", "[1]", "3", '{"a": 1}', '{"a": {"unknown": 1}}'])
def test_a_cursor_that_cannot_be_read_is_no_memory_and_no_error(cursor: str | None) -> None:
    assert read_cursor(cursor) == {}
