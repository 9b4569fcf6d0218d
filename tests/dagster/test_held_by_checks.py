"""A failed blocking check holds what is built on the table, and what was held is built later."""

from __future__ import annotations

from datetime import date

import dagster as dg
from dagster import DagsterInstance

from kdi_assets.components.asset_checks import CHECKED_BY, standing_failures
from kdi_assets.components.names import table_key
from kdi_assets.downstream import on_new_upstream_data
from tests.dagster.built_on_bronze import BRONZE, World
from tests.dagster.fakes import today, yesterday

OLD = date(2021, 3, 4)


def test_a_failed_audit_holds_every_date_until_one_passes_and_then_all_are_requested(instance: DagsterInstance) -> None:
    world = World(instance, on_new_upstream_data())
    world.tick()
    world.drain(OLD)
    requested = [world.tick()]
    world.drain(yesterday())
    world.audit(complete=False)
    requested.append(world.tick())
    world.drain(today())
    requested.append(world.tick())
    world.audit(complete=True)
    requested += [world.tick(), world.tick()]

    both = {yesterday().isoformat(), today().isoformat()}
    assert requested == [{OLD.isoformat()}, set(), set(), both, set()]


def test_an_audit_holds_until_it_came_to_a_verdict(instance: DagsterInstance) -> None:
    world, while_it_works = World(instance, on_new_upstream_data()), list[set[str | None]]()
    world.tick()
    world.drain(OLD)

    world.audit(complete=True, during=lambda: while_it_works.append(world.tick()))

    assert (while_it_works, world.tick()) == ([set()], {OLD.isoformat()})


def test_an_audit_that_crashed_holds_until_the_next_drain(instance: DagsterInstance) -> None:
    world = World(instance, on_new_upstream_data())
    world.tick()
    world.drain(OLD)

    world.crash_the_audit()
    crashed = world.tick()
    world.drain(today())

    assert (crashed, world.tick()) == (set(), {OLD.isoformat(), today().isoformat()})


def test_a_hold_ends_neither_while_the_next_audit_works_nor_when_it_crashed(instance: DagsterInstance) -> None:
    world, requested = World(instance, on_new_upstream_data()), list[set[str | None]]()
    world.tick()
    world.audit(complete=False)
    world.drain(OLD)

    world.audit(complete=False, during=lambda: requested.append(world.tick()))
    world.crash_the_audit()
    requested.append(world.tick())
    world.drain(today())
    requested.append(world.tick())

    assert requested == [set()] * 3


def test_what_a_sensor_tells_late_does_not_end_a_hold(instance: DagsterInstance) -> None:
    world = World(instance, on_new_upstream_data())
    world.tick()
    world.audit(complete=False)

    (failure,) = standing_failures(instance, BRONZE)
    instance.report_runless_asset_event(failure)
    instance.report_runless_asset_event(dg.AssetMaterialization(table_key(BRONZE), partition=str(today())))

    assert world.tick() == set()


def test_a_drain_shows_the_failure_that_stands_and_who_found_it(instance: DagsterInstance) -> None:
    world = World(instance, on_new_upstream_data())
    world.drain(OLD)
    unaudited = standing_failures(instance, BRONZE)

    world.audit(complete=False)
    world.drain(OLD)
    (first,) = standing_failures(instance, BRONZE)
    world.drain(OLD)
    (again,) = standing_failures(instance, BRONZE)
    world.audit(complete=True)

    assert unaudited == standing_failures(instance, BRONZE) == []
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

    assert world.tick() == {today().isoformat()}
