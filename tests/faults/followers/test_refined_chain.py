"""A chain of refined tables into PostgreSQL whose runs are killed, restored under, and raced, in separate processes."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kdi_assets.documents.model.served_table import Postgres, ServedTableSpec
from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.errors import AnotherRefinementActive
from kdi_assets.follow.refine.refine import refine
from kdi_assets.follow.serve.errors import AnotherServeRunActive
from kdi_assets.follow.serve.serve import serve
from kdi_assets.runtime.spark import close_session, open_session
from kdi_assets.settings import Settings
from tests.faults.doomed_drain import MISSED, processes
from tests.faults.warm_driver import JVM_OPTIONS, is_stopped
from tests.refined import refined_table
from tests.waiting import wait_until

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from pyspark.sql import SparkSession

OVERTAKEN = 75
KILLS = 30
DAYS = [date(2026, 1, day) for day in range(1, 6)]
HOSTS = ("a", "b", "c")
BRONZE = pa.schema(
    [("id", pa.int64()), ("host", pa.string()), ("bytes", pa.int64()), ("op", pa.string()), ("date", pa.date32())]
)
SILVER = refined_table(
    table="silver/state",
    mode={"upsert": {"keys": ["id"], "sequence_by": "bytes", "apply_as_deletes": "op = 'd'"}},
    **{"from": "bronze/events"},
)
GOLD = refined_table(
    table="gold/sums",
    mode={"aggregate": {"by": ["date", "host"], "measures": {"n": "count", "total": {"sum": "bytes"}}}},
    **{"from": "silver/state"},
)
Level = Literal["bronze", "silver", "gold"]
PATHS: dict[Level, str] = {"bronze": "bronze/events", "silver": SILVER.table, "gold": GOLD.table}
BOUNDARIES = (
    *(
        f"{level}: {point}"
        for level in ("silver", "gold")
        for point in ("deletes recorded", "files written", "committed")
    ),
    *(f"served: {point}" for point in ("planned", "staged", "publishing", "published")),
)


@dataclass(frozen=True)
class Chain:
    """The tables of one test; what a process runs.

    Attributes:
        url: Of the database.
    """

    lake: str
    url: str

    def uri(self, level: Level) -> str:
        return f"{self.lake}/{PATHS[level]}"

    def refine(self, session: SparkSession, at: Callable[[str], None] = lambda point: None) -> list[str]:
        """All levels once; what was computed for each."""
        kinds: list[str] = []
        for level, table in (("silver", SILVER), ("gold", GOLD)):
            report = refine(table, lake=self.lake, session=lambda: session, at=_of(level, at))
            kinds.append(report.entry.kind)
        into = Postgres(table="sums", schema="test", url=self.url)
        served = ServedTableSpec(table=GOLD.table, into=into, keys=("date", "host"))
        return [*kinds, serve(served, lake=self.lake, session=lambda: session, at=_of("served", at)).kind]


def _of(level: str, at: Callable[[str], None]) -> Callable[[str], None]:
    return lambda point: at(f"{level}: {point}")


def _attached(settings: Settings) -> SparkSession:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.update(JVM_OPTIONS)
    return open_session(settings, app_name="chain")


def refine_until(chain: Chain, settings: Settings, point: str, number: signal.Signals, seconds: float) -> None:
    """In a process of its own: send it a signal at a point, or after some seconds if they are given."""
    session = _attached(settings)

    def end() -> None:
        time.sleep(seconds)
        os.kill(os.getpid(), number)

    if seconds:
        Thread(target=end, daemon=True).start()
    try:
        chain.refine(session, lambda reached: os.kill(os.getpid(), number) if reached == point else None)
    except (AnotherRefinementActive, AnotherServeRunActive):
        os._exit(OVERTAKEN)
    close_session(session)
    os._exit(MISSED)


def refine_when_asked(chain: Chain, settings: Settings, asked: Connection) -> None:
    """In a process of its own: answer each message with what was computed."""
    session = _attached(settings)
    while True:
        asked.recv()
        try:
            asked.send(chain.refine(session))
        except KdiError as refusal:
            asked.send(refusal)


@dataclass
class Watched:
    """A chain, what happens to its first table, and its processes.

    Attributes:
        seconds: What the last run took that nobody killed.
        rows: Every row that was ever added to bronze.
        made: How many were made up; ``bytes`` is their order, but one of four comes late.
    """

    chain: Chain
    settings: Settings
    random: Random
    seconds: float = 0.0
    rows: list[dict[str, Any]] = field(default_factory=list)
    made: int = 0
    processes: list[BaseProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._asks, theirs = processes().Pipe()
        self._start(refine_when_asked, self.chain, self.settings, theirs)

    def _start(self, function: Callable[..., None], *arguments: object) -> BaseProcess:
        process = processes().Process(target=function, args=arguments)
        process.start()
        self.processes.append(process)
        return process

    def run(self, point: str = "", number: signal.Signals = signal.SIGKILL, seconds: float = 0.0) -> BaseProcess:
        """Start a run in a process of its own."""
        return self._start(refine_until, self.chain, self.settings, point, number, seconds)

    def ends(self, process: BaseProcess) -> int | None:
        """The exit code."""
        process.join(180)
        return process.exitcode

    def catch_up(self) -> list[str]:
        """A run that nobody kills; what it computed for each level."""
        began = time.monotonic()
        self._asks.send("")
        assert self._asks.poll(180), "no answer in 3 minutes"
        answer = self._asks.recv()
        self.seconds = time.monotonic() - began
        if isinstance(answer, KdiError):
            raise answer
        return list(answer)

    def change(self) -> None:
        """New rows, some of them late, some deletes, some there already; sometimes rows go, or files are compacted."""
        new = [self._row() for _ in range(self.random.randint(5, 30))]
        new += self.random.choices(self.rows, k=3) if self.rows else []
        self.rows += new
        bronze, first = self.chain.uri("bronze"), not Path(self.chain.uri("bronze")).exists()
        feed = {"delta.enableChangeDataFeed": "true"} if first else None
        write_deltalake(
            bronze, pa.Table.from_pylist(new, BRONZE), mode="append", partition_by=["date"], configuration=feed
        )
        match self.random.randrange(6):
            case 0:
                DeltaTable(bronze).delete(f"id = {self.random.randrange(40)}")
            case 1:
                DeltaTable(bronze).optimize.compact()

    def _row(self) -> dict[str, Any]:
        pick = self.random
        self.made += 1
        order = max(1, self.made - pick.choice((0, 0, 0, pick.randrange(100)))) << 20
        key, host, day = pick.randrange(40), pick.choice(HOSTS), pick.choice(DAYS)
        values = (key, host, order + pick.getrandbits(20), pick.choice("iuud"), day)
        return dict(zip(BRONZE.names, values, strict=True))

    def restore(self, level: Level) -> str:
        """RESTORE to one of the last versions; 0 of a refined table is before its first refinement."""
        table = DeltaTable(self.chain.uri(level))
        newest = table.version()
        version = self.random.randint(max(0 if level == "bronze" else 1, newest - 4), newest - 1)
        table.restore(version)
        return f"RESTORE of {level} from {newest} to {version}"

    def assert_equal(self, when: str) -> None:
        """Every level has what plain Python makes of the rows of bronze."""
        state: dict[int, dict[str, Any]] = {}
        for row in sorted(self._read("bronze"), key=lambda row: row["bytes"]):
            if row["op"] == "d":
                state.pop(row["id"], None)
            else:
                state[row["id"]] = row
        sums: Counter[tuple[Any, ...]] = Counter()
        counts = Counter((row["date"], row["host"]) for row in state.values())
        for row in state.values():
            sums[row["date"], row["host"]] += row["bytes"]
        gold = Counter((*group, n, sums[group]) for group, n in counts.items())
        silver = Counter(tuple(row[name] for name in BRONZE.names) for row in state.values())

        assert Counter(tuple(r[name] for name in BRONZE.names) for r in self._read("silver")) == silver, (
            f"{when}: silver"
        )
        assert Counter((r["date"], r["host"], r["n"], r["total"]) for r in self._read("gold")) == gold, f"{when}: gold"
        with psycopg.connect(self.chain.url) as connection:
            found = connection.execute("SELECT date, host, n, total FROM test.sums").fetchall()
        assert Counter(found) == gold, f"{when}: PostgreSQL"

    def _read(self, level: Level) -> list[dict[str, Any]]:
        return list(DeltaTable(self.chain.uri(level)).to_pyarrow_table().to_pylist())

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()


@pytest.fixture
def watched(lake: str, url: str, warm_home: Path, pytestconfig: pytest.Config) -> Iterator[Watched]:
    settings = Settings(warm_home, lake, driver="shared")
    made = Watched(Chain(lake, url), settings, Random(pytestconfig.getoption("--seed")))
    yield made
    made.end()


def test_a_run_of_the_chain_that_is_killed_between_two_steps_is_made_good_by_the_next_one(watched: Watched) -> None:
    """Procedure: SIGKILL at every boundary of every level, first of the run that creates the tables.
    Pass: each kill happened at its boundary; after the next run every level equals the recomputation.
    """
    watched.change()
    for point in ("silver: table created", "gold: table created"):
        assert watched.ends(watched.run(point)) == -signal.SIGKILL, point
    watched.catch_up()
    watched.assert_equal("first")

    for point in BOUNDARIES:
        watched.change()
        assert watched.ends(watched.run(point)) == -signal.SIGKILL, point
        watched.catch_up()
        watched.assert_equal(point)
    assert watched.catch_up() == ["nothing", "nothing", "nothing"]


def test_a_restore_of_any_level_between_two_runs_is_followed_by_all_levels(watched: Watched) -> None:
    """Procedure: RESTORE of each level, after a run, and after a run that was killed within this or the next level.
    Pass: after the next run every level equals the recomputation.
    """
    for _ in range(3):
        watched.change()
        watched.catch_up()

    for level in PATHS:
        for point in ("", "silver: committed", "gold: files written", "served: staged"):
            watched.change()
            watched.ends(watched.run(point)) if point else watched.catch_up()
            said = watched.restore(level)
            watched.catch_up()
            watched.assert_equal(f"{said}, {point or 'all done'}")


def test_of_two_processes_that_refine_the_chain_at_once_each_row_counts_once(watched: Watched) -> None:
    """Procedure: stop a run when files are written or rows staged, let another one do all, continue; and three times
    two runs at once.
    Pass: both end, by themselves or because the other was active; every level equals the recomputation.
    """
    watched.change()
    watched.catch_up()

    for point in ("silver: files written", "gold: files written", "served: staged", "served: publishing"):
        watched.change()
        slow = watched.run(point, signal.SIGSTOP)
        wait_until(lambda: is_stopped(slow.pid or 0), seconds=120)  # noqa: B023  # called at once
        if point != "served: publishing":  # its open transaction holds the other one up
            watched.catch_up()
        os.kill(slow.pid or 0, signal.SIGCONT)
        assert watched.ends(slow) in (MISSED, OVERTAKEN), point
        watched.catch_up()
        watched.assert_equal(point)
    for number in range(3):
        watched.change()
        codes = [watched.ends(process) for process in [watched.run(), watched.run()]]
        assert MISSED in codes and set(codes) <= {MISSED, OVERTAKEN}
        watched.assert_equal(f"race {number}")


def test_runs_that_are_killed_at_random_times_leave_nothing_that_the_next_run_does_not_make_good(
    watched: Watched,
) -> None:
    """Procedure: 30 runs are killed at random times within what a whole run takes; a level is restored after every
    fourth, on average.
    Pass: after each kill and the next run every level equals the recomputation.
    """
    for _ in range(2):
        watched.change()
        watched.catch_up()
    killed = 0

    while killed < KILLS:
        watched.change()
        after = watched.random.uniform(0.05, watched.seconds)
        code = watched.ends(watched.run(seconds=after))
        assert code in (-signal.SIGKILL, MISSED)
        killed += code == -signal.SIGKILL
        level = watched.random.choice((*PATHS, *[None] * 9))
        said = watched.restore(level) if level else "no RESTORE"
        watched.catch_up()
        watched.assert_equal(f"kill {killed} after {after:.2f} s, {said}")
