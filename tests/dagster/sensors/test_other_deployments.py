"""Two Dagster instances on one lake: each says that the other one drains its streams, and by which commit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterInstance

from kdi_assets.components.names import table_key
from kdi_assets.sensors.memory import OtherDrain, read_cursor
from tests.dagster.fakes import events, unfinished_run
from tests.dagster.sensors.scripted_cluster import ORDERS, Cluster
from tests.table_by_hand import TableByHand

pytestmark = pytest.mark.usefixtures("lake_in_environment")


@dataclass
class Deployment:
    """A Dagster instance with the lag sensor; ``place`` is what its runs record."""

    instance: DagsterInstance
    table: TableByHand
    place: str

    def __post_init__(self) -> None:
        self.cluster = Cluster(self.instance, streams=(ORDERS,))

    def drain(self) -> str:
        """A run of this instance commits; the id of the run."""
        run = unfinished_run(self.instance, ORDERS, status="SUCCESS")
        self.table.drain(run_id=run.run_id, deployment=self.place)
        return run.run_id

    def tick(self) -> str:
        """What a tick says; its events are stored, as the daemon stores them."""
        data = self.cluster.tick()
        for event in data.asset_events:
            self.instance.report_runless_asset_event(event)
        return data.skip_message or ""

    @property
    def other(self) -> OtherDrain | None:
        """What the cursor keeps."""
        return read_cursor(self.cluster.cursor).of(ORDERS.name).other


@pytest.fixture
def production(instance: DagsterInstance, lake: str) -> Deployment:
    return Deployment(instance, TableByHand(lake), "lake-1:/var/lib/kdi/dagster")


@pytest.fixture
def laptop(production: Deployment, _migrated_home: Path, tmp_path: Path) -> Iterator[Deployment]:
    home = shutil.copytree(_migrated_home, tmp_path / "laptop")
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        yield Deployment(instance, production.table, "annas-laptop:/home/anna/dagster")


@pytest.mark.core
def test_each_of_two_deployments_says_where_the_other_is_and_what_it_committed(
    production: Deployment, laptop: Deployment
) -> None:
    said_first = production.tick(), laptop.tick()
    of_production, of_laptop = production.drain(), laptop.drain()

    by_production, by_laptop = production.tick(), laptop.tick()

    assert "another deployment" not in "".join(said_first)
    assert f"another deployment, {laptop.place}, drains bronze/orders too" in by_production
    assert f"v2 of bronze/orders by run {of_laptop}, seen " in by_production
    assert f"another deployment, {production.place}, drains bronze/orders too" in by_laptop
    assert f"v1 of bronze/orders by run {of_production}" in by_laptop
    assert "Set KDI_AUTOMATION=off in one of the two" in by_production
    # Each instance has the events of all commits, whoever made them.
    for deployment in (production, laptop):
        assert events(deployment.instance, table_key(ORDERS))


def test_own_runs_and_commands_are_no_other_deployment(production: Deployment) -> None:
    production.tick()

    production.drain()
    production.table.drain(deployment="annas-laptop:/home/anna/.kdi")  # `kdi drain` has no run

    assert "another deployment" not in production.tick()
    assert production.other is None


def test_commits_from_before_the_first_look_are_history_however_many_ticks_it_takes_to_read_them(
    production: Deployment, laptop: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster's database was made anew, or a deployment moved to another instance."""
    monkeypatch.setattr("kdi_assets.sensors.table_log.COMMITS_PER_TICK", 2)
    for _ in range(5):
        laptop.drain()

    said = [production.tick() for _ in range(4)]

    assert "another deployment" not in "".join(said)
    assert read_cursor(production.cluster.cursor).of(ORDERS.name).reconciled == 5


def test_another_deployment_is_seen_while_an_own_run_is_in_flight(production: Deployment, laptop: Deployment) -> None:
    production.tick()
    unfinished_run(production.instance, ORDERS)

    laptop.drain()

    assert laptop.place in production.tick()


def test_a_commit_of_an_older_release_names_the_run_and_no_host(production: Deployment) -> None:
    production.tick()

    production.table.drain(run_id="a-run-of-another-instance")

    assert "an unknown host (its release is older), drains bronze/orders too" in production.tick()


def test_a_commit_is_told_with_its_age_until_an_hour_has_passed_and_not_as_new_at_each_tick(
    production: Deployment, laptop: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 1e9
    monkeypatch.setattr("time.time", lambda: clock)
    production.tick()
    laptop.drain()
    production.tick()

    clock += 3500
    production.tick()
    told = production.other
    clock += 200
    production.tick()

    assert told and (told.version, told.deployment, told.seen) == (1, laptop.place, 1_000_000_000)
    assert production.other is None
