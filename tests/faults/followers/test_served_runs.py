"""Runs of served tables that are killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from random import Random
from threading import Thread

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.served_table import ServedTableSpec
from kdi_assets.follow.serve.serve import serve
from kdi_assets.runtime.spark import close_session, open_session
from kdi_assets.settings import Settings
from tests.faults.doomed_drain import MISSED, in_a_process
from tests.faults.warm_driver import JVM_OPTIONS
from tests.tables.served import ServedDelta

POINTS = ("planned", "staged", "publishing", "published")


@pytest.fixture
def numbers(spark: SparkSession, lake: str, url: str) -> ServedDelta:
    """A table of 1,000 rows, served once."""
    made = ServedDelta.create(spark, lake, url)
    made.sql("INSERT INTO {t} SELECT id, id, concat('name ', id) FROM range(1000)")
    made.serve()
    return made


def serve_until(point: str, seconds: float, served: ServedTableSpec, settings: Settings) -> None:
    """In a process of its own: kill it at a point, or after some seconds."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.update(JVM_OPTIONS)
    session = open_session(settings, app_name="doomed")

    def at(reached: str) -> None:
        if reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    def after_a_while() -> None:
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    if not point:
        Thread(target=after_a_while, daemon=True).start()
    serve(served, lake=settings.lake, session=lambda: session, at=at)
    close_session(session)
    os._exit(MISSED)


@pytest.mark.parametrize("point", POINTS)
def test_a_run_that_is_killed_published_everything_or_nothing(
    numbers: ServedDelta, lake: str, warm_home: Path, point: str
) -> None:
    """Purpose: rows and consumed version are one transaction; a staging table must not outlive its run for long.
    Procedure: SIGKILL when rows are staged, before the commit, after it; then another run.
    Pass: after the kill the database has the old version, or the new one if it was killed after the commit; after the
    next run it has the new one, and no staging table is left.
    """
    numbers.sql("UPDATE {t} SET n = -n WHERE id < 300")
    numbers.sql("DELETE FROM {t} WHERE id >= 900")
    before = numbers.rows()

    code = in_a_process(serve_until, point, 0.0, numbers.served, Settings(warm_home, lake, driver="shared"))

    assert code == -signal.SIGKILL
    if point == "published":
        numbers.assert_served()
    else:
        assert (numbers.rows(), numbers.consumed()) == (before, 1)
    report = numbers.serve()
    assert report.kind == ("nothing" if point == "published" else "changes")
    numbers.assert_served()


def test_runs_that_are_killed_at_random_leave_the_rows_of_a_version(
    numbers: ServedDelta, lake: str, warm_home: Path, pytestconfig: pytest.Config
) -> None:
    """Pass: after each of 6 kills the sum is that of a version that was committed; after the last run the newest."""
    random = Random(pytestconfig.getoption("--seed"))
    sums = {(1, sum(row["n"] for row in numbers.rows().values()))}
    settings = Settings(warm_home, lake, driver="shared")

    for _ in range(6):
        numbers.sql(f"UPDATE {{t}} SET n = n + 1000 WHERE id % 7 = {random.randrange(7)}")
        total = numbers.sql("SELECT sum(n) FROM {t}").collect()[0][0]
        sums.add((numbers.version(), total))
        code = in_a_process(serve_until, "", random.uniform(0.1, 2.5), numbers.served, settings)
        assert code in (-signal.SIGKILL, MISSED)
        assert (numbers.consumed(), sum(row["n"] for row in numbers.rows().values())) in sums

    numbers.serve()
    numbers.assert_served()
