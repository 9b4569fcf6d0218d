"""Which streams share a run."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from kdi_assets.drain.backlog import Backlog
from kdi_assets.ledger.recent import Pace
from sensors.policy import Due
from sensors.requests import LANES, ONE_RUN_SECONDS, packs, run_requests
from tests.dagster.fakes import a_stream

ONE_SECOND = Pace(fixed_seconds=1.0, offsets_per_second=1000.0)


def due(stream: str, offsets: int = 0, *, suspect: bool = False) -> Due:
    return Due(Backlog(stream, {}, offsets, None, None, 0, pace=ONE_SECOND), "a limit", suspect=suspect)


def names(found: list[list[Due]]) -> list[list[str]]:
    return [[d.backlog.stream for d in pack] for pack in found]


def test_what_takes_a_moment_is_one_run() -> None:
    few = [due(str(number)) for number in range(int(ONE_RUN_SECONDS))]

    assert len(packs(few)) == 1
    assert len(packs([*few, due("one more")])) == LANES


def test_many_are_spread_over_the_lanes_so_that_these_end_together() -> None:
    found = packs([due("long", 29_000), *(due(f"short {number}") for number in range(30))])

    assert [len(pack) for pack in found] == [1, 30]


def test_what_moved_no_position_is_apart_so_that_it_holds_no_other() -> None:
    found = packs([due("a"), due("stuck", suspect=True), due("b"), due("torn", suspect=True)])

    assert names(found) == [["a", "b"], ["stuck", "torn"]]


def test_streams_of_a_route_group_share_a_run_however_long_they_take() -> None:
    group = ("main", "web")
    routed = [replace(due(f"routed {number}", 20_000), group=group) for number in range(3)]
    others = [due(f"other {number}", 20_000) for number in range(3)]

    found = packs([one for pair in zip(routed, others, strict=True) for one in pair])

    assert sorted(names(found)) == [[f"other {n}" for n in range(3)], [f"routed {n}" for n in range(3)]]


def test_the_tags_of_a_large_run_stay_short_enough_for_the_index_that_has_them() -> None:
    streams = {f"bronze/stream_{number}": a_stream(f"bronze/stream_{number}") for number in range(400)}

    (*_, request) = run_requests([due(name) for name in streams], streams, now=datetime.now(UTC))

    assert max(len(value) for value in request.tags.values()) < 1200
    assert "more" in request.tags["kdi/why"]
