"""Which streams get a run now, which of them share one, and how the sensor explains it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from kdi_assets.documents.model.message_rules import Route
from kdi_assets.documents.model.stream import Cluster, DrainWhen, Status, Stream
from kdi_assets.messages.kafka.errors import TopicMissing
from kdi_assets.operate.monitoring.backlog import Backlog
from kdi_assets.sensors.memory import Memories, Memory, TrackedIncident, read_cursor, write_cursor
from kdi_assets.sensors.policy import Due, TickDecision, backoff_seconds, explain, progress_digest, streams_to_drain
from kdi_assets.sensors.requests import LANES, ONE_RUN_SECONDS, packs, run_requests
from kdi_assets.streams.ledger.recent_commits import Pace
from tests.unit.monitoring.backlogs import waits

NOW = 1_800_000_000.0
BEGUN = Memory(table_id="id", reconciled=0)
MISSING = TopicMissing(cluster="main", topic="payments", bootstrap_servers="b:1")


def backlog(stream: str, offsets: int = 0, lag: float | None = None, *, position: int = 0, **more: Any) -> Backlog:
    return waits(offsets, lag, stream=stream, position=position, **more)


def a_stream(name: str, *, when: DrainWhen, status: Status = "active") -> Stream:
    main = Cluster("main", "127.0.0.1:1")
    return Stream(name, name, "a int", "current_date()", main, drain_when=when, status=status)


def decide(
    *backlogs: Backlog,
    in_flight: tuple[str, ...] = (),
    memories: Mapping[str, Memory] | None = None,
    now: float = NOW,
    when: DrainWhen | None = None,
    status: Status = "active",
) -> TickDecision:
    limits = when or DrainWhen(backlog_messages=1000, lag_seconds=60)
    streams = {b.stream: a_stream(b.stream, when=limits, status=status) for b in backlogs}
    known = {b.stream: (memories or {}).get(b.stream, BEGUN) for b in backlogs}
    runs = dict.fromkeys(in_flight, "run 1a2b3c4d for 9 s")
    return streams_to_drain(backlogs, streams=streams, in_flight=runs, memories=known, now=now)


def names(due: Iterable[Due]) -> list[str]:
    return [d.backlog.stream for d in due]


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


def test_a_stream_whose_runs_move_nothing_is_requested_ever_more_rarely_until_a_position_moved() -> None:
    stuck, moved = backlog("orders", 5000, 90.0), backlog("orders", 5000, 90.0, position=1)
    memory, requests, now = BEGUN, [], NOW
    while now < NOW + 3600:
        if decide(stuck, memories={"orders": memory}, now=now).due:
            memory = memory.requested(progress_digest(stuck), now)
            requests.append(now - NOW)
        now += 5

    waits = [later - earlier for earlier, later in zip(requests, requests[1:], strict=False)]
    assert waits == [10, 20, 40, 80, 160, 320, 600, 600, 600, 600]
    assert names(decide(moved, memories={"orders": memory}, now=NOW + requests[-1] + 15).due) == ["orders"]
    assert memory.requested(progress_digest(moved), NOW).runs_in_vain == 0


def test_a_stream_that_reached_a_limit_is_drained_until_it_is_below_half_of_it() -> None:
    half, less = backlog("orders", 500, 3.0), backlog("orders", 499, 3.0)
    reached = replace(BEGUN, catching_up=True)

    assert not decide(half).due
    assert names(decide(half, memories={"orders": reached}).due) == ["orders"]
    assert decide(half, memories={"orders": reached}).catching_up == {"orders"}
    assert not decide(less, memories={"orders": reached}).due
    assert not decide(less, memories={"orders": reached}).catching_up


def test_a_run_in_flight_says_nothing_of_how_far_the_stream_came() -> None:
    reached = {"orders": replace(BEGUN, catching_up=True)}

    decision = decide(backlog("orders", 10), in_flight=("orders",), memories=reached)

    assert decision.catching_up == {"orders"}


def test_between_two_requests_lies_the_gap_so_that_files_do_not_get_small() -> None:
    drained = replace(BEGUN, positions="others", requested_at=NOW - 4)
    busy = backlog("orders", 5000, 90.0)

    decision = decide(busy, memories={"orders": drained})

    assert (decision.due, decision.resting) == ((), ((busy, 6.0),))
    assert names(decide(busy, memories={"orders": drained}, now=NOW + 6).due) == ["orders"]


def test_a_cron_drains_whatever_there_is_once_at_each_of_its_times() -> None:
    hourly, at_ten = DrainWhen(None, None, cron="0 * * * *"), NOW - NOW % 3600
    one, fresh = backlog("orders", 1, 1900.0), backlog("orders", 1, 1700.0)
    before, after = (replace(BEGUN, positions="others", requested_at=at) for at in (at_ten - 1, at_ten + 1))

    assert names(decide(one, memories={"orders": before}, now=at_ten + 1800, when=hourly).due) == ["orders"]
    assert not decide(one, memories={"orders": after}, now=at_ten + 1800, when=hourly).due
    assert not decide(fresh, memories={"orders": before}, now=at_ten + 1800, when=hourly).due, "it came after ten"
    assert not decide(backlog("orders"), memories={"orders": before}, now=at_ten + 1800, when=hourly).due
    failed = replace(after, positions=progress_digest(one))
    assert names(decide(one, memories={"orders": failed}, now=at_ten + 1800, when=hourly).due) == ["orders"]


def test_streams_that_share_a_refusal_share_its_line_and_a_line_stays_short() -> None:
    gone = [replace(backlog(f"stream_{number}"), refusal=MISSING) for number in range(100)]

    said = explain(decide(*gone))

    assert len(said.splitlines()) == 2
    assert "and 80 more: Kafka cluster main (b:1) has no topic 'payments'" in said
    assert "The next tick asks again" in said and "command" not in said, "nobody typed one"
    assert len(said) < 1000


BUSY = backlog("orders", 5000, 90.0)
UNSETTLED, PROPOSED_LATER = (replace(backlog("orders", position=at), needs_position_commit=True) for at in (7, 9))
NEVER = DrainWhen(None, None, cron="0 0 1 1 *", min_gap_seconds=3600)
JUST_NOW = replace(BEGUN, positions="others", requested_at=NOW - 1)
LOST_SOON = backlog("orders", 1, 80_000.0, loss=30.0)
AHEAD = replace(BEGUN, positions="others", requested_at=NOW + 2 * 86_400)
BYTES, NO_LIMIT = DrainWhen(None, None, backlog_bytes=1_000_000), DrainWhen(None, None)
USUAL = DrainWhen(backlog_messages=1000, lag_seconds=60)


def test_a_renewal_is_progress_though_it_moves_no_position() -> None:
    first, next_one = (replace(UNSETTLED, renews=at) for at in (1_000, 22_600_000))
    memory = Memory().requested(progress_digest(first), NOW - 6 * 3600)

    (due,) = decide(next_one, memories={"orders": memory}, when=USUAL).due
    (again,) = decide(first, memories={"orders": memory}, when=USUAL).due

    assert (due.suspect, again.suspect) == (False, True)
    assert "nothing arrived" in due.reason
    assert memory.requested(progress_digest(next_one), NOW).runs_in_vain == 0


@pytest.mark.parametrize(
    ("seen", "memory", "when", "due"),
    [
        (UNSETTLED, Memory(), USUAL, True),
        # With `latest`, the proposed positions move on with every message, without any drain.
        (PROPOSED_LATER, Memory().requested(progress_digest(UNSETTLED), NOW - 5), USUAL, False),
        (replace(backlog("orders", 10), bytes=2_000_000), BEGUN, BYTES, True),
        (backlog("orders", 10), BEGUN, BYTES, False),
        # The time to loss ignores every limit, gap and cron,
        (backlog("orders", 1, 80_000.0, loss=3000.0), JUST_NOW, NEVER, True),
        (backlog("orders", 1, 80_000.0, loss=7000.0), JUST_NOW, NEVER, False),
        # and is tried again before the loss, though its runs move nothing.
        (
            LOST_SOON,
            replace(BEGUN, positions=progress_digest(LOST_SOON), requested_at=NOW - 16, runs_in_vain=9),
            USUAL,
            True,
        ),
        # With a short retention, half of it counts as near: an hour of ten minutes would be every tick.
        (backlog("orders", 1, 200.0, loss=400.0), BEGUN, NO_LIMIT, False),
        (backlog("orders", 1, 310.0, loss=290.0), BEGUN, NO_LIMIT, True),
        # A clock that was wrong for a while delays nothing.
        (BUSY, AHEAD, USUAL, True),
        (BUSY, replace(AHEAD, positions=progress_digest(BUSY)), USUAL, True),
    ],
)
def test_a_stream_is_due_by_backlog_and_memory(seen: Backlog, memory: Memory, when: DrainWhen, due: bool) -> None:
    decision = decide(seen, memories={"orders": memory}, when=when)

    assert names(decision.due) == (["orders"] if due else [])
    assert [d.urgent for d in decision.due] == ([seen.time_to_loss_seconds is not None] if due else [])


def test_a_paused_stream_is_never_due_and_is_said_to_be_paused() -> None:
    decision = decide(backlog("orders", 5000, 90.0, loss=1.0), status="paused")

    assert not decision.due
    assert "paused: orders 5,000 offsets, 90 s" in explain(decision)


def test_the_reason_names_the_largest_backlog_what_drains_and_what_waits() -> None:
    held = backlog("held", 2000, 61.0)
    memory = replace(BEGUN, positions=progress_digest(held), requested_at=NOW - 3)
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
    assert explain(decide(backlog("a"), backlog("b"))) == "nothing due; no backlog"


def test_the_cursor_keeps_what_a_tick_learned() -> None:
    memories = Memories({"a": Memory("p", 12.5, 3, True, "id", 41, 2), "b": Memory()})

    assert read_cursor(write_cursor(memories)) == memories


def test_a_cursor_of_an_earlier_release_is_read() -> None:
    cursor = '{"streams": {"a": {"positions": "p", "futile": 3}}, "incidents": {"b": {"since": 5, "told": true}}}'

    assert read_cursor(cursor) == Memories({"a": Memory("p", runs_in_vain=3)}, {"b": TrackedIncident(5, told=True)})


@pytest.mark.parametrize(
    "cursor", [None, "", "not json", "[1]", '{"streams": {"a": 1}}', '{"streams": {"a": {"no": 1}}}']
)
def test_a_cursor_that_cannot_be_read_is_taken_as_empty(cursor: str | None) -> None:
    assert read_cursor(cursor) == Memories()


def test_a_due_stream_takes_those_of_its_route_group_along_that_wait() -> None:
    """Pass: but none that has no backlog, rests, whose last run moved nothing, or that is in another group."""
    when = DrainWhen(backlog_messages=1000, lag_seconds=60, min_gap_seconds=30)
    rests, stuck = backlog("rests", 5), backlog("stuck", 5)
    backlogs = [backlog("due", 1000), backlog("waits", 5), backlog("empty"), rests, stuck, backlog("other", 5)]
    streams = {b.stream: replace(a_stream(b.stream, when=when), topic="web", route=Route("true")) for b in backlogs}
    streams["other"] = replace(streams["other"], topic="shop")
    memories = {b.stream: BEGUN for b in backlogs}
    memories |= {
        "rests": BEGUN.requested("elsewhere", NOW - 10),
        "stuck": BEGUN.requested(progress_digest(stuck), NOW - 100),
    }

    decision = streams_to_drain(backlogs, streams=streams, in_flight={}, memories=memories, now=NOW)

    assert [(d.backlog.stream, d.reason) for d in decision.due] == [
        ("due", "1,000 messages"),
        ("waits", "in one pass with due"),
    ]
    assert {b.stream for b in decision.below} == {"rests", "stuck", "other"}


ONE_SECOND = Pace(fixed_seconds=1.0, offsets_per_second=1000.0)


def due(stream: str, offsets: int = 0, *, suspect: bool = False) -> Due:
    return Due(Backlog(stream, {}, offsets, None, None, 0, pace=ONE_SECOND), "a limit", suspect=suspect)


def test_what_takes_a_moment_is_one_run() -> None:
    few = [due(str(number)) for number in range(int(ONE_RUN_SECONDS))]

    assert len(packs(few)) == 1
    assert len(packs([*few, due("one more")])) == LANES


def test_with_several_drivers_there_are_as_many_lanes_for_each() -> None:
    many = [due(str(number)) for number in range(30)]

    assert [len(pack) for pack in packs(many, drivers=3)] == [5] * (3 * LANES)


def test_many_are_spread_over_the_lanes_so_that_these_end_together() -> None:
    found = packs([due("long", 29_000), *(due(f"short {number}") for number in range(30))])

    assert [len(pack) for pack in found] == [1, 30]


def test_what_moved_no_position_is_apart_so_that_it_holds_no_other() -> None:
    found = packs([due("a"), due("stuck", suspect=True), due("b"), due("torn", suspect=True)])

    assert [names(pack) for pack in found] == [["a", "b"], ["stuck", "torn"]]


def test_streams_of_a_route_group_share_a_run_however_long_they_take() -> None:
    group = ("main", "web")
    routed = [replace(due(f"routed {number}", 20_000), group=group) for number in range(3)]
    others = [due(f"other {number}", 20_000) for number in range(3)]

    found = packs([one for pair in zip(routed, others, strict=True) for one in pair])

    assert sorted(names(pack) for pack in found) == [
        [f"other {n}" for n in range(3)],
        [f"routed {n}" for n in range(3)],
    ]


def test_the_tags_of_a_large_run_stay_short_enough_for_the_index_that_has_them() -> None:
    streams = {
        f"bronze/stream_{number}": a_stream(f"bronze/stream_{number}", when=DrainWhen()) for number in range(400)
    }

    (*_, request) = run_requests([due(name) for name in streams], streams, now=datetime.now(UTC))

    assert max(len(value) for value in request.tags.values()) < 1200
    assert "more" in request.tags["kdi/why"]


def test_a_table_that_waits_for_someone_for_weeks_does_not_stop_the_sensor() -> None:
    failed = replace(BEGUN, positions=progress_digest(backlog("a", 5, 100)), requested_at=NOW, runs_in_vain=5000)

    decision = decide(backlog("a", 5, 100), backlog("b", 5, 100), memories={"a": failed})

    assert names(decision.due) == ["b"]
    assert [(b.stream, wait) for b, wait in decision.held] == [("a", 600.0)]
    assert [backoff_seconds(runs_in_vain) for runs_in_vain in (0, 1, 5, 6, 5000)] == [10, 20, 320, 600, 600]
