"""A random walk of an upstream table and all that follows it: each follower has what a query of the table gives."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from kdi_assets.documents.model.stream import Stream
from kdi_assets.documents.model.stream_fields import Announce
from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.errors import AnotherRefinementActive
from kdi_assets.follow.serve.errors import AnotherServeRunActive
from kdi_assets.streams.announce.announce import announce
from kdi_assets.streams.announce.errors import AnotherAnnouncerActive
from tests.conftest import DrivenFactory, TopicFactory
from tests.driven import Once
from tests.faults.topics import await_markers
from tests.refined import Lakeside, refined_table
from tests.tables.announced import announcements, assert_each_version_once
from tests.tables.served import Copy

if TYPE_CHECKING:
    pass

UPSTREAM, STEPS = "bronze/numbers", 14
COLUMNS = "id, n, date"


@dataclass(frozen=True)
class Refined:
    """A refined table of each mode.

    Attributes:
        columns: Those of the table that are compared.
        expected: A query of the upstream table, ``{t}``, that gives them.
    """

    sql: str
    mode: Any
    columns: str
    expected: str
    partition_by: str | None = "date"


REFINED = {
    "append": Refined("SELECT id, n, date FROM numbers", "append", COLUMNS, "SELECT id, n, date FROM {t}"),
    "replace_dates": Refined(
        "SELECT date, count(*) AS rows, sum(n) AS total FROM numbers GROUP BY date",
        "replace_dates",
        "date, rows, total",
        "SELECT date, count(*), sum(n) FROM {t} GROUP BY date",
    ),
    "deduplicate": Refined(
        "SELECT id, n, date FROM numbers",
        {"deduplicate": {"keys": ["n"], "order_by": "id", "window": "90 days"}},
        COLUMNS,
        "SELECT id, n, date FROM {t} QUALIFY n IS NULL OR row_number() OVER (PARTITION BY n ORDER BY date, id) = 1",
    ),
    "aggregate": Refined(
        "SELECT id, n, date FROM numbers",
        {"aggregate": {"by": ["date"], "measures": {"rows": "count", "total": {"sum": "n"}, "most": {"max": "n"}}}},
        "date, rows, total, most",
        "SELECT date, count(*), sum(n), max(n) FROM {t} GROUP BY date",
    ),
    "upsert": Refined(
        "SELECT id % 5 AS k, id, n FROM numbers",
        {"upsert": {"keys": ["k"], "sequence_by": "id"}},
        "k, id, n",
        "SELECT max(id) % 5, max(id), max_by(n, id) FROM {t} GROUP BY id % 5",
        partition_by=None,
    ),
}
PLAIN = ("insert", "insert", "insert", "update", "delete", "merge", "optimize", "restore", "add column")
MAPPED = (*PLAIN, "other values", "swap", "widen", "vectors", "constraint")
POINTS = {
    "upsert": ("deletes recorded", "files written"),
    "postgres": ("consumed version read", "planned", "staged"),
    "duckdb": ("planned", "publishing"),
    "announced files": ("begun", "read"),
}
"""Points that a run reaches before its commit; a run of another refined table reaches ``files written``."""


class World:
    """The upstream table and its followers.

    Attributes:
        announced: The upstream table, as a stream that announces its files.
        mapped: Whether the table has column mapping and type widening: columns may be dropped, renamed and widened.
            DuckDB does not read such a table, and its files are not announced.
        days: How many dates new rows may have.
    """

    days = 4

    def __init__(
        self, lakeside: Lakeside, url: str, home: Path, announced: Stream, random: Random, *, mapped: bool
    ) -> None:
        self.lakeside, self.url, self.home, self.announced = lakeside, url, home, announced
        self.random, self.mapped = random, mapped
        self.ids, self.columns, self.restorable = 0, 0, 0
        kind, mapping = ("int", "name") if mapped else ("bigint", "none")
        self.sql(
            f"CREATE TABLE {{t}} (id bigint, n {kind}, m bigint, date date) USING delta PARTITIONED BY (date) "
            f"TBLPROPERTIES (delta.enableChangeDataFeed = {str(random.random() < 0.7).lower()}, "
            f"delta.columnMapping.mode = '{mapping}', delta.enableTypeWidening = {str(mapped).lower()})"
        )
        self.insert()

    def sql(self, statement: str) -> None:
        self.lakeside.sql(statement, UPSTREAM)

    def insert(self) -> None:
        count = self.random.randint(1, 6)
        first, self.ids = self.ids, self.ids + count
        day = f"date_add(DATE'2026-01-01', int(id % {self.random.randint(1, self.days)}))"
        self.sql(
            f"INSERT INTO {{t}} (id, n, m, date) SELECT id, IF(id % 7 = 3, NULL, id % 4), -id, {day} "
            f"FROM range({first}, {self.ids})"
        )

    def step(self) -> str:
        """One random change of the upstream table."""
        return self.change(self.random.choice(MAPPED if self.mapped else PLAIN))

    def change(self, what: str) -> str:
        some = self.random.randint(2, 5)
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
                newest = self._newest()
                version = self.random.randint(min(self.restorable, newest), newest)
                self.sql(f"RESTORE {{t}} TO VERSION AS OF {version}")
            case "add column":
                self.columns += 1
                self._alter(f"ADD COLUMN extra_{self.columns} bigint")
            case "other values":
                self._alter("DROP COLUMN n")
                self._alter("ADD COLUMN n bigint")
            case "swap":
                for old, new in (("n", "other"), ("m", "n"), ("other", "m")):
                    self._alter(f"RENAME COLUMN {old} TO {new}")
            case "widen":
                self._alter("ALTER COLUMN n TYPE bigint")
            case "vectors":
                self.sql("ALTER TABLE {t} SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
                self.sql(f"DELETE FROM {{t}} WHERE id % {some + 5} = 2")
            case "constraint":
                self.sql(f"ALTER TABLE {{t}} ADD CONSTRAINT c{self._newest()} CHECK (id >= 0)")
        return what

    def _alter(self, change: str) -> None:
        """Change the columns; the versions before are not restored afterwards."""
        self.sql(f"ALTER TABLE {{t}} {change}")
        self.restorable = self._newest()

    def _newest(self) -> int:
        table = f"delta.`{self.lakeside.uri(UPSTREAM)}`"
        return int(self.lakeside.spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").collect()[0]["version"])

    @property
    def followers(self) -> list[str]:
        return [*REFINED, "postgres", *([] if self.mapped else ["duckdb", "announced files"])]

    def follow(self, name: str) -> str:
        """One run of a follower; another run may overtake it between two of its steps."""
        if self.random.random() < 0.7:
            self._run(name)
            return name
        point = self.random.choice(POINTS.get(name, ("files written",)))
        with suppress(AnotherRefinementActive, AnotherServeRunActive, AnotherAnnouncerActive):
            self._run(name, at=Once(point, lambda: self._run(name)))
        self._run(name)
        return f"{name} overtaken at '{point}'"

    def _run(self, name: str, at: Callable[[str], None] = lambda point: None) -> None:
        if name == "announced files":
            announce(self.announced, self.lakeside.lake, at=at)
        elif of := REFINED.get(name):
            fields: dict[str, Any] = {"table": f"silver/{name}", "from": UPSTREAM, "sql": of.sql, "mode": of.mode}
            self.lakeside.refine(refined_table(**fields, partition_by=of.partition_by), at=at)
        else:
            self._serve(name, at)

    def _serve(self, name: str, at: Callable[[str], None]) -> None:
        try:
            self._copy(name).serve(at=at)
        except KdiError as refused:
            if isinstance(refused, AnotherServeRunActive):
                raise
            assert "--rebuild" in str(refused) + "".join(refused.message_parts()), refused
            self._copy(name).serve(rebuild=True)

    def _copy(self, name: str) -> Copy:
        return Copy(self.lakeside, UPSTREAM, name, self.url, self.home)

    def rows(self, name: str) -> Counter[tuple[Any, ...]]:
        """What a follower has; the files of a table count as rows here."""
        if name == "announced files":
            assert self.announced.announce
            await_markers(self.announced.kafka, self.announced.announce.topic)
            found = announcements(self.announced.kafka, self.announced.announce.topic)
            assert_each_version_once(found, self.lakeside.uri(UPSTREAM))
            return self._files(found[-1].version)
        if of := REFINED.get(name):
            return self._query(f"SELECT {of.columns} FROM {{t}}", f"silver/{name}")
        return self._copy(name).rows(COLUMNS)

    def expected(self, name: str) -> Counter[tuple[Any, ...]]:
        if name == "announced files":
            return self._files(None)
        return self._query(REFINED[name].expected if name in REFINED else f"SELECT {COLUMNS} FROM {{t}}", UPSTREAM)

    def _files(self, version: int | None) -> Counter[tuple[Any, ...]]:
        return Counter((file,) for file in DeltaTable(self.lakeside.uri(UPSTREAM), version=version).file_uris())

    def _query(self, query: str, table: str) -> Counter[tuple[Any, ...]]:
        found = self.lakeside.spark.sql(query.replace("{t}", f"delta.`{self.lakeside.uri(table)}`"))
        return Counter(tuple(row) for row in found.collect())


@pytest.mark.parametrize("mapped", [False, True], ids=["plain", "column mapping"])
def test_each_follower_has_what_a_query_of_the_upstream_table_gives(
    lakeside: Lakeside,
    url: str,
    driven: DrivenFactory,
    topic: TopicFactory,
    tmp_path: Path,
    pytestconfig: pytest.Config,
    mapped: bool,
) -> None:
    """Purpose: followers meet every change of a table, some at once, some after several others.
    Procedure: rows that come, change and go; MERGE, OPTIMIZE, RESTORE, new columns; with column mapping also columns
    that are dropped and made again, swap their names or become wider, deletion vectors and constraints. After some
    steps some of the followers run, each at times overtaken by another run between two of its steps; at the end all.
    Pass: each that ran has the rows of the query.
    """
    seed = f"{pytestconfig.getoption('--seed')} {os.environ.get('KDI_WALK', '')} {mapped}"
    random = Random(seed)
    announced = replace(driven(announce=Announce(topic())).stream, table=UPSTREAM)
    world, told = World(lakeside, url, tmp_path, announced, random, mapped=mapped), list[str]()
    for number in range(STEPS):
        told.append(world.step())
        last = number == STEPS - 1
        for name in world.followers if last else random.sample(world.followers, random.randint(0, 3)):
            told.append(world.follow(name))
            assert world.rows(name) == world.expected(name), f"seed {seed}: {', '.join(told)}"
