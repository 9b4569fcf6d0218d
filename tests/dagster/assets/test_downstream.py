"""`on_new_upstream_data()` loses no update, whenever it comes and whatever failed; a failed check holds all of them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import dagster as dg
import pytest
from dagster import AutomationCondition, DagsterInstance

from kdi_assets.components.asset_checks import CHECKED_BY, failed_blocking_checks
from kdi_assets.components.names import dates, table_key
from kdi_assets.documents.model.stream import DateWindow
from kdi_assets.downstream import FAILED, on_new_upstream_data
from tests.dagster.built_on_bronze import BRONZE, DAILY, GOLD, SILVER, World
from tests.dagster.fakes import ScriptedDrain, ScriptedReplay, a_commit, a_stream, run, today, yesterday

OLD, LATER = date(2021, 3, 4), date(2021, 6, 7)
WEEKLY = dg.WeeklyPartitionsDefinition(start_date="2020-01-05", end_offset=1)
SECONDS = timedelta(seconds=5)

Found = set[str | None]


def keys(*days: date) -> Found:
    return {day.isoformat() for day in days}


def sunday(day: date) -> str:
    """The week of a date, as Dagster names it."""
    return (day - timedelta(days=(day.weekday() + 1) % 7)).isoformat()


@pytest.fixture
def world(instance: DagsterInstance) -> World:
    """A location whose sensor ticked once, before there were any rows."""
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
    """Updates come before the request, between request and run, and during the run."""
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


@pytest.mark.parametrize("looked_up", ["100", "1"])
def test_an_update_between_request_and_run_is_requested_again(
    world: World, monkeypatch: pytest.MonkeyPatch, looked_up: str
) -> None:
    """Dagster compares times for this many dates of a tick, 100 by default; for more it uses the tick's own time."""
    monkeypatch.setenv("DAGSTER_MAX_PARTITIONS_FOR_DA_TIMESTAMP_FETCH", looked_up)

    world.drain(OLD, today())
    first = world.tick()
    world.drain(OLD, today())
    again = world.tick()

    assert first == again == keys(OLD, today())


@pytest.fixture
def now() -> datetime:
    """The ticks' own clock: a full hour that passes during the test would add a retry."""
    return datetime.now(UTC)


@pytest.fixture
def next_hour(now: datetime) -> datetime:
    return (now + timedelta(hours=1)).replace(minute=0, second=0, microsecond=0)


def a_world_with_a_failed_run(
    instance: DagsterInstance, now: datetime, *, partitions: dg.PartitionsDefinition[str] | None = DAILY
) -> World:
    """Two dates, one of which was built; without dates, the whole table was not built."""
    world = World(instance, on_new_upstream_data(), partitions=partitions)
    world.tick(at=now)
    world.drain(yesterday(), today())
    requested = world.tick(at=now)
    assert world.build(*requested & keys(today()))
    world.during = fail
    assert not world.build(*requested - keys(today()))
    return world


def fail() -> None:
    raise ValueError("no such column")


@pytest.mark.parametrize("partitions", [DAILY, None], ids=["dates", "the whole table"])
def test_a_failed_date_is_requested_again_at_the_full_hour_until_it_succeeds(
    instance: DagsterInstance, now: datetime, next_hour: datetime, partitions: dg.PartitionsDefinition[str] | None
) -> None:
    world = a_world_with_a_failed_run(instance, now, partitions=partitions)

    soon = world.tick(at=now)
    at_the_hour = world.tick(at=next_hour + SECONDS)
    after_it = world.tick(at=next_hour + 2 * SECONDS)
    assert not world.build(*at_the_hour)
    an_hour_later = world.tick(at=next_hour + timedelta(hours=1))
    world.during = lambda: None
    assert world.build(*an_hour_later)
    last = world.tick(at=next_hour + timedelta(hours=2))

    failed = {yesterday().isoformat() if partitions else None}
    assert (soon, at_the_hour, after_it) == (set(), failed, set())
    assert (an_hour_later, last) == (failed, set())


def test_new_data_does_not_wait_for_the_hour_which_can_be_exchanged_by_its_label(
    instance: DagsterInstance, now: datetime, next_hour: datetime
) -> None:
    world = a_world_with_a_failed_run(instance, now)
    world.condition = on_new_upstream_data().replace(FAILED, AutomationCondition.cron_tick_passed("0 0 1 1 *"))

    assert world.tick(at=next_hour + SECONDS) == set()
    world.drain(yesterday())
    assert world.tick(at=next_hour + 2 * SECONDS) == keys(yesterday())


def test_a_failed_audit_holds_every_date_until_one_passes_and_then_all_are_requested(world: World) -> None:
    world.drain(OLD)
    requested = [world.tick()]
    world.drain(yesterday())
    world.audit(complete=False)
    requested.append(world.tick())
    world.drain(today())
    requested.append(world.tick())
    world.audit(complete=True)
    requested += [world.tick(), world.tick()]

    assert requested == [keys(OLD), set(), set(), keys(yesterday(), today()), set()]


def test_an_audit_holds_until_it_came_to_a_verdict_and_one_that_crashed_until_the_next_drain(world: World) -> None:
    while_it_works: list[Found] = []
    world.drain(OLD)
    world.audit(complete=True, during=lambda: while_it_works.append(world.tick()))
    then = world.tick()
    world.drain(OLD)
    world.crash_the_audit()
    crashed = world.tick()
    world.drain(today())

    assert (while_it_works, then) == ([set()], keys(OLD))
    assert (crashed, world.tick()) == (set(), keys(OLD, today()))


def test_a_hold_ends_neither_while_the_next_audit_works_nor_when_it_crashed(world: World) -> None:
    requested: list[Found] = []
    world.audit(complete=False)
    world.drain(OLD)

    world.audit(complete=False, during=lambda: requested.append(world.tick()))
    world.crash_the_audit()
    requested.append(world.tick())
    world.drain(today())
    requested.append(world.tick())

    assert requested == [set()] * 3


def test_what_a_sensor_tells_late_does_not_end_a_hold(world: World) -> None:
    world.audit(complete=False)

    (failure,) = failed_blocking_checks(world.instance, BRONZE)
    world.instance.report_runless_asset_event(failure)
    late = dg.AssetMaterialization(table_key(BRONZE), partition=str(today()))
    world.instance.report_runless_asset_event(late)

    assert world.tick() == set()


def test_a_drain_shows_the_failure_that_stands_and_who_found_it(world: World) -> None:
    world.drain(OLD)
    unaudited = failed_blocking_checks(world.instance, BRONZE)

    world.audit(complete=False)
    world.drain(OLD)
    (first,) = failed_blocking_checks(world.instance, BRONZE)
    world.drain(OLD)
    (again,) = failed_blocking_checks(world.instance, BRONZE)
    world.audit(complete=True)

    assert unaudited == failed_blocking_checks(world.instance, BRONZE) == []
    assert first.metadata[CHECKED_BY] == again.metadata[CHECKED_BY]
    assert first.metadata["offsets"] == again.metadata["offsets"]


def test_a_check_that_does_not_block_holds_nothing(instance: DagsterInstance) -> None:
    @dg.asset_check(asset=table_key(BRONZE))
    def plausible() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False)

    world = World(instance, on_new_upstream_data(), checks=[plausible])
    world.tick()
    world.drain(today())
    assert dg.materialize([plausible], instance=instance).success

    assert world.tick() == keys(today())
