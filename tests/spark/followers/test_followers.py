"""Followers of a Delta table: refined tables, hand-written assets, PostgreSQL and DuckDB give the same answers.

Each reads its own state first, then the upstream table once, and takes nothing for lost that is only damaged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

import pytest

from kdi_assets.delta.errors import TableUnreadable
from kdi_assets.delta.log import TableLog
from kdi_assets.follow.refine.consumer import new_rows
from kdi_assets.follow.refine.errors import AnotherRefinementActive
from kdi_assets.follow.serve.errors import AnotherServeRunActive
from tests.refined import Lakeside, refined_table
from tests.tables.served import Copy

if TYPE_CHECKING:
    from pytest import MonkeyPatch

UPSTREAM = "bronze/numbers"
COPY = refined_table(**{"table": "silver/copy", "from": UPSTREAM, "partition_by": None})
NEWEST = refined_table(
    **{
        "table": "silver/newest",
        "from": UPSTREAM,
        "partition_by": None,
        "mode": {"upsert": {"keys": ["id"], "sequence_by": "id"}},
    }
)
PAIRS = refined_table(
    **{
        "table": "silver/pairs",
        "from": [{"table": UPSTREAM, "as": "child"}, {"table": UPSTREAM, "as": "parent"}],
        "sql": "SELECT child.id, child.n, parent.id AS other FROM child JOIN parent ON parent.id >= child.n",
        "partition_by": None,
        "mode": "replace_dates",
    }
)
Rows = Counter[tuple[Any, ...]]


class Follower:
    """One follower of ``bronze/numbers``: run it, and read what it has and should have."""

    def __init__(self, lakeside: Lakeside, url: str, home: Path, name: str) -> None:
        self.lakeside, self.url, self.home, self.name = lakeside, url, home, name

    def run(self) -> None:
        match self.name:
            case "append" | "upsert" | "self-join":
                self.lakeside.refine({"append": COPY, "upsert": NEWEST, "self-join": PAIRS}[self.name])
            case "new_rows":
                output = self.lakeside.uri("silver/made")
                found = new_rows(
                    self.lakeside.spark, upstream=self.lakeside.uri(UPSTREAM), output=output, consumer="made"
                )
                if found is not None:
                    everything = found.kind != "appended"
                    (found.replace_everything if everything else found.append)(found.rows.select("id", "n"))
            case _:
                self._copy.serve()

    def rows(self) -> Rows:
        columns = "id, n, other" if self.name == "self-join" else "id, n"
        if self.name in ("postgres", "duckdb"):
            return self._copy.rows(columns)
        table = {"append": COPY.table, "upsert": NEWEST.table, "self-join": PAIRS.table}.get(self.name, "silver/made")
        found = self.lakeside.spark.sql(f"SELECT {columns} FROM delta.`{self.lakeside.uri(table)}`")
        return Counter(tuple(row) for row in found.collect())

    def expected(self) -> Rows:
        upstream = f"delta.`{self.lakeside.uri(UPSTREAM)}`"
        query = f"SELECT id, n FROM {upstream}"
        if self.name == "self-join":
            query = f"SELECT c.id, c.n, p.id FROM {upstream} c JOIN {upstream} p ON p.id >= c.n"
        return Counter(tuple(row) for row in self.lakeside.spark.sql(query).collect())

    @property
    def _copy(self) -> Copy:
        return Copy(self.lakeside, UPSTREAM, self.name, self.url, self.home)


@pytest.fixture(params=["append", "upsert", "self-join", "new_rows", "postgres", "duckdb"])
def follower(lakeside: Lakeside, url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Follower:
    return Follower(lakeside, url, tmp_path, request.param)


def create(lakeside: Lakeside, *, mapping: str = "none") -> None:
    """The upstream table, with two rows."""
    lakeside.sql(
        "CREATE TABLE {t} (id bigint, n bigint) USING delta TBLPROPERTIES "
        f"(delta.enableChangeDataFeed = true, delta.columnMapping.mode = '{mapping}')",
        UPSTREAM,
    )
    insert(lakeside, 1, 2)


def insert(lakeside: Lakeside, *ids: int) -> None:
    lakeside.sql("INSERT INTO {t} (id, n) VALUES " + ", ".join(f"({n}, {-n})" for n in ids), UPSTREAM)


@contextmanager
def after_opening(monkeypatch: MonkeyPatch, uri: str, nth: int, do: Callable[[], None]) -> Iterator[list[int]]:
    """Do something right after a table was opened at its newest version for the nth time; yields how often it was."""
    opened = [0]
    real = TableLog.__dict__["open"].__func__

    def counted(cls: type[TableLog], of: str, version: int | None = None) -> TableLog | None:
        log: TableLog | None = real(cls, of, version)
        if version is None and of == uri:
            opened[0] += 1
            if opened[0] == nth:
                do()
        return log

    with monkeypatch.context() as patch:
        patch.setattr(TableLog, "open", classmethod(counted))
        yield opened


@pytest.mark.core
def test_a_run_that_is_overtaken_between_its_reads_never_puts_older_rows_over_newer_ones(
    lakeside: Lakeside, follower: Follower, monkeypatch: MonkeyPatch
) -> None:
    """Purpose: a state that is read after the log can count versions that the log does not have yet.
    Procedure: while a run has opened the upstream table, rows are added and another run takes them in whole.
    Pass: after the first run nothing of the other one is gone, and a third run finds all rows; it did happen.
    """
    create(lakeside)
    follower.run()
    insert(lakeside, 3)

    def overtake() -> None:
        insert(lakeside, 4)
        follower.run()

    with after_opening(monkeypatch, lakeside.uri(UPSTREAM), 1, overtake) as opened:
        with suppress(AnotherRefinementActive, AnotherServeRunActive):  # it lost the race, and says so
            follower.run()
    assert opened[0] >= 1
    assert follower.rows() == follower.expected()
    follower.run()

    assert follower.rows() == follower.expected()


def test_a_commit_between_two_views_of_one_table_is_in_both_or_in_none(
    lakeside: Lakeside, url: str, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    """Pass: a table that is joined with itself is read at one version, whenever a commit comes."""
    follower = Follower(lakeside, url, tmp_path, "self-join")
    create(lakeside)
    follower.run()
    insert(lakeside, 3)

    with after_opening(monkeypatch, lakeside.uri(UPSTREAM), 1, lambda: insert(lakeside, 4)):
        follower.run()
    follower.run()

    assert follower.rows() == follower.expected()


def test_a_commit_that_is_damaged_stops_followers_until_it_is_put_back(lakeside: Lakeside, follower: Follower) -> None:
    """Purpose: delta-rs takes an empty commit file for a commit that did nothing; its rows would never arrive.
    Procedure: a commit's file becomes empty, then is cut off, then is put back.
    Pass: both are refused by name; afterwards all rows are there.
    """
    create(lakeside)
    follower.run()
    insert(lakeside, 3)
    file = Path(urlparse(lakeside.uri(UPSTREAM)).path) / "_delta_log" / f"{2:020}.json"
    whole, crc = file.read_bytes(), file.with_name(f".{file.name}.crc")
    crc.unlink(missing_ok=True)

    for damaged in (b"", whole[: len(whole) // 2]):
        file.write_bytes(damaged)
        with pytest.raises(TableUnreadable):
            follower.run()
    file.write_bytes(whole)
    follower.run()

    assert follower.rows() == follower.expected()


OTHER_VALUES = pytest.mark.parametrize(
    "statements",
    [
        ["DROP COLUMN n", "ADD COLUMN n bigint"],
        ["RENAME COLUMN n TO other", "RENAME COLUMN id TO n", "RENAME COLUMN other TO id"],
    ],
    ids=["dropped and added", "swapped"],
)


@OTHER_VALUES
def test_columns_that_have_other_values_under_their_names_are_read_again(
    lakeside: Lakeside, follower: Follower, statements: list[str]
) -> None:
    """Pass: with column mapping, a commit without rows that gives a name to another column changes every follower."""
    create(lakeside, mapping="name")
    follower.run()

    for statement in statements:
        lakeside.sql(f"ALTER TABLE {{t}} {statement}", UPSTREAM)
    follower.run()

    assert follower.rows() == follower.expected()


@OTHER_VALUES
def test_a_refined_table_whose_own_columns_have_other_values_under_their_names_is_computed_again(
    lakeside: Lakeside, statements: list[str]
) -> None:
    """Pass: nothing is new upstream, and the values of the column come back."""
    view = UPSTREAM.rpartition("/")[2]
    table = refined_table(
        **{
            "table": "silver/mapped",
            "from": UPSTREAM,
            "sql": f"SELECT id, n FROM {view}",
            "partition_by": None,
            "properties": {"delta.columnMapping.mode": "name"},
        }
    )
    create(lakeside)
    lakeside.refine(table)

    for statement in statements:
        lakeside.sql(f"ALTER TABLE {{t}} {statement}", table.table)
    report = lakeside.refine(table)

    assert (report.kind, report.why.startswith("its own column")) == ("rebuild", True)
    lakeside.assert_as_computed_at_once(table)
    assert lakeside.refine(table).kind == "nothing"


def test_a_nested_field_that_is_added_upstream_does_not_compute_the_table_again(lakeside: Lakeside) -> None:
    """Pass: new rows are added to those that are there; the report says nothing of columns."""
    table = refined_table(
        **{
            "table": "silver/places",
            "from": "bronze/places",
            "sql": "SELECT id, at.city FROM places",
            "partition_by": None,
        }
    )
    lakeside.sql("CREATE TABLE {t} (id bigint, at struct<city: string>) USING delta", "bronze/places")
    lakeside.sql("INSERT INTO {t} VALUES (1, named_struct('city', 'Bern'))", "bronze/places")
    lakeside.refine(table)

    lakeside.sql("ALTER TABLE {t} ADD COLUMN at.street string", "bronze/places")
    assert lakeside.refine(table).kind == "nothing"
    lakeside.sql("INSERT INTO {t} VALUES (2, named_struct('city', 'Gent', 'street', 'x'))", "bronze/places")
    report = lakeside.refine(table)

    assert (report.kind, report.why, report.rows_added) == ("changes", "", 1)
    lakeside.assert_as_computed_at_once(table)
