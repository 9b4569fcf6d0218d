"""What becomes of a date whose run failed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from dagster import AutomationCondition, DagsterInstance

from kdi_assets.downstream import FAILED, on_new_upstream_data
from tests.dagster.built_on_bronze import DAILY, World
from tests.dagster.fakes import TODAY, YESTERDAY

# The ticks' own clock: a full hour that passed while a test runs would be one more.
NOW = datetime.now(UTC)
NEXT_HOUR = (NOW + timedelta(hours=1)).replace(minute=0, second=0, microsecond=0)
SECONDS = timedelta(seconds=5)


def a_world_with_a_failed_run(
    instance: DagsterInstance, *, partitions: dg.PartitionsDefinition[str] | None = DAILY
) -> World:
    """Two dates, of which one was built; where there are no dates, the whole table was not."""
    world = World(instance, on_new_upstream_data(), partitions=partitions)
    world.tick(at=NOW)
    world.drain(YESTERDAY, TODAY)
    requested = world.tick(at=NOW)
    assert world.build(*requested & {TODAY.isoformat()})
    world.during = fail
    assert not world.build(*requested - {TODAY.isoformat()})
    return world


def fail() -> None:
    raise ValueError("no such column")


def succeed() -> None:
    pass


@pytest.mark.parametrize(("partitions", "failed"), [(DAILY, {YESTERDAY.isoformat()}), (None, {None})])
def test_a_failed_date_is_requested_again_at_the_full_hour_until_it_succeeds(
    instance: DagsterInstance, partitions: dg.PartitionsDefinition[str] | None, failed: set[str | None]
) -> None:
    world = a_world_with_a_failed_run(instance, partitions=partitions)

    soon = world.tick(at=NOW)
    at_the_hour = world.tick(at=NEXT_HOUR + SECONDS)
    after_it = world.tick(at=NEXT_HOUR + 2 * SECONDS)
    assert not world.build(*at_the_hour)
    an_hour_later = world.tick(at=NEXT_HOUR + timedelta(hours=1))
    world.during = succeed
    assert world.build(*an_hour_later)
    last = world.tick(at=NEXT_HOUR + timedelta(hours=2))

    assert (soon, at_the_hour, after_it) == (set(), failed, set())
    assert (an_hour_later, last) == (failed, set())


def test_new_data_does_not_wait_for_the_hour(instance: DagsterInstance) -> None:
    world = a_world_with_a_failed_run(instance)

    world.drain(YESTERDAY)

    assert world.tick(at=NOW) == {YESTERDAY.isoformat()}


def test_the_hour_can_be_exchanged_by_its_label(instance: DagsterInstance) -> None:
    world = a_world_with_a_failed_run(instance)
    world.condition = on_new_upstream_data().replace(FAILED, AutomationCondition.cron_tick_passed("0 0 1 1 *"))

    assert world.tick(at=NEXT_HOUR + SECONDS) == set()
