"""The simulation of many streams: what its messages wait for, and that its costs are those that were measured."""

from __future__ import annotations

import pytest

from benchmarks.stream_simulation import (
    Cost,
    Costs,
    Location,
    made_up_topics,
    measured_drains,
    simulated,
    spread,
    topics_behind,
)
from kdi_assets.documents.model.stream import DrainWhen

DRAINS = [(1_000, Cost(1.0, 1.0)), (100_000, Cost(3.0, 2.0)), (1_000_000, Cost(12.0, 6.5))]
COSTS = Costs(run=Cost(2.0, 3.0), stream=Cost(1.5, 2.0), drains=DRAINS)
A_MINUTE = DrainWhen(backlog_messages=None, lag_seconds=60)


@pytest.mark.parametrize(
    ("messages", "cost"),
    [
        (10, Cost(1.5, 2.0)),
        (1_000, Cost(1.5, 2.0)),
        (50_500, Cost(2.5, 2.5)),
        (100_000, Cost(3.5, 3.0)),
        (1_900_000, Cost(21.5, 12.0)),
    ],
)
def test_a_drain_costs_what_lies_between_the_measured_ones(messages: int, cost: Cost) -> None:
    assert COSTS.of(messages) == cost


@pytest.mark.parametrize(
    ("streams", "runs", "waits"), [(1, 1, [65]), (2, 1, [65, 67]), (6, 2, [65, 65, 67, 67, 69, 69])]
)
def test_a_message_waits_for_its_limit_for_its_run_and_for_the_drains_before_its_own(
    streams: int, runs: int, waits: list[float]
) -> None:
    topics = topics_behind(streams, streams, messages=1_000, drain_when=A_MINUTE)

    outcome = Location(topics, costs=COSTS, cores=4).run_for(600, until_empty=True)

    assert outcome.runs == runs
    assert sorted(outcome.waits) == pytest.approx(waits)


def test_as_many_messages_come_as_were_asked_for_and_a_driver_with_room_lets_none_wait_long() -> None:
    topics = made_up_topics(20, messages_a_day=5e6, drain_when=A_MINUTE)
    location = Location(topics, costs=COSTS, cores=4)

    first, second = location.run_for(900), location.run_for(900)

    assert first.messages + second.messages + second.left == pytest.approx(5e6 / 48, rel=0.05)
    assert second.left < 5e6 / 86_400 * 90
    assert second.quantile(0.95) < 90


def test_all_work_is_paid_for() -> None:
    topics = topics_behind(8, 8, messages=1_000, drain_when=A_MINUTE)

    outcome = Location(topics, costs=COSTS, cores=4).run_for(600, until_empty=True)

    assert (outcome.drains, outcome.messages, outcome.left) == (8, 8_000, 0)
    assert outcome.cpu_seconds == pytest.approx(8 * COSTS.stream.cpu + outcome.runs * COSTS.run.cpu)


def test_with_half_of_the_cores_a_busy_driver_takes_twice_as_long() -> None:
    seconds = [
        Location(topics_behind(40, 40, messages=1_000_000, drain_when=A_MINUTE), costs=COSTS, cores=cores)
        .run_for(7_200, until_empty=True)
        .seconds
        for cores in (0.5, 1)
    ]

    assert seconds[0] == pytest.approx(2 * seconds[1], rel=0.1)


def test_a_second_driver_shares_the_work_of_one_that_falls_behind() -> None:
    def waits(groups: int) -> float:
        topics = made_up_topics(40, messages_a_day=1e9, drain_when=A_MINUTE)
        spread_topics = spread(topics, groups, costs=COSTS, seconds=60)
        return simulated(spread_topics, costs=COSTS, cores=0.7, seconds=300).quantile(0.95)

    assert waits(2) < 0.7 * waits(1)


def test_the_measured_drains_are_found_on_their_page() -> None:
    assert [messages for messages, _ in measured_drains()] == [1_000, 100_000, 1_000_000]
