"""`on_new_upstream_data()` loses no update; where Dagster's `eager()` does, the same steps show it.

A scenario is played twice on one instance's events, once per condition, so that none of them can hold by doing nothing.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from typing import cast

import dagster as dg
import pytest
from dagster import AutomationCondition, DagsterInstance

from kdi_assets.components.names import dates
from kdi_assets.downstream import on_new_upstream_data
from kdi_assets.stream import DateWindow
from tests.dagster.built_on_bronze import GOLD, SILVER, Condition, World
from tests.dagster.fakes import TODAY, YESTERDAY, ScriptedDrain, ScriptedReplay, a_commit, a_stream, run

OLD, LATER = TODAY - timedelta(days=400), TODAY - timedelta(days=200)  # in weeks that are over
_EAGER = AutomationCondition.eager()  # mypy: it fits checks as well, and so is of another type
EAGER = cast(Condition, _EAGER)
EAGER_FOR_ALL_DATES = cast(Condition, _EAGER.without(AutomationCondition.in_latest_time_window()))
WEEKLY = dg.WeeklyPartitionsDefinition(start_date="2020-01-05", end_offset=1)

Found = set[str | None]


def keys(*days: date) -> Found:
    return {day.isoformat() for day in days}


def sunday(day: date) -> str:
    """The week of a date, as Dagster names it."""
    return (day - timedelta(days=(day.weekday() + 1) % 7)).isoformat()


def test_every_date_that_a_drain_touched_is_requested_however_late(instance: DagsterInstance) -> None:
    ours, eager = World(instance, on_new_upstream_data()), World(instance, EAGER)
    assert (ours.tick(), eager.tick()) == (set(), set()), "nothing is there"

    ours.drain(OLD, YESTERDAY, TODAY)

    assert ours.tick() == keys(OLD, YESTERDAY, TODAY)
    assert eager.tick() == keys(TODAY)
    assert ours.tick() == set(), "once"


def test_dates_that_a_backfill_left_as_they_were_are_updates_but_for_who_goes_by_the_data_version(
    instance: DagsterInstance,
) -> None:
    """Dagster counts a date of a backfill without an event as failed, so each has one."""
    by_version = AutomationCondition.any_deps_match(AutomationCondition.data_version_changed())
    ours, versions = World(instance, on_new_upstream_data()), World(instance, by_version)
    before = YESTERDAY - timedelta(days=1)
    ours.drain(before, YESTERDAY)
    assert (ours.tick(), versions.tick()) == (set(), set()), "it was there before"

    changed = ScriptedReplay(a_commit(1000, {YESTERDAY: 3}))
    tags = {"dagster/backfill": "some"}
    assert run(instance, ours.bronze, ScriptedDrain(), day=before, until=YESTERDAY, replay=changed, tags=tags).success

    assert versions.tick() == keys(YESTERDAY)
    assert ours.tick() == keys(before, YESTERDAY)


def test_an_update_between_request_and_run_is_requested_again(instance: DagsterInstance) -> None:
    ours, eager = World(instance, on_new_upstream_data()), World(instance, EAGER_FOR_ALL_DATES)

    def play(world: World) -> Found:
        world.tick()
        world.drain(OLD)
        first = world.tick()
        world.drain(OLD)
        again = world.tick()
        assert world.build(*first, *again)
        return again | world.tick()

    assert play(ours) == keys(OLD)
    assert play(eager) == set()


def test_an_update_while_the_run_works_is_requested_when_it_has_ended(instance: DagsterInstance) -> None:
    ours, eager = World(instance, on_new_upstream_data()), World(instance, EAGER_FOR_ALL_DATES)

    def play(world: World) -> tuple[Found, Found]:
        world.tick()
        world.drain(OLD)
        while_it_worked: list[Found] = []

        def drain_and_tick() -> None:
            world.drain(OLD)
            while_it_worked.append(world.tick())

        world.during = drain_and_tick
        assert world.build(*world.tick())
        return while_it_worked[0], world.tick()

    assert play(ours) == (set(), keys(OLD))
    assert play(eager) == (set(), set())


def test_an_update_while_the_run_works_that_no_tick_saw_is_requested(instance: DagsterInstance) -> None:
    ours, eager = World(instance, on_new_upstream_data()), World(instance, EAGER_FOR_ALL_DATES)

    def play(world: World) -> Found:
        world.tick()
        world.drain(OLD)
        world.during = lambda: world.drain(OLD)
        assert world.build(*world.tick())
        return world.tick()

    assert play(ours) == keys(OLD)
    assert play(eager) == set()


def test_an_update_is_requested_although_the_dates_begin_elsewhere_since(instance: DagsterInstance) -> None:
    ours, eager = World(instance, on_new_upstream_data()), World(instance, EAGER_FOR_ALL_DATES)

    def play(world: World) -> Found:
        world.tick()
        world.drain(OLD)
        world.bronze = a_stream(date_window=DateWindow(start=date(2019, 1, 1), ahead_days=0))
        world.partitions = dates(world.bronze)
        return world.tick()

    assert play(ours) == keys(OLD)
    assert play(eager) == set()


@pytest.mark.parametrize(("partitions", "expected"), [(WEEKLY, {sunday(OLD), sunday(LATER)}), (None, {None})])
def test_weeks_and_whole_tables_are_requested_although_most_dates_have_no_rows(
    instance: DagsterInstance, partitions: dg.PartitionsDefinition[str] | None, expected: Found
) -> None:
    ours = World(instance, on_new_upstream_data(), partitions=partitions)
    eager = replace(ours, condition=EAGER_FOR_ALL_DATES)
    assert (ours.tick(), eager.tick()) == (set(), set())

    ours.drain(OLD, LATER)

    assert ours.tick() == expected
    assert eager.tick() == set()


@pytest.mark.parametrize(("partitions", "expected"), [(WEEKLY, {sunday(OLD)}), (None, {None})])
def test_weeks_and_whole_tables_miss_no_update_between_request_and_run_or_while_it_works(
    instance: DagsterInstance, partitions: dg.PartitionsDefinition[str] | None, expected: Found
) -> None:
    world = World(instance, on_new_upstream_data(), partitions=partitions)
    world.tick()
    world.drain(OLD)

    first = world.tick()
    world.drain(OLD)
    before_the_run = world.tick()
    world.during = lambda: world.drain(OLD)
    world.build(*before_the_run)
    after_the_run = world.tick()

    assert first == before_the_run == after_the_run == expected


def test_gold_follows_silver_date_by_date_and_each_is_requested_once(instance: DagsterInstance) -> None:
    world = World(instance, on_new_upstream_data(), with_gold=True)
    world.tick()
    world.drain(OLD, TODAY)

    silver = world.tick(SILVER)
    world.build(*silver)
    gold = world.tick(GOLD)
    world.build(*gold, key=GOLD)

    assert silver == gold == keys(OLD, TODAY)
    assert world.tick(SILVER) | world.tick(GOLD) == set()


def test_rows_that_were_there_before_the_asset_was_are_not_requested(instance: DagsterInstance) -> None:
    world = World(instance, on_new_upstream_data())
    world.drain(OLD)

    assert world.tick() | world.tick() == set()
    world.drain(TODAY)
    assert world.tick() == keys(TODAY)


def test_dates_beyond_the_number_that_dagster_looks_up_one_by_one_lose_no_update_either(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster compares times for at most 100 dates of a tick; for more it takes the tick's own."""
    monkeypatch.setenv("DAGSTER_MAX_PARTITIONS_FOR_DA_TIMESTAMP_FETCH", "1")
    world = World(instance, on_new_upstream_data())
    world.tick()

    world.drain(OLD, TODAY)
    first = world.tick()
    world.drain(OLD, TODAY)
    again = world.tick()

    assert first == again == keys(OLD, TODAY)
