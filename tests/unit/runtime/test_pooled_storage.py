"""A deployment's Dagster keeps its connections to PostgreSQL, and survives what ends them."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Barrier
from typing import Any, cast
from unittest.mock import patch

import psutil
import psycopg2
import pytest
import yaml
from dagster import DagsterRunStatus, RunsFilter
from dagster._core.instance.ref import InstanceRef
from dagster._core.storage.base_storage import DagsterStorage
from dagster_postgres import PostgresEventLogStorage, PostgresRunStorage
from sqlalchemy import event
from sqlalchemy.engine import Engine

from kdi_assets.resources.pooled_storage import KEPT_CONNECTIONS, MAX_CONNECTIONS, PooledPostgresStorage
from kdi_assets.sensors.waiting import DAEMON_THREADS
from tests.deployment.deployed import DEPLOY, running_postgres

Opened = Callable[[], DagsterStorage]
QUERIES = 5
THREADS = 2 * MAX_CONNECTIONS


@pytest.fixture(scope="module")
def postgres() -> Iterator[Mapping[str, str]]:
    with running_postgres() as address, patch.dict("os.environ", address):
        yield address


@pytest.fixture
def opened(tmp_path: Path, postgres: Mapping[str, str]) -> Opened:
    """Opens the storage of one more instance, as a deployment's dagster.yaml has it."""
    storage = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())["storage"]
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump({"storage": storage}))
    of_home = InstanceRef.from_dir(str(tmp_path))
    return lambda: cast(DagsterStorage, of_home.storage)


def test_the_daemon_of_a_deployment_has_threads_for_ticks_that_wait_and_two_connections_for_each() -> None:
    """compose, chart and Terraform take their settings from this file."""
    dagster = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())
    sensors, connections = dagster["sensors"], dagster["storage"]["custom"]["config"]["max_connections"]

    assert sensors["use_threads"] is True
    assert DAEMON_THREADS <= sensors["num_workers"] <= connections / 2
    assert connections == MAX_CONNECTIONS


def backends() -> set[int]:
    """The processes of PostgreSQL that serve connections to Dagster's database."""
    with closing(psycopg2.connect("")) as connection:
        cursor = connection.cursor()
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return {pid for (pid,) in cursor.fetchall()}


def lasting_backends() -> set[int]:
    """The same without those of closed connections, which take a moment to end."""
    found = backends()
    for _ in range(30):
        time.sleep(0.3)
        before, found = found, found & backends()
        if found == before:
            break
    return found


def use(storage: DagsterStorage) -> None:
    """Queries of each of the three parts."""
    storage.run_storage.get_runs_count()
    storage.run_storage.get_run_records(RunsFilter(statuses=[DagsterRunStatus.STARTED]))
    storage.event_log_storage.all_asset_keys()
    storage.schedule_storage.all_instigator_state()
    storage.schedule_storage.get_instigator_state("origin", "selector")


def test_instances_that_come_and_go_share_a_few_connections(opened: Opened) -> None:
    """Purpose: the code server opens an instance for each tick; none of them is to open connections of its own.
    Procedure: open the deployment's instance again and again, two at a time, and query each of its storages.
    Pass: the connections of the first are those of the last, and no more than a pool keeps.
    """
    first, second = opened(), opened()
    assert isinstance(first, PooledPostgresStorage)
    assert first is not second
    for _ in range(KEPT_CONNECTIONS):
        use(first)
        use(second)
    kept = lasting_backends()

    for _ in range(20):
        use(opened())

    assert lasting_backends() == kept
    assert 1 <= len(kept) <= KEPT_CONNECTIONS


def test_what_is_there_of_the_schema_is_looked_for_once_in_a_process(opened: Opened) -> None:
    """Purpose: Dagster looks for tables, columns and indexes before many queries, which costs more than the queries.
    Procedure: use an instance as a tick does; then another one, and note the statements.
    Pass: the other one asks neither the catalog nor the list of migrations.
    """
    use(opened())
    statements: list[str] = []

    def note(connection: object, cursor: object, statement: str, *more: object) -> None:
        statements.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        use(opened())
    finally:
        event.remove(Engine, "before_cursor_execute", note)

    assert len(statements) >= QUERIES
    assert not [s for s in statements if "pg_catalog" in s or "secondary_indexes" in s]


def test_a_part_of_the_schema_that_is_missing_is_looked_for_again(opened: Opened) -> None:
    with closing(psycopg2.connect("")) as connection:
        connection.autocommit = True
        events = cast(PostgresEventLogStorage, opened().event_log_storage)
        assert not events.has_table("later")

        connection.cursor().execute("CREATE TABLE later ()")

        assert events.has_table("later")


@pytest.mark.parametrize("share", ["one", "all"])
def test_the_next_query_works_after_the_database_ended_connections(opened: Opened, share: str) -> None:
    storage = opened()
    use(storage)
    before = backends()

    for pid in [*before] if share == "all" else [*before][:1]:  # all: as when it is restarted
        end_process(pid)
    use(storage)
    use(storage)

    assert backends() - before, "a new connection took the place"


def test_a_host_that_is_gone_is_noticed_within_a_minute(opened: Opened) -> None:
    """Such a host ends no connection: PostgreSQL's client must notice. It is asked what it goes by."""
    engines: list[Engine] = []
    event.listen(Engine, "engine_connect", remember := lambda connection: engines.append(connection.engine))
    try:
        use(opened())
    finally:
        event.remove(Engine, "engine_connect", remember)

    with engines[-1].connect() as connection:  # the first may be those by which Dagster makes its tables
        goes_by = cast(Any, connection.connection.dbapi_connection).get_dsn_parameters()
    assert (goes_by["tcp_user_timeout"], goes_by["keepalives_idle"]) == ("30000", "30")


def test_a_process_that_was_forked_has_connections_of_its_own(opened: Opened) -> None:
    """Purpose: parent and child on one connection would read each other's answers.
    Procedure: fork with connections open; the child queries and exits; the parent queries.
    Pass: both get answers; the child had other processes of PostgreSQL than the parent.
    """
    storage = opened()
    use(storage)
    of_parent = lasting_backends()
    forks = multiprocessing.get_context("fork")
    receiver, sender = forks.Pipe(duplex=False)

    def child() -> None:
        use(storage)
        sender.send(backends())

    process = forks.Process(target=child)
    process.start()
    process.join(60)

    assert process.exitcode == 0
    in_child: set[int] = receiver.recv()
    assert of_parent < in_child, "the parent's connections stay, the child has others"
    use(storage)
    assert of_parent <= backends(), "the child's end did not end them"


def test_many_threads_wait_for_a_connection_and_all_get_one(opened: Opened) -> None:
    """Purpose: PostgreSQL refuses connections beyond its own maximum; a process must not take them all.
    Procedure: twice as many threads as connections are allowed; each starts transactions at the same moment.
    Pass: every thread has its answer; there were never more connections than allowed.
    """
    runs, most, together = opened().run_storage, [0], Barrier(THREADS)

    def work(number: int) -> str:
        together.wait(30)
        runs.set_cursor_values({f"thread {number}": str(number)})
        most.append(len(backends()) if number % 8 == 0 else 0)
        return runs.get_cursor_values({f"thread {number}"})[f"thread {number}"]

    with ThreadPoolExecutor(THREADS) as threads:
        answers = list(threads.map(work, range(THREADS)))

    assert answers == [str(number) for number in range(THREADS)]
    assert 1 <= max(most) <= MAX_CONNECTIONS + THREADS / 8, "beside those that count them"
    assert len(lasting_backends()) <= KEPT_CONNECTIONS


def test_a_daemon_with_more_threads_has_more_connections(tmp_path: Path, postgres: Mapping[str, str]) -> None:
    """A connection beyond the maximum would wait for half a minute, and then be an error."""
    storage = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())["storage"]
    storage["custom"]["config"]["max_connections"] = MAX_CONNECTIONS + 8
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump({"storage": storage}))
    runs = cast(DagsterStorage, InstanceRef.from_dir(str(tmp_path)).storage).run_storage
    assert isinstance(runs, PostgresRunStorage)

    with ExitStack() as together:
        connections = [together.enter_context(runs.connect()) for _ in range(MAX_CONNECTIONS + 8)]

    assert len(connections) == MAX_CONNECTIONS + 8


def test_another_database_has_a_pool_of_its_own(opened: Opened) -> None:
    with closing(psycopg2.connect("")) as connection:
        connection.autocommit = True
        connection.cursor().execute("CREATE DATABASE other")
    here = opened().run_storage
    here.set_cursor_values({"where": "here"})

    with patch.dict("os.environ", {"PGDATABASE": "other"}):
        other = opened().run_storage

        assert other.get_cursor_values({"where"}) == {}
    assert here.get_cursor_values({"where"}) == {"where": "here"}


def end_process(pid: int) -> None:
    """End a process of PostgreSQL as its shutdown does."""
    process = psutil.Process(pid)
    process.send_signal(signal.SIGTERM)
    process.wait(20)
