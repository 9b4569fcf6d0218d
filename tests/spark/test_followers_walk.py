"""A random walk of an upstream table and all that follows it: each follower has what a query of the table gives."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kdi_assets.errors import KdiError
from kdi_assets.serve.serve import serve
from kdi_assets.stream.served_table import DuckDb, Postgres, ServedTableSpec
from tests.interpreted import interpreting
from tests.refined import Lakeside, refined_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UPSTREAM, STEPS = "bronze/numbers", 14
REFINED = {
    "append": ("SELECT id, n, date FROM numbers", "append", "SELECT id, n, date FROM {t}"),
    "replace_dates": (
        "SELECT date, count(*) AS rows, sum(n) AS total FROM numbers GROUP BY date",
        "replace_dates",
        "SELECT date, count(*), sum(n) FROM {t} GROUP BY date",
    ),
    "deduplicate": (
        "SELECT id, n, date FROM numbers",
        {"deduplicate": {"keys": ["n"], "order_by": "id", "window": "90 days"}},
        "SELECT id, n, date FROM {t} QUALIFY n IS NULL OR row_number() OVER (PARTITION BY n ORDER BY date, id) = 1",
    ),
    "aggregate": (
        "SELECT id, n, date FROM numbers",
        {"aggregate": {"by": ["date"], "measures": {"rows": "count", "total": {"sum": "n"}, "most": {"max": "n"}}}},
        "SELECT date, count(*), sum(n), max(n) FROM {t} GROUP BY date",
    ),
    "upsert": (
        "SELECT id % 5 AS k, id, n FROM numbers",
        {"upsert": {"keys": ["k"], "sequence_by": "id"}},
        "SELECT max(id) % 5, max(id), max_by(n, id) FROM {t} GROUP BY id % 5",
    ),
}
"""By mode: the document's query and mode, and a query of the upstream table that gives the rows."""
OF_TABLE = {name: query.partition(" FROM ")[0] for name, (query, _, _) in REFINED.items()} | {
    "deduplicate": "SELECT id, n, date",
    "aggregate": "SELECT date, rows, total, most",
    "replace_dates": "SELECT date, rows, total",
    "upsert": "SELECT k, id, n",
}
PLAIN = ("insert", "insert", "insert", "update", "delete", "merge", "optimize", "restore", "add column")
MAPPED = (*PLAIN, "other values", "swap", "vectors", "constraint")


class World:
    """The upstream table and its followers.

    Attributes:
        mapped: Whether the table has column mapping: columns may be dropped and renamed, and DuckDB does not read it.
    """

    def __init__(self, lakeside: Lakeside, url: str, home: Path, random: Random, *, mapped: bool) -> None:
        self.lakeside, self.url, self.home, self.random, self.mapped = lakeside, url, home, random, mapped
        self.ids, self.columns, self.restorable = 0, 0, 0
        mapping = "name" if mapped else "none"
        self.sql(
            "CREATE TABLE {t} (id bigint, n bigint, m bigint, date date) USING delta PARTITIONED BY (date) "
            f"TBLPROPERTIES (delta.enableChangeDataFeed = {str(random.random() < 0.7).lower()}, "
            f"delta.columnMapping.mode = '{mapping}')"
        )
        self.insert()

    def sql(self, statement: str) -> None:
        self.lakeside.sql(statement, UPSTREAM)

    def insert(self) -> None:
        count = self.random.randint(1, 6)
        first, self.ids = self.ids, self.ids + count
        day = f"date_add(DATE'2026-01-01', int(id % {self.random.randint(1, 4)}))"
        self.sql(
            f"INSERT INTO {{t}} (id, n, m, date) SELECT id, IF(id % 7 = 3, NULL, id % 4), -id, {day} "
            f"FROM range({first}, {self.ids})"
        )

    def step(self) -> str:
        """One random change of the upstream table."""
        what, some = self.random.choice(MAPPED if self.mapped else PLAIN), self.random.randint(2, 5)
        match what:
            case "insert":
                self.insert()
            case "update":
                self.sql(f"UPDATE {{t}} SET n = n + 1 WHERE id % {some} = 0")
            case "delete":
                self.sql(f"DELETE FROM {{t}} WHERE id % {some + 3} = 1")
            case "merge":
                self.sql(
                    f"MERGE INTO {{t}} AS t USING (SELECT id * {some} AS id FROM range(5)) AS s ON t.id = s.id "
                    "WHEN MATCHED AND s.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET n = -s.id"
                )
            case "optimize":
                self.sql("OPTIMIZE {t}")
            case "restore":
                newest = self.lakeside.version(UPSTREAM) if not self.mapped else self._newest()
                version = self.random.randint(min(self.restorable, newest), newest)
                self.sql(f"RESTORE {{t}} TO VERSION AS OF {version}")
            case "add column":
                self.columns += 1
                self.sql(f"ALTER TABLE {{t}} ADD COLUMN extra_{self.columns} bigint")
                self.restorable = self._newest()
            case "other values":
                self.sql("ALTER TABLE {t} DROP COLUMN n")
                self.sql("ALTER TABLE {t} ADD COLUMN n bigint")
                self.restorable = self._newest()
            case "swap":
                for old, new in (("n", "other"), ("m", "n"), ("other", "m")):
                    self.sql(f"ALTER TABLE {{t}} RENAME COLUMN {old} TO {new}")
                self.restorable = self._newest()
            case "vectors":
                self.sql("ALTER TABLE {t} SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
                self.sql(f"DELETE FROM {{t}} WHERE id % {some + 5} = 2")
            case "constraint":
                self.sql(f"ALTER TABLE {{t}} ADD CONSTRAINT c{self._newest()} CHECK (id >= 0)")
        return what

    def _newest(self) -> int:
        table = f"delta.`{self.lakeside.uri(UPSTREAM)}`"
        return int(self.lakeside.spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").collect()[0]["version"])

    @property
    def followers(self) -> list[str]:
        return [*REFINED, "postgres", *([] if self.mapped else ["duckdb"])]

    def follow(self, name: str) -> None:
        """One run of a follower."""
        if name in REFINED:
            sql, mode, _ = REFINED[name]
            fields: dict[str, Any] = {"table": f"silver/{name}", "from": UPSTREAM, "sql": sql, "mode": mode}
            self.lakeside.refine(refined_table(**fields, **({"partition_by": None} if name == "upsert" else {})))
            return
        into: Postgres | DuckDb = Postgres(table="numbers", schema="test", url=self.url)
        if name == "duckdb":
            into = DuckDb(file="numbers.duckdb", table="numbers")
        served = ServedTableSpec(table=UPSTREAM, into=into, keys=("id",))
        run = {"lake": self.lakeside.lake, "session": lambda: self.lakeside.spark, "home": self.home}
        try:
            serve(served, **run)  # type: ignore[arg-type]
        except KdiError as refused:
            assert "--rebuild" in str(refused) + "".join(refused.message_parts()), refused
            serve(served, rebuild=True, **run)  # type: ignore[arg-type]

    def rows(self, name: str) -> Counter[tuple[Any, ...]]:
        match name:
            case "postgres":
                import psycopg

                with psycopg.connect(self.url) as connection:
                    return Counter(connection.execute("SELECT id, n, date FROM test.numbers").fetchall())
            case "duckdb":
                import duckdb

                with duckdb.connect(str(self.home / "numbers.duckdb"), read_only=True) as file:
                    return Counter(file.execute("SELECT id, n, date FROM numbers").fetchall())
        return self._query(f"{OF_TABLE[name]} FROM {{t}}", f"silver/{name}")

    def expected(self, name: str) -> Counter[tuple[Any, ...]]:
        return self._query(REFINED[name][2] if name in REFINED else "SELECT id, n, date FROM {t}", UPSTREAM)

    def _query(self, query: str, table: str) -> Counter[tuple[Any, ...]]:
        found = self.lakeside.spark.sql(query.replace("{t}", f"delta.`{self.lakeside.uri(table)}`"))
        return Counter(tuple(row) for row in found.collect())


@pytest.fixture(autouse=True)
def _interpreted(spark: SparkSession) -> Iterator[None]:
    with interpreting(spark):  # some rows at a time
        yield


@pytest.mark.parametrize("mapped", [False, True], ids=["plain", "column mapping"])
def test_each_follower_has_what_a_query_of_the_upstream_table_gives(
    lakeside: Lakeside, url: str, tmp_path: Path, pytestconfig: pytest.Config, mapped: bool
) -> None:
    """Purpose: followers meet every change of a table, some at once, some after several others.
    Procedure: rows that come, change and go; MERGE, OPTIMIZE, RESTORE, new columns; with column mapping also columns
    that are dropped and made again or swap their names, deletion vectors and constraints. After some steps some of the
    followers run, at the end all.
    Pass: each that ran has the rows of the query.
    """
    seed = f"{pytestconfig.getoption('--seed')} {os.environ.get('KDI_WALK', '')} {mapped}"
    random = Random(seed)
    world, told = World(lakeside, url, tmp_path, random, mapped=mapped), list[str]()
    for number in range(STEPS):
        told.append(world.step())
        last = number == STEPS - 1
        for name in world.followers if last else random.sample(world.followers, random.randint(0, 3)):
            world.follow(name)
            told.append(name)
            assert world.rows(name) == world.expected(name), f"seed {seed}: {', '.join(told)}"
