"""`make bench`: our drain against Structured Streaming over the same topic, in one run, in turn, warm and cold."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.topic import DATES, PARTITIONS, published_topic, rows_in
from benchmarks.usage import Usage
from benchmarks.worker import OURS, THEIRS, Round, Worker
from kdi_assets.settings import Settings
from kdi_assets.stream import Stream

WARM_UP_ROUNDS = 2  # the first drain of a cold JVM costs three times a warm one, the second still a little more
ENGINES = (OURS, THEIRS)
console = Console(highlight=False)


@dataclass(frozen=True, slots=True)
class Result:
    """A round that was measured, and checked: the table holds every row."""

    engine: str
    kind: str
    number: int
    rows: int
    usage: Usage

    def as_json(self) -> dict[str, object]:
        """Raw numbers, units in the keys."""
        speed = self.rows / self.usage.wall_seconds
        head = {"engine": self.engine, "kind": self.kind, "round": self.number, "rows": self.rows}
        return {**head, **asdict(self.usage), "rows_per_second": speed}


def main(arguments: Sequence[str] | None = None) -> None:
    """Publish once, measure every round, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web_requests", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5, help="warm rounds of each")
    parser.add_argument("--json", type=Path, help="where to write the figures; default: benchmark.json in KDI_HOME")
    options = parser.parse_args(arguments)
    home = Settings.from_environment().home
    console.print(f"publishing {options.messages:,} messages over {PARTITIONS} topic partitions and {DATES} dates")
    with published_topic(home / "benchmark", messages=options.messages) as stream:
        results = list(all_rounds(stream, home / "benchmark" / "lake", options.messages, options.rounds))
    show(results)
    path = options.json or home / "benchmark.json"
    path.write_text(json.dumps(report(results), indent=2) + "\n")
    console.print(f"written to {path}")


def all_rounds(stream: Stream, lake: Path, messages: int, rounds: int) -> Iterator[Result]:
    """Cold first, each in a process of its own; then one process for the warm rounds of both."""

    def run(worker: Worker, engine: str, kind: str, number: int) -> Result:
        rmtree(lake, ignore_errors=True)
        usage = worker.carry_out(Round(engine, stream, lake, cold=kind == "cold"))
        rows = rows_in(stream, lake)
        if rows != messages:
            sys.exit(f"{engine}, {kind} round {number}: the table holds {rows:,} rows, not {messages:,}")
        result = Result(engine, kind, number, rows, usage)
        console.print(f"{kind} {number} {engine}: {usage.wall_seconds:.1f} s, CPU {usage.cpu_seconds:.1f} s")
        return result

    for engine in ENGINES:
        worker = Worker()
        try:
            yield run(worker, engine, "cold", 1)
        finally:
            worker.close()
    worker = Worker()
    try:
        for number in range(1 - WARM_UP_ROUNDS, rounds + 1):
            # Who comes second finds the other's garbage on the heap: they take turns in that too.
            for engine in sorted(ENGINES, reverse=number % 2 == 0):
                result = run(worker, engine, "warm" if number > 0 else "warm-up", number)
                if number > 0:
                    yield result
    finally:
        worker.close()


def medians(results: Sequence[Result], engine: str, kind: str) -> Usage:
    """Each figure's median over the rounds of that kind."""
    usages = [r.usage for r in results if (r.engine, r.kind) == (engine, kind)]
    walls, cpus, peaks = zip(*(asdict(usage).values() for usage in usages), strict=True)
    return Usage(median(walls), median(cpus), round(median(peaks)))


def ratio(results: Sequence[Result], kind: str) -> tuple[float, float]:
    """Ours over theirs: CPU seconds and wall seconds, of the medians."""
    ours, theirs = (medians(results, engine, kind) for engine in (OURS, THEIRS))
    return ours.cpu_seconds / theirs.cpu_seconds, ours.wall_seconds / theirs.wall_seconds


def show(results: Sequence[Result]) -> None:
    """The medians as a table, and the ratio."""
    table = Table("ENGINE", "KIND", "WALL s", "CPU s", "ROWS/s", "PEAK RSS", title="medians")
    for kind in ("cold", "warm"):
        for engine in ENGINES:
            usage = medians(results, engine, kind)
            speed = results[0].rows / usage.wall_seconds
            figures = (f"{usage.wall_seconds:.2f}", f"{usage.cpu_seconds:.2f}", f"{speed:,.0f}")
            table.add_row(engine, kind, *figures, f"{usage.peak_rss_bytes / 1e6:,.0f} MB")
    console.print(table)
    for kind in ("cold", "warm"):
        cpu, wall = ratio(results, kind)
        # The line that others look for is the last: warm CPU.
        console.print(
            f"{'ratio' if kind == 'warm' else 'ratio, cold'}: {cpu:.2f} in CPU seconds, {wall:.2f} in wall seconds"
        )


def report(results: Sequence[Result]) -> dict[str, object]:
    """Everything, for comparison with later runs."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "messages": results[0].rows,
        "ratio_warm_cpu": ratio(results, "warm")[0],
        "ratio_warm_wall": ratio(results, "warm")[1],
        "ratio_cold_cpu": ratio(results, "cold")[0],
        "medians": [
            {"engine": engine, "kind": kind, **asdict(medians(results, engine, kind))}
            for kind in ("cold", "warm")
            for engine in ENGINES
        ],
        "rounds": [result.as_json() for result in results],
    }


if __name__ == "__main__":
    main()
