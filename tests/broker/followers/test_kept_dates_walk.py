"""A random walk of a table that ends its rows, and of all that follows it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from kdi_assets.delta.log import TableLog
from kdi_assets.delta.markers import kept_from
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.stream import Stream
from kdi_assets.documents.model.stream_fields import Announce
from kdi_assets.follow.refine.consumer import new_rows
from kdi_assets.follow.refine.entry import RefineEntry
from kdi_assets.follow.refine.expire import expire_dates
from kdi_assets.operate.upkeep.unconsumed import Followers, waiting_followers
from tests.broker.followers.test_followers_walk import COLUMNS, UPSTREAM, World
from tests.conftest import DrivenFactory, TopicFactory
from tests.refined import Lakeside, refined_table

STEPS, DAYS, WINDOW = 18, 7, 2
FIRST_DAY = date(2026, 1, 1)
SHORT = "silver/short"


@dataclass(frozen=True)
class Made:
    """A refined table.

    Attributes:
        expected: A query of the table that it is made of, ``{t}``, with these columns. For DuckDB, which is another
            engine than the one that made the table, and answers at once.
        window: Of how many dates there a date of it is made.
    """

    spec: RefinedTableSpec
    columns: str
    expected: str
    window: int = 1

    @property
    def upstream(self) -> str:
        return self.spec.upstreams[0].table


def made(
    name: str, columns: str, expected: str, *, mode: Any, sql: str = "", upstream: str = UPSTREAM, window: int = 1
) -> Made:
    spec = refined_table(**{"table": f"silver/{name}", "from": [{"table": upstream, "as": "numbers"}], "mode": mode})
    return Made(replace(spec, sql=sql), columns, expected, window)


ROWS = f"SELECT {COLUMNS} FROM {{t}}"
SUMS = "SELECT date, count(*), sum(n), max(n) FROM {t} GROUP BY date"
BY_DATE = {"by": ["date"], "measures": {"rows": "count", "total": {"sum": "n"}, "most": {"max": "n"}}}
MADE = {
    "append": made("append", COLUMNS, ROWS, sql=f"SELECT {COLUMNS} FROM numbers", mode="append"),
    "replace_dates": made(
        "replace_dates",
        "date, rows, total",
        "SELECT date, count(*), sum(n) FROM {t} GROUP BY date",
        sql="SELECT date, count(*) AS rows, sum(n) AS total FROM numbers GROUP BY date",
        mode="replace_dates",
    ),
    "deduplicate": made(
        "deduplicate",
        COLUMNS,
        f"SELECT {COLUMNS} FROM {{t}} QUALIFY n IS NULL OR coalesce("
        f"date - lag(date) OVER (PARTITION BY n ORDER BY date, id) >= {WINDOW}, true)",
        sql=f"SELECT {COLUMNS} FROM numbers",
        mode={"deduplicate": {"keys": ["n"], "order_by": "id", "window": f"{WINDOW} days"}},
        window=WINDOW,
    ),
    "aggregate": made("aggregate", "date, rows, total, most", SUMS, mode={"aggregate": BY_DATE}),
    "short": made("short", COLUMNS, ROWS, sql=f"SELECT {COLUMNS} FROM numbers", mode="append"),
    "sums of short": made("sums", "date, rows, total, most", SUMS, mode={"aggregate": BY_DATE}, upstream=SHORT),
}
"""``short`` has a ``keep`` of its own."""
CHANGES = ("insert", "insert", "insert", "update", "delete", "merge", "replay", "rewind", "optimize", "restore")
KEEPING = ("expire", "expire", "expire short", "rebuild")
Rows = Counter[tuple[Any, ...]]


def date_of(row: tuple[Any, ...]) -> date:
    (found,) = (value for value in row if isinstance(value, date))
    return found


class KeptWorld(World):
    """The upstream table, whose dates leave one after the other, and its followers.

    Attributes:
        frozen: By refined table, its rows of the dates that are not computed any more, as they must stay.
        first: By refined table, the first date that is computed.
    """

    days = DAYS

    def __init__(self, lakeside: Lakeside, url: str, home: Path, announced: Stream, random: Random) -> None:
        self.frozen: dict[str, Rows] = {name: Counter() for name in [*MADE, "own"]}
        self.first: dict[str, date] = dict.fromkeys([*MADE, "own"], FIRST_DAY)
        super().__init__(lakeside, url, home, announced, random, mapped=False)

    def step(self) -> str:
        what = self.random.choice((*CHANGES, *KEEPING))
        match what:
            case "replay":
                self._replay()
            case "rewind":
                self._rewind()
            case "expire":
                return self._expire()
            case "expire short":
                return self._expire_short()
            case "rebuild":
                name = self.random.choice(list(MADE))
                self.lakeside.refine(MADE[name].spec, rebuild=True)
                return f"rebuild of {name}"
            case _:
                return self.change(what)
        return what

    def _replay(self) -> None:
        """The rows of a date, written again with other values and perhaps one more, in one commit."""
        day, more = FIRST_DAY + timedelta(days=self.random.randrange(DAYS)), self.random.randrange(2)
        first, self.ids = self.ids, self.ids + more
        again = self.lakeside.spark.sql(
            f"SELECT id, n + 1 AS n, m, date FROM delta.`{self.lakeside.uri(UPSTREAM)}` WHERE date = DATE'{day}' "
            f"UNION ALL SELECT id, 1, -id, DATE'{day}' FROM range({first}, {self.ids})"
        )
        rows = self.lakeside.spark.createDataFrame(again.collect(), "id bigint, n bigint, m bigint, date date")
        where = f"date = '{day}'"
        rows.write.format("delta").mode("overwrite").option("replaceWhere", where).save(self.lakeside.uri(UPSTREAM))

    def _rewind(self) -> None:
        """The newest rows leave and come again."""
        last = max(0, self.ids - self.random.randint(1, 5))
        self.sql(f"DELETE FROM {{t}} WHERE id >= {last}")
        self.ids = last
        self.insert()

    def _dates(self, table: str) -> set[date]:
        found = TableLog.existing(self.lakeside.uri(table)).data_files["partition.date"].to_pylist()
        return {day if isinstance(day, date) else date.fromisoformat(str(day)) for day in found}

    def _later(self, table: str) -> date:
        now = kept_from(TableLog.existing(self.lakeside.uri(table))) or FIRST_DAY
        return min(now + timedelta(days=self.random.randrange(3)), FIRST_DAY + timedelta(days=DAYS - 1))

    def _expire(self) -> str:
        """Dates leave, as by the upkeep: once all tables that documents make of the table have consumed them."""
        first = self._later(UPSTREAM)
        gone = {day for day in self._dates(UPSTREAM) if day < first}
        if not gone:
            return "nothing to expire"
        self._run("own")
        ran = self._await_followers(self.announced, gone, first)
        for name in [*MADE, "own"]:
            if name != "sums of short":
                window = MADE[name].window if name in MADE else 1
                self._freeze(name, first + timedelta(days=window - 1))
        self.lakeside.expire(first, UPSTREAM)
        return f"expire before {first} after {ran}"

    def _await_followers(self, document: Stream | RefinedTableSpec, gone: Collection[date], first: date) -> list[str]:
        """Run those that an expiry waits for; their names."""
        refined = tuple(of.spec for of in MADE.values())
        followers, waited = Followers(refined, (), self.home), list[str]()
        document = replace(document, announce=None) if isinstance(document, Stream) else document
        for waits in waiting_followers(document, gone, followers, self.lakeside.lake, kept_from=first):
            name = next(name for name, of in MADE.items() if waits.startswith(f"{of.spec.table}:"))
            self._run(name)
            waited.append(name)
        assert not waiting_followers(document, gone, followers, self.lakeside.lake, kept_from=first)
        return waited

    def _freeze(self, name: str, first: date) -> None:
        """The rows of dates before ``first`` stay as they are from now on."""
        self.first[name] = max(self.first[name], first)
        if (Path(self.lakeside.uri(self._path(name))) / "_delta_log").exists():
            self.frozen[name] = Counter({r: n for r, n in self.rows(name).items() if date_of(r) < self.first[name]})

    def _expire_short(self) -> str:
        self._run("short")
        first = self._later(SHORT)
        gone = {day for day in self._dates(SHORT) if day < first}
        if gone:
            self._run("sums of short")
            self._await_followers(MADE["short"].spec, gone, first)
        done = expire_dates(
            MADE["short"].spec, self.lakeside.lake, first, session=lambda: self.lakeside.spark, waits_for=lambda _: ()
        )
        if not isinstance(done, RefineEntry):
            assert not gone, done
            return "nothing to expire of short"
        assert done.kept_from and set(done.removed_by_date) == gone
        self.first["short"] = max(self.first["short"], done.kept_from)
        self.frozen["short"] = Counter({r: n for r, n in self.frozen["short"].items() if date_of(r) >= done.kept_from})
        self._freeze("sums of short", done.kept_from)
        return f"expire of short before {first}"

    @property
    def followers(self) -> list[str]:
        return [*MADE, "own", "postgres", "duckdb", "announced files"]

    def _path(self, name: str) -> str:
        return MADE[name].spec.table if name in MADE else "silver/own"

    def _run(self, name: str, at: Any = lambda point: None) -> None:
        if name == "own":
            self._own()
        elif name in MADE:
            if MADE[name].upstream == SHORT:
                self.lakeside.refine(MADE["short"].spec)
            self.lakeside.refine(MADE[name].spec, at=at)
        else:
            super()._run(name, at)

    def _own(self) -> None:
        """A hand-written asset: rows that were added are added, the dates of others are computed again."""
        lakeside = self.lakeside
        options = {"upstream": lakeside.uri(UPSTREAM), "output": lakeside.uri("silver/own"), "consumer": "own"}
        new = new_rows(lakeside.spark, **options)
        if new is None:
            return
        if new.kind == "appended" or not new.has_committed:
            new.append(new.rows.select("id", "n", "date"))
            return
        first = new.kept_from or FIRST_DAY
        days = new.dates or {day for day in (FIRST_DAY + timedelta(days=n) for n in range(DAYS)) if day >= first}
        table = lakeside.spark.read.format("delta").option("versionAsOf", new.version).load(lakeside.uri(UPSTREAM))
        listed = ", ".join(f"DATE'{day}'" for day in days)
        new.replace_dates(table.where(f"date IN ({listed})").select("id", "n", "date"), days)

    def rows(self, name: str) -> Rows:
        if name in MADE or name == "own":
            columns = MADE[name].columns if name in MADE else COLUMNS
            return self._query(f"SELECT {columns} FROM {{t}}", self._path(name))
        return super().rows(name)

    def _query(self, query: str, table: str) -> Rows:
        rows = DeltaTable(self.lakeside.uri(table)).to_pyarrow_table()
        with duckdb.connect() as connection:
            connection.register("delta_rows", rows)
            return Counter(connection.execute(query.replace("{t}", "delta_rows")).fetchall())

    def expected(self, name: str) -> Rows:
        if name not in MADE and name != "own":
            return super().expected(name)
        upstream, query, window = UPSTREAM, ROWS, 1
        if name in MADE:
            upstream, query, window = MADE[name].upstream, MADE[name].expected, MADE[name].window
        first = self.first[name]
        read = f"(SELECT * FROM {{t}} WHERE date >= DATE'{first - timedelta(days=window - 1)}')"
        found = self._query(query.replace("{t}", read), upstream)
        return self.frozen[name] + Counter({row: n for row, n in found.items() if date_of(row) >= first})


def test_dates_that_left_stay_as_they_were_in_what_is_made_of_a_table_and_leave_its_copies(
    lakeside: Lakeside,
    url: str,
    driven: DrivenFactory,
    topic: TopicFactory,
    tmp_path: Path,
    pytestconfig: pytest.Config,
) -> None:
    """Purpose: dates leave a table in any order with all that can happen to its rows, and to those of these dates.
    Procedure: rows that come, also late ones, change and go; MERGE, OPTIMIZE, RESTORE, dates that are written again,
    newest rows that leave and come again; between them dates leave, of the table and of a refined one. After some steps
    some followers run, each at times overtaken by another run; at the end all.
    Pass: each that ran has what a query gives for the dates that are computed, and for the others what it had when they
    left; databases and announcements have what the table has.
    """
    seed = f"{pytestconfig.getoption('--seed')} {os.environ.get('KDI_WALK', '')} kept"
    announced = replace(driven(announce=Announce(topic())).stream, table=UPSTREAM)
    world, told = KeptWorld(lakeside, url, tmp_path, announced, Random(seed)), list[str]()
    for number in range(STEPS):
        told.append(world.step())
        last = number == STEPS - 1
        for name in world.followers if last else world.random.sample(world.followers, world.random.randint(0, 3)):
            told.append(world.follow(name))
            assert world.rows(name) == world.expected(name), f"seed {seed}: {', '.join(told)}"
