"""`make bench-routes`: three tables of one topic, in one pass and one after the other, in turn in one process."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from statistics import median

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.topic import published_topic, rows_in, three_tables
from benchmarks.usage import Usage
from benchmarks.worker import ONE_PASS, SEPARATE, Round, Worker
from kdi_assets.settings import Settings
from kdi_assets.stream import Stream

WARM_UP_ROUNDS = 2
console = Console(highlight=False)


@dataclass(frozen=True, slots=True)
class Result:
    """A round that was measured, and checked: the tables hold every message once.

    Attributes:
        sent_bytes: What the broker's process wrote meanwhile, nearly all of it to its clients.
    """

    engine: str
    usage: Usage
    sent_bytes: int


def main(arguments: Sequence[str] | None = None) -> None:
    """Publish once, measure every round, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.routes", description=__doc__)
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    folder = Settings.from_environment().home / "benchmark"
    with published_topic(folder, messages=options.messages) as stream:
        (broker,) = psutil.Process().children()
        show(list(measured(stream, folder / "lake", options.messages, options.rounds, broker)))


def measured(stream: Stream, lake: Path, messages: int, rounds: int, broker: psutil.Process) -> Iterator[Result]:
    """Every warm round of both."""
    worker = Worker()
    try:
        for number in range(1 - WARM_UP_ROUNDS, rounds + 1):
            # Who comes second finds the other's garbage on the heap: they take turns in that too.
            for engine in sorted((ONE_PASS, SEPARATE), reverse=number % 2 == 0):
                rmtree(lake, ignore_errors=True)
                before = broker.io_counters().write_chars
                usage = worker.carry_out(Round(engine, stream, lake, cold=False))
                sent = broker.io_counters().write_chars - before
                rows = sum(rows_in(table, lake) for table in three_tables(stream))
                if rows != messages:
                    sys.exit(f"{engine}: the tables hold {rows:,} rows, not {messages:,}")
                console.print(f"{max(number, 0)} {engine}: CPU {usage.cpu_seconds:.1f} s, {sent / 1e6:.1f} MB sent")
                if number > 0:
                    yield Result(engine, usage, sent)
    finally:
        worker.close()


def show(results: Sequence[Result]) -> None:
    """Medians, and how one pass stands to separate drains."""
    table = Table("", "CPU s", "WALL s", "MB SENT", title="medians")
    figures: dict[str, tuple[float, float, float]] = {}
    for engine in (SEPARATE, ONE_PASS):
        seen = [(r.usage.cpu_seconds, r.usage.wall_seconds, r.sent_bytes / 1e6) for r in results if r.engine == engine]
        cpu, wall, sent = (median(column) for column in zip(*seen, strict=True))
        figures[engine] = cpu, wall, sent
        table.add_row(engine, f"{cpu:.2f}", f"{wall:.2f}", f"{sent:.1f}")
    console.print(table)
    cpu, _, sent = (one / each for one, each in zip(figures[ONE_PASS], figures[SEPARATE], strict=True))
    console.print(f"one pass to separate drains: {cpu:.2f} in CPU seconds, {sent:.2f} in bytes that the broker sent")


if __name__ == "__main__":
    main()
