"""What becomes of a date whose run failed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from dagster import AutomationCondition, DagsterInstance

from kdi_assets.downstream import FAILED, on_new_upstream_data
from tests.dagster.built_on_bronze import DAILY, World
from tests.dagster.fakes import today, yesterday

SECONDS = timedelta(seconds=5)


@pytest.fixture
def now() -> datetime:
    """The ticks' own clock: a full hour that passed while a test runs would be one more."""
    return datetime.now(UTC)


@pytest.fixture
def next_hour(now: datetime) -> datetime:
    return (now + timedelta(hours=1)).replace(minute=0, second=0, microsecond=0)


def a_world_with_a_failed_run(
    instance: DagsterInstance, now: datetime, *, partitions: dg.PartitionsDefinition[str] | None = DAILY
) -> World:
    """Two dates, of which one was built; where there are no dates, the whole table was not."""
    world = World(instance, on_new_upstream_data(), partitions=partitions)
    world.tick(at=now)
    world.drain(yesterday(), today())
    requested = world.tick(at=now)
    assert world.build(*requested & {today().isoformat()})
    world.during = fail
    assert not world.build(*requested - {today().isoformat()})
    return world


def fail() -> None:
    raise ValueError("no such column")


@pytest.mark.parametrize("partitions", [DAILY, None], ids=["dates", "the whole table"])
def test_a_failed_date_is_requested_again_at_the_full_hour_until_it_succeeds(
    instance: DagsterInstance,
    now: datetime,
    next_hour: datetime,
    partitions: dg.PartitionsDefinition[str] | None,
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


def test_new_data_does_not_wait_for_the_hour(instance: DagsterInstance, now: datetime) -> None:
    world = a_world_with_a_failed_run(instance, now)

    world.drain(yesterday())

    assert world.tick(at=now) == {yesterday().isoformat()}


def test_the_hour_can_be_exchanged_by_its_label(instance: DagsterInstance, now: datetime, next_hour: datetime) -> None:
    world = a_world_with_a_failed_run(instance, now)
    world.condition = on_new_upstream_data().replace(FAILED, AutomationCondition.cron_tick_passed("0 0 1 1 *"))

    assert world.tick(at=next_hour + SECONDS) == set()
