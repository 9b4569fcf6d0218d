"""The follow sensor over tables with a `cron`: a run at each of its times, and again if that failed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dagster import DagsterInstance

from kdi_assets.downstream import on_new_upstream_data
from tests.dagster.built_on_bronze import BRONZE as AUDITED
from tests.dagster.built_on_bronze import World
from tests.dagster.follow_ticks import DECIDE, MISSING, Sensor
from tests.dagster.refined_world import GOLD, SILVER, a_refined_table

pytestmark = pytest.mark.usefixtures("lake_in_environment")


def test_a_table_with_a_cron_is_looked_at_after_each_of_its_times_and_not_before(sensor: Sensor) -> None:
    hourly = a_refined_table(cron="0 * * * *")
    sensor.tables, sensor.behind = (hourly,), {hourly.name}

    first = sensor.tick()
    sensor.later(3600)
    after_the_hour = sensor.selected()
    sensor.versions[hourly.name] = 2
    again = sensor.tick()

    assert (first, after_the_hour, again) == ([], [{hourly.name}], [])


def test_a_failure_that_a_retry_helps_at_the_time_of_a_cron_does_not_wait_for_its_next_time(sensor: Sensor) -> None:
    nightly = a_refined_table(cron="0 3 * * *")
    sensor.tables, sensor.behind = (nightly,), {nightly.name}
    sensor.tick()
    sensor.later(24 * 3600)
    sensor.refusals[nightly.name] = MISSING

    failed = sensor.tick()
    sensor.refusals.clear()
    then = sensor.selected()

    assert (failed, then) == ([], [{nightly.name}])


def test_a_run_of_a_cron_that_fails_is_requested_again_before_its_next_time_and_one_that_commits_is_not(
    sensor: Sensor,
) -> None:
    nightly = a_refined_table(cron="0 3 1 1 *")
    sensor.tables, sensor.behind = (nightly,), {nightly.name}
    sensor.tick()
    sensor.later(366 * 24 * 3600)

    at_its_time = sensor.selected()
    at_once = sensor.selected()
    sensor.later(11)
    after_the_wait = sensor.selected()
    sensor.versions[nightly.name] = 2
    sensor.later(3600)
    committed = sensor.selected()
    sensor.later(3600)
    new_again = sensor.selected()

    assert (at_its_time, at_once, after_the_wait) == ([{nightly.name}], [], [{nightly.name}])
    assert (committed, new_again) == ([], [])


@pytest.mark.parametrize("between", ["a commit without rows", "a refusal", "a refusal that is mended"])
def test_a_run_of_a_cron_that_fails_is_requested_again_whatever_happens_before(sensor: Sensor, between: str) -> None:
    nightly = a_refined_table(cron="0 3 1 1 *")
    sensor.tables, sensor.behind = (nightly,), {nightly.name}
    sensor.tick()
    sensor.later(366 * 24 * 3600)
    if between == "a refusal that is mended":
        sensor.refusals[nightly.name] = DECIDE

    at_its_time = sensor.selected()
    if between == "a refusal":
        sensor.refusals[nightly.name] = DECIDE
    else:
        sensor.other_commits += 1
        sensor.refusals.clear()
    sensor.later(11)

    assert (at_its_time, sensor.selected()) == ([{nightly.name}], [{nightly.name}])


def test_a_clock_that_was_ahead_hides_no_time_of_a_cron_and_no_retry(sensor: Sensor) -> None:
    hourly = a_refined_table(cron="* * * * *")
    sensor.tables, sensor.behind = (hourly, SILVER), {hourly.name, SILVER.name}
    sensor.tick()
    sensor.later(-24 * 3600)
    sensor.tick()  # it counts from now on
    sensor.later(60)

    assert {name for run in sensor.selected() for name in run} >= {hourly.name}


def test_what_is_made_of_a_table_and_has_a_cron_waits_for_it(sensor: Sensor) -> None:
    sensor.tables = (SILVER, replace(GOLD, cron="0 0 1 1 *"))
    sensor.behind = {SILVER.name}

    assert sensor.selected() == [{SILVER.name}]


def test_a_time_of_a_cron_that_meets_a_failed_check_counts_once_the_check_passes(instance: DagsterInstance) -> None:
    nightly = a_refined_table(SILVER.name, AUDITED.table, cron="0 3 1 1 *")
    sensor = Sensor(instance, (nightly,), (AUDITED,), {nightly.name})
    bronze = World(instance, on_new_upstream_data())
    sensor.tick()
    bronze.audit(complete=False)
    sensor.later(366 * 24 * 3600)

    held = sensor.selected()
    bronze.audit(complete=True)
    released = sensor.selected()
    sensor.versions[nightly.name] = 2
    sensor.later(3600)

    assert (held, released, sensor.selected()) == ([], [{nightly.name}], [])
