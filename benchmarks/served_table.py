"""The speed of serving a table from PostgreSQL: a first load, updates of a fifth of the rows, and new rows.

Server, Spark and this process share the machine. After each step the sums of both tables are compared.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rich.table import Table

from benchmarks.harness import console, measured, medians, option_parser, own_session
from kdi_assets.documents.model.served_table import Postgres, ServedTableSpec
from kdi_assets.follow.serve.postgres.embedded import EmbeddedPostgres, start_postgres
from kdi_assets.follow.serve.report import ServeReport
from kdi_assets.follow.serve.serve import serve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOAL_ROWS_PER_SECOND = 50_000
ROW = """id, concat('host-', id % 1000, '.example.com') AS host, date_add(DATE'2026-01-01', int(id % 365)) AS day,
  id * 3 AS requests, cast(id * 1.25 AS decimal(18, 2)) AS bytes, timestamp_micros(1760000000000000 + id) AS at,
  id / 7.0D AS rate, concat('/a/b/c/', md5(cast(id AS string))) AS path"""


@dataclass(frozen=True, slots=True)
class Step:
    """One measured step."""

    name: str
    rows: int
    seconds: float
    publish_seconds: float
    jvm_cpu_seconds: float

    @property
    def rows_per_second(self) -> float:
        """Of the whole step, reading and publishing."""
        return self.rows / self.seconds


@dataclass(frozen=True, slots=True)
class Site:
    """A Delta table, and the server that serves it."""

    spark: SparkSession
    lake: str
    server: EmbeddedPostgres

    def delta(self, name: str) -> str:
        """The Delta table's name in SQL."""
        return f"delta.`{self.lake}/gold/{name}`"

    def create(self, name: str, rows: int) -> ServedTableSpec:
        """Create a Delta table, to be served."""
        feed = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        self.spark.sql(f"CREATE TABLE {self.delta(name)} USING delta {feed} AS SELECT {ROW} FROM range({rows})")  # noqa: S608
        return ServedTableSpec(table=f"gold/{name}", into=Postgres(table=name, url=self.server.url), keys=("id",))

    def served(self, table: ServedTableSpec) -> ServeReport:
        """Serve what changed."""
        return serve(table, lake=self.lake, session=lambda: self.spark)

    def measured(self, name: str, table: ServedTableSpec) -> Step:
        """Serve what changed, and compare the sums."""
        report, cost = measured(self.spark, lambda: self.served(table))
        self._compare(table)
        return Step(name, report.upserted, report.seconds, report.publish_seconds, cost.cpu_seconds)

    def _compare(self, table: ServedTableSpec) -> None:
        import psycopg

        sums = "SELECT count(*), sum(id), sum(requests), sum(bytes) FROM"
        name = table.table.rpartition("/")[2]
        with psycopg.connect(self.server.url) as connection:
            theirs: Any = connection.execute(f"{sums} {name}".encode()).fetchone()
        ours = tuple(self.spark.sql(f"{sums} {self.delta(name)}").collect()[0])
        if tuple(theirs) != ours:
            raise AssertionError(f"{name}: {theirs} served of {ours}")


def measure(site: Site, *, rows: int, changes: int, rounds: int) -> list[Step]:
    """A warm-up with a tenth of the rows, then ``rounds`` of each step."""
    small = site.create("warm_up", rows // 10)
    site.served(small)
    site.spark.sql(f"UPDATE {site.delta('warm_up')} SET requests = 0 WHERE id % 5 = 0")  # noqa: S608
    site.served(small)
    steps = []
    for number in range(rounds):
        table = site.create(f"loaded_{number}", rows)
        steps.append(site.measured(f"first load of {rows:,} rows", table))
    every = rows // changes
    for number in range(rounds):
        where = f"id % {every} = {number % every}"
        site.spark.sql(f"UPDATE {site.delta('loaded_0')} SET requests = requests + 1 WHERE {where}")  # noqa: S608
        steps.append(site.measured(f"{changes:,} updates", _served("loaded_0", site)))
    for number in range(rounds):
        first = rows + number * changes
        site.spark.sql(f"INSERT INTO {site.delta('loaded_0')} SELECT {ROW} FROM range({first}, {first + changes})")  # noqa: S608
        steps.append(site.measured(f"{changes:,} new rows", _served("loaded_0", site)))
    return steps


def _served(name: str, site: Site) -> ServedTableSpec:
    return ServedTableSpec(table=f"gold/{name}", into=Postgres(table=name, url=site.server.url), keys=("id",))


def show(steps: list[Step]) -> None:
    """Print the medians of each kind of step."""
    table = Table("step", "rounds", "rows/s", "wall s", "of it publishing, s", "CPU s of the JVM", "goal")
    for name in dict.fromkeys(step.name for step in steps):
        of = [step for step in steps if step.name == name]
        (speed,) = medians(of, "rows_per_second")
        goal = "met" if speed >= GOAL_ROWS_PER_SECOND else "missed"
        values = [f"{figure:.2f}" for figure in medians(of, "seconds", "publish_seconds", "jvm_cpu_seconds")]
        table.add_row(name, str(len(of)), f"{speed:,.0f}", *values, goal)
    console.print(table)


def main() -> None:
    """Measure, and print a table."""
    parser = option_parser("served_table", __doc__, rounds=3)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=200_000)
    options = parser.parse_args()
    console.print(f"load average before: {os.getloadavg()[0]:.1f}")
    with TemporaryDirectory(prefix="kdi-served-") as folder:
        # Spark reads and writes under the same folder as the server, whose user pgserver chooses.
        lake = Path(folder) / "lake"
        server = start_postgres(Path(folder) / "data")
        try:
            with own_session(lake, master="local[2]", config={"spark.driver.memory": "2g"}) as spark:
                began, site = time.monotonic(), Site(spark, str(lake), server)
                show(measure(site, rows=options.rows, changes=options.changes, rounds=options.rounds))
            console.print(f"{time.monotonic() - began:.0f} s in all; load average after: {os.getloadavg()[0]:.1f}")
        finally:
            server.stop()


if __name__ == "__main__":
    main()
