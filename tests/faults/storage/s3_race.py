"""Spark and delta-rs processes that commit to one table in S3: ``python -m tests.faults.storage.s3_race --help``."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from kdi_assets.runtime.processes import Child
from kdi_assets.settings import Settings
from kdi_assets.tools.local.s3_server import S3Server, start_s3_server
from tests.faults.s3_proxy import Fault, Request, proxy_to

DELTAS_STORE = "io.delta.storage.S3SingleDriverLogStore"
START_SECONDS = 120.0
Row = tuple[str, int]


@dataclass(frozen=True)
class Race:
    """Who races, and what is done to them.

    Attributes:
        commits: After so many commits the race ends; it begins when each writer has appended a row.
        drop: Share of all stored objects whose answer the client does not get.
        conflict: Share of Spark's conditional puts that are answered with 409.
        kill_seconds: Time between two kills; 0 for none.
        hold_seconds: How long each of Spark's commits is on its way; delta-rs commits meanwhile.
        limit_seconds: After so long the race ends, with fewer commits.
        log_store: Class of Spark's log store in place of ours; empty for ours.
    """

    commits: int
    spark: int = 3
    delta_rs: int = 2
    drop: float = 0.1
    conflict: float = 0.03
    kill_seconds: float = 6.0
    hold_seconds: float = 0.0
    log_store: str = ""
    seed: int = 1
    limit_seconds: float = 360.0

    @property
    def writers(self) -> list[str]:
        """Names of the writers; a killed one starts again under its name."""
        return [f"spark-{n}" for n in range(self.spark)] + [f"delta-rs-{n}" for n in range(self.delta_rs)]


@dataclass
class Outcome:
    """What the journals promise, beside what the table holds."""

    acknowledged: set[Row]
    tried: set[Row]
    rows: Counter[Row]
    versions: int
    sparks_versions: int
    kills: int
    dropped: int
    conflicts: int
    seconds: float
    failures: list[str] = field(default_factory=list)

    @property
    def lost(self) -> set[Row]:
        """Rows whose append was acknowledged, and which are not there."""
        return {row for row in self.acknowledged if not self.rows[row]}

    @property
    def doubled(self) -> set[Row]:
        """Rows that are there more than once."""
        return {row for row, count in self.rows.items() if count > 1}

    @property
    def unknown(self) -> set[Row]:
        """Rows that nobody wrote."""
        return set(self.rows) - self.tried

    @property
    def sparks_rows(self) -> int:
        """How many rows Spark wrote."""
        return sum(count for (writer, _), count in self.rows.items() if writer.startswith("spark"))

    def __str__(self) -> str:
        by = Counter(writer.rstrip("-0123456789") for writer, _ in self.acknowledged)
        return (
            f"{self.versions} versions, {self.sparks_versions} of them by Spark, in {self.seconds:.0f} s; "
            f"{sum(self.rows.values())} rows, {self.sparks_rows} of them by Spark; acknowledged {dict(by)}; "
            f"lost {len(self.lost)}, doubled {len(self.doubled)}, unknown {len(self.unknown)}; kills {self.kills}, "
            f"answers dropped {self.dropped}, conflicts {self.conflicts}, failed appends {len(self.failures)}"
        )


def run(race: Race, server: S3Server, uri: str, folder: Path, home: Path) -> Outcome:
    """Create the table, let all writers append, and compare their journals with the rows."""
    empty = pa.table({"writer": pa.array([], pa.string()), "number": pa.array([], pa.int64())})
    write_deltalake(uri, empty, configuration={"delta.checkpointInterval": "50"})
    chance, started, kills = random.Random(race.seed), time.monotonic(), 0
    with proxy_to(server.port) as proxy:
        proxy.fault = lambda request: _fault(race, chance, request)
        proxy.delay_seconds = lambda request: race.hold_seconds if _is_sparks_commit(request) else 0.0
        environment = {**server.environment(endpoint=proxy.endpoint), "KDI_HOME": str(home)}
        with _writers(race, uri, folder, environment) as children:
            while not children.all_appended():  # delta-rs would be done before Spark has started
                assert time.monotonic() < started + START_SECONDS, f"no start: see {folder}"
                time.sleep(0.2)
            goal = DeltaTable(uri).version() + race.commits
            raced, next_kill = time.monotonic(), time.monotonic() + race.kill_seconds
            while DeltaTable(uri).version() < goal and time.monotonic() < raced + race.limit_seconds:
                if race.kill_seconds and time.monotonic() > next_kill:
                    next_kill, kills = time.monotonic() + race.kill_seconds, kills + 1
                    children.kill(chance.choice(race.writers))
                children.start_again()
                time.sleep(0.2)
        journals = {writer: (folder / writer).read_text().splitlines() for writer in race.writers}
        table = DeltaTable(uri)
        rows = Counter((row["writer"], row["number"]) for row in table.to_pyarrow_table().to_pylist())
        commits = table.history()
        assert sorted(commit["version"] for commit in commits) == list(range(table.version() + 1))
        return Outcome(
            acknowledged=_rows(journals, "done"),
            tried=_rows(journals, "try"),
            rows=rows,
            versions=table.version(),
            sparks_versions=sum("Apache-Spark" in commit.get("engineInfo", "") for commit in commits),
            kills=kills,
            dropped=proxy.count("answer dropped"),
            conflicts=proxy.count("conflict"),
            seconds=time.monotonic() - raced,
            failures=[f"{w}: {line}" for w, lines in journals.items() for line in lines if line.startswith("failed")],
        )


class _Children:
    def __init__(self, race: Race, uri: str, folder: Path, environment: Mapping[str, str]) -> None:
        self._race, self._uri, self._folder, self._environment = race, uri, folder, environment
        self._running = {writer: self._start(writer) for writer in race.writers}

    def all_appended(self) -> bool:
        """Whether each writer has appended a row."""
        journals = (self._folder / writer for writer in self._running)
        return all(journal.exists() and "done" in journal.read_text() for journal in journals)

    def kill(self, writer: str) -> None:
        self._running[writer].kill()

    def start_again(self) -> None:
        for writer, child in self._running.items():
            if child.exit_code() is not None:
                child.kill()  # and what is left of its group
                self._running[writer] = self._start(writer)

    def kill_all(self) -> None:
        for child in self._running.values():
            child.kill()

    def _start(self, writer: str) -> Child:
        module = [sys.executable, "-m", "tests.faults.storage.s3_writer"]
        command: list[str | Path] = [*module, writer, self._uri, self._folder / writer, self._race.log_store]
        return Child(command, log=self._folder / f"{writer}.log", environment=self._environment)


@contextmanager
def _writers(race: Race, uri: str, folder: Path, environment: Mapping[str, str]) -> Iterator[_Children]:
    children = _Children(race, uri, folder, environment)
    try:
        yield children
    finally:
        children.kill_all()


def _fault(race: Race, chance: random.Random, request: Request) -> Fault:
    if request.is_put and chance.random() < race.drop:
        return "answer dropped"
    # Only for our log store: how delta-rs takes a 409 is its own affair.
    if request.conditional and "Hadoop" in request.client and chance.random() < race.conflict:
        return "conflict"
    return "none"


def _is_sparks_commit(request: Request) -> bool:
    return request.is_put and "Hadoop" in request.client and "/_delta_log/" in request.path


def _rows(journals: Mapping[str, list[str]], word: str) -> set[Row]:
    return {(w, int(line.split()[1])) for w, lines in journals.items() for line in lines if line.split()[0] == word}


def main() -> None:
    """Run one race on a server of its own and print the outcome; exit code 1 if a row was lost or doubled."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--commits", type=int, default=500)
    parser.add_argument("--limit-seconds", type=float, default=500.0)
    parser.add_argument("--spark", type=int, default=3)
    parser.add_argument("--delta-rs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kill-seconds", type=float, default=15.0)
    parser.add_argument("--hold-seconds", type=float, default=0.0)
    parser.add_argument("--drop", type=float, default=0.1)
    parser.add_argument("--conflict", type=float, default=0.03)
    parser.add_argument("--deltas-store", action="store_true", help="Delta's own log store in place of ours")
    options = parser.parse_args()
    race = Race(
        commits=options.commits,
        spark=options.spark,
        delta_rs=options.delta_rs,
        limit_seconds=options.limit_seconds,
        drop=options.drop,
        conflict=options.conflict,
        kill_seconds=options.kill_seconds,
        hold_seconds=options.hold_seconds,
        log_store=DELTAS_STORE if options.deltas_store else "",
        seed=options.seed,
    )
    with tempfile.TemporaryDirectory() as folder:
        server = start_s3_server(Path(folder) / "s3")
        os.environ.update(server.environment())
        uri = f"{server.create_bucket('race')}/lake/table"
        (Path(folder) / "journals").mkdir()
        outcome = run(race, server, uri, Path(folder) / "journals", Settings.from_environment().home)
        server.stop()
    sys.stdout.write(f"{outcome}\n" + "".join(f"  {line}\n" for line in outcome.failures[:20]))
    sys.exit(bool(outcome.lost or outcome.doubled or outcome.unknown))


if __name__ == "__main__":
    main()
