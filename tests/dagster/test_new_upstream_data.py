"""`on_new_upstream_data()` loses no update, whenever it comes."""

from __future__ import annotations

from datetime import date, timedelta

import dagster as dg
import pytest
from dagster import AutomationCondition, DagsterInstance

from kdi_assets.components.names import dates
from kdi_assets.downstream import on_new_upstream_data
from kdi_assets.stream import DateWindow
from tests.dagster.built_on_bronze import GOLD, SILVER, World
from tests.dagster.fakes import ScriptedDrain, ScriptedReplay, a_commit, a_stream, run, today, yesterday

OLD, LATER = date(2021, 3, 4), date(2021, 6, 7)
WEEKLY = dg.WeeklyPartitionsDefinition(start_date="2020-01-05", end_offset=1)

Found = set[str | None]


def keys(*days: date) -> Found:
    return {day.isoformat() for day in days}


def sunday(day: date) -> str:
    """The week of a date, as Dagster names it."""
    return (day - timedelta(days=(day.weekday() + 1) % 7)).isoformat()


@pytest.fixture
def world(instance: DagsterInstance) -> World:
    """A location whose sensor ticked once, when there were no rows yet."""
    world = World(instance, on_new_upstream_data())
    assert world.tick() == set()
    return world


def test_every_date_that_a_drain_touched_is_requested_once_however_late(world: World) -> None:
    world.drain(OLD, yesterday(), today())

    assert world.tick() == keys(OLD, yesterday(), today())
    assert world.tick() == set()


def test_dates_that_a_backfill_left_as_they_were_are_updates_but_for_who_goes_by_the_data_version(
    instance: DagsterInstance,
) -> None:
    """Dagster counts a date of a backfill without an event as failed, so each has one."""
    by_version = AutomationCondition.any_deps_match(AutomationCondition.data_version_changed())
    ours, versions = World(instance, on_new_upstream_data()), World(instance, by_version)
    before = yesterday() - timedelta(days=1)
    ours.drain(before, yesterday())
    assert (ours.tick(), versions.tick()) == (set(), set()), "it was there before"

    changed = ScriptedReplay(a_commit(1000, {yesterday(): 3}))
    tags = {"dagster/backfill": "some"}
    assert run(instance, ours.bronze, ScriptedDrain(), day=before, until=yesterday(), replay=changed, tags=tags).success

    assert versions.tick() == keys(yesterday())
    assert ours.tick() == keys(before, yesterday())


@pytest.mark.parametrize("ticks", [True, False], ids=["a tick sees it", "no tick sees it"])
def test_an_update_while_the_run_works_is_requested_when_it_has_ended(world: World, ticks: bool) -> None:
    world.drain(OLD)
    while_it_worked: list[Found] = []

    def drain_and_tick() -> None:
        world.drain(OLD)
        while_it_worked.extend([world.tick()] if ticks else [])

    world.during = drain_and_tick
    assert world.build(*world.tick())

    assert (while_it_worked, world.tick()) == ([set()] if ticks else [], keys(OLD))


def test_an_update_is_requested_although_the_dates_begin_elsewhere_since(world: World) -> None:
    world.drain(OLD)
    world.bronze = a_stream(date_window=DateWindow(start=date(2019, 1, 1), ahead_days=0))
    world.partitions = dates(world.bronze)

    assert world.tick() == keys(OLD)


@pytest.mark.parametrize("partitions", [WEEKLY, None], ids=["weeks", "a whole table"])
def test_weeks_and_whole_tables_miss_no_update_although_most_dates_have_no_rows(
    instance: DagsterInstance, partitions: dg.PartitionsDefinition[str] | None
) -> None:
    """Updates come before the request, between request and run, and while the run works."""
    world = World(instance, on_new_upstream_data(), partitions=partitions)
    world.tick()
    world.drain(OLD, LATER)

    first = world.tick()
    world.drain(OLD, LATER)
    before_the_run = world.tick()
    world.during = lambda: world.drain(OLD)
    world.build(*before_the_run)
    after_the_run = world.tick()

    assert first == before_the_run == ({sunday(OLD), sunday(LATER)} if partitions else {None})
    assert after_the_run == ({sunday(OLD)} if partitions else {None})


def test_gold_follows_silver_date_by_date_and_each_is_requested_once(instance: DagsterInstance) -> None:
    world = World(instance, on_new_upstream_data(), with_gold=True)
    world.tick()
    world.drain(OLD, today())

    silver = world.tick(SILVER)
    world.build(*silver)
    gold = world.tick(GOLD)
    world.build(*gold, key=GOLD)

    assert silver == gold == keys(OLD, today())
    assert world.tick(SILVER) | world.tick(GOLD) == set()


def test_rows_that_were_there_before_the_asset_was_are_not_requested(instance: DagsterInstance) -> None:
    world = World(instance, on_new_upstream_data())
    world.drain(OLD)

    assert world.tick() | world.tick() == set()
    world.drain(today())
    assert world.tick() == keys(today())


@pytest.mark.parametrize("looked_up", ["100", "1"])
def test_an_update_between_request_and_run_is_requested_again(
    world: World, monkeypatch: pytest.MonkeyPatch, looked_up: str
) -> None:
    """Dagster compares times for so many dates of a tick, 100 by default; for more it takes the tick's own."""
    monkeypatch.setenv("DAGSTER_MAX_PARTITIONS_FOR_DA_TIMESTAMP_FETCH", looked_up)

    world.drain(OLD, today())
    first = world.tick()
    world.drain(OLD, today())
    again = world.tick()

    assert first == again == keys(OLD, today())
