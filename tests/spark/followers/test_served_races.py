"""Runs of a served table that race, lose their database, or are watched by readers."""

from __future__ import annotations

from threading import Event, Thread
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from kdi_assets.follow.serve.errors import AnotherServeRunActive, DatabaseUnavailable
from tests.tables.served import ROWS, ServedDelta, on_reaching, running_server

pytestmark = pytest.mark.usefixtures("interpreted_module")


@pytest.mark.parametrize("point", ["staged", "publishing"])
def test_of_two_runs_one_publishes_and_the_other_finds_nothing_left(numbers: ServedDelta, point: str) -> None:
    """Purpose: both plan from the same version; the second must not apply its changes to the rows of the first.
    Procedure: a second run starts when the first has staged, or holds the lock in its transaction, and runs to its end.
    Pass: one of them publishes 10 updates, the other reports nothing; rows and version are right.
    """
    numbers.serve()
    numbers.sql("UPDATE {t} SET n = n + 1 WHERE id < 10")
    reports: dict[str, Any] = {}
    second = Thread(target=lambda: reports.update(second=numbers.serve()))

    def start_second() -> None:
        second.start()
        if point == "staged":
            second.join(60)
        else:  # until it waits for the lock of the first one
            waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%FOR UPDATE'"
            while not numbers.query(waiting):
                assert second.is_alive()

    reports["first"] = numbers.serve(at=on_reaching(point, start_second))
    second.join(60)

    assert sorted((r.kind, r.upserted) for r in reports.values()) == [("changes", 10), ("nothing", 0)]
    assert reports["first"].kind == ("nothing" if point == "staged" else "changes")
    numbers.assert_served()


@pytest.mark.parametrize("point", ["consumed version read", "planned", "staged"])
def test_a_first_run_that_another_one_overtakes_takes_the_table_for_ours(numbers: ServedDelta, point: str) -> None:
    """Pass: the one that lost plans again, and nobody is told to drop the table."""
    report = numbers.serve(at=on_reaching(point, numbers.serve))

    assert report.kind == "nothing"
    numbers.assert_served()


def test_a_run_that_loses_every_race_says_so(numbers: ServedDelta) -> None:
    def overtake(point: str) -> None:
        if point == "staged":
            numbers.serve(at=lambda _: None)
            numbers.sql("UPDATE {t} SET n = n + 1 WHERE id = 1")

    with pytest.raises(AnotherServeRunActive):
        numbers.serve(at=overtake)

    numbers.serve()
    numbers.assert_served()


def test_an_attempt_whose_connection_ends_publishes_nothing_and_the_next_one_cleans_up(numbers: ServedDelta) -> None:
    """Procedure: the database ends the run's session when the rows are staged, and in another run before the commit.
    Pass: a Transient, no row changed, the staging table is left, and gone after the next run; a living attempt keeps
    its staging table.
    """
    numbers.serve()
    numbers.sql("DELETE FROM {t} WHERE id < 50")
    left = []

    def end_session() -> None:
        left.append(numbers.staging_tables())
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kdi serve'"
        numbers.query(end)

    for point in ("staged", "publishing"):
        with pytest.raises(DatabaseUnavailable):
            numbers.serve(at=on_reaching(point, end_session))
        assert (len(numbers.rows()), numbers.consumed()) == (100, 1)

    assert len(left[0]) == 2 and left[0] == sorted(set(left[0]))
    seen: list[list[str]] = []
    numbers.serve(at=on_reaching("staged", lambda: seen.append(numbers.staging_tables())))
    assert len(seen[0]) == 2 and not set(seen[0]) & {name for names in left for name in names}
    numbers.assert_served()


def test_a_database_that_is_down_is_transient_and_caught_up_later(spark: SparkSession, lake: str) -> None:
    from kdi_assets.follow.serve.postgres.embedded import start_postgres

    with running_server() as server:
        numbers = ServedDelta.create(spark, lake, server.url)
        numbers.sql(ROWS % 100)
        numbers.serve()
        data = server.data
        server.stop()
        numbers.sql("DELETE FROM {t} WHERE id < 50")
        numbers.sql(ROWS % 20)

        with pytest.raises(DatabaseUnavailable):
            numbers.serve()

        again = start_postgres(data)
        try:
            report = numbers.serve()
            assert (report.kind, report.upserted, report.deleted) == ("changes", 20, 30)
            numbers.assert_served()
        finally:
            again.stop()


def test_a_reader_never_sees_half_a_version(numbers: ServedDelta) -> None:
    """Purpose: rows become visible together, in updates, a difference and a table that is replaced.
    Procedure: readers, one per isolation level, sum up the table in a loop while versions are served.
    Pass: each sum is that of one version, they saw several, and none went back to an older one.
    """
    numbers.serve()
    sums: list[int] = [sum(row["n"] for row in numbers.rows().values())]
    seen: dict[str, list[int]] = {"READ COMMITTED": [], "REPEATABLE READ": []}
    stop = Event()

    def read(level: str) -> None:
        with psycopg.connect(numbers.url) as connection:
            while not stop.is_set():
                with connection.transaction():
                    connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
                    row = connection.execute("SELECT sum(n), count(*) FROM test.numbers").fetchone()
                assert row is not None
                seen[level].append(int(row[0]))

    readers = [Thread(target=read, args=[level], daemon=True) for level in seen]
    for reader in readers:
        reader.start()
    for step in range(6):
        numbers.sql(f"UPDATE {{t}} SET n = n + {10 ** (step + 3)} WHERE id % 3 = {step % 3}")
        numbers.sql(f"DELETE FROM {{t}} WHERE id = {step}")
        numbers.serve(rebuild=step % 3 == 2)
        sums.append(sum(row["n"] for row in numbers.rows().values()))
    stop.set()
    for reader in readers:
        reader.join(30)

    numbers.assert_served()
    for level, found in seen.items():
        order = [sums.index(one) for one in found]  # raises if it is no version's sum
        assert order == sorted(order), level
        assert len(set(order)) > 3
