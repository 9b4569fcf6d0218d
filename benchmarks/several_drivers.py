"""Small drains of eight streams, four at a time, in one warm driver and shared by two on the same cores, by turns.

Usage: ``python -m benchmarks.several_drivers [--rounds N] [--write]``; with ``--write`` the figures go into
docs/many-streams.md. Each round publishes as many messages into every topic, and both settings drain them into tables
of their own. CPU is that of the drivers with their JVMs, and of the processes that drain; the broker's is not counted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from benchmarks.contents import CONTENTS
from benchmarks.harness import beginning, console, hold, medians, option_parser, own_broker, own_folder, show_section
from benchmarks.page import Measured, table_lines
from benchmarks.topic import Topic
from kdi_assets.documents.model.stream import Stream
from kdi_assets.runtime.spark import close_session, open_session
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.drain import drain
from tests.driven import web_requests
from tests.faults.doomed_drain import processes
from tests.faults.warm_driver import WarmDriver

PAGE, BEGIN = "docs/many-streams.md", "<!-- what `python -m benchmarks.several_drivers` measured -->"
STREAMS, AT_ONCE, MESSAGES = 8, 4, 1000
SETTINGS: Mapping[str, int] = {"one driver": 1, "two drivers": 2}
WARM_UP = 3
"""Rounds that are not counted: a JVM's first drains compile the code for all later ones."""
COMPILED = {"SPARK_SUBMIT_OPTS": "", "SPARK_DRIVER_MEMORY": "1500m"}


@dataclass(frozen=True, slots=True)
class Took:
    """The cost of a round: all drains of a setting."""

    cpu_seconds: float
    wall_seconds: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write if asked."""
    options = option_parser("several_drivers", __doc__, rounds=4, write=PAGE).parse_args(arguments)
    begun = beginning()
    with own_folder() as folder, own_broker(folder) as cluster:
        topics = [Topic(cluster, f"stream_{n}", CONTENTS["clean"]) for n in range(STREAMS)]
        streams = [web_requests(topic.name, cluster) for topic in topics]
        took: dict[str, list[Took]] = {name: [] for name in SETTINGS}
        with ExitStack() as stack:
            drivers = {n: stack.enter_context(_drivers(folder / f"{count}", count)) for n, count in SETTINGS.items()}
            for number in range(WARM_UP + options.rounds):
                for topic in topics:
                    topic.publish(MESSAGES)
                for name in list(SETTINGS)[:: 1 if number % 2 else -1]:
                    found = _round(streams, drivers[name])
                    console.print(f"round {number - WARM_UP}, {name}: {found}")
                    took[name] += [found] if number >= WARM_UP else []
    show_section(as_markdown(took, begun), BEGIN, PAGE, write=options.write)


@contextmanager
def _drivers(home: Path, count: int) -> Iterator[list[WarmDriver]]:
    home.mkdir()
    with ExitStack() as stack:
        started = []
        for number in range(1, count + 1):
            started.append(WarmDriver(home, COMPILED, number=number))
            stack.callback(started[-1].stop)
        yield started


def _round(streams: Sequence[Stream], drivers: Sequence[WarmDriver]) -> Took:
    """Drain all streams, in as many processes as Dagster runs at once."""
    home, context, began = drivers[0].home, processes(), time.monotonic()
    settings = Settings(home, str(home / "lake"), driver="shared")
    before = sum(map(_cpu_seconds, drivers))
    running = []
    for number in range(AT_ONCE):
        ours, theirs = context.Pipe(duplex=False)
        process: Any = context.Process(target=_drain, args=(streams[number::AT_ONCE], settings, theirs))
        process.start()
        theirs.close()
        running.append((process, ours))
    cpu, rows = 0.0, 0
    for process, ours in running:
        spent, added = ours.recv()
        process.join()
        cpu, rows = cpu + spent, rows + added
    hold(rows == len(streams) * MESSAGES, f"{rows} rows came of {len(streams) * MESSAGES} messages")
    wall = time.monotonic() - began
    return Took(round(cpu + sum(map(_cpu_seconds, drivers)) - before, 2), round(wall, 2))


def _drain(streams: Sequence[Stream], settings: Settings, answer: Connection) -> None:
    """In a process like that of a run: drain one stream after the other."""
    session = open_session(settings)
    reports = [drain(stream, lake=settings.lake, session=lambda: session) for stream in streams]
    close_session(session)
    times = os.times()
    answer.send((times.user + times.system, sum(report.rows_added for report in reports)))


def _cpu_seconds(driver: WarmDriver) -> float:
    tree = [psutil.Process(driver.pid), psutil.Process(driver.jvm())]
    return float(sum(sum(process.cpu_times()[:2]) for process in tree))


def as_markdown(took: Mapping[str, Sequence[Took]], begun: Measured) -> str:
    """When and where it was measured, and the median for each drain; wall seconds are shown in the rounds only."""
    middle = {name: medians(found, "cpu_seconds")[0] / STREAMS for name, found in took.items()}
    one, two = middle.values()
    rows = [*((name, f"{cpu:.2f}") for name, cpu in middle.items()), ("two / one", f"{two / one:.2f}")]
    return "\n".join(
        [
            f"{begun.where()} {STREAMS} streams, {MESSAGES:,} messages each, {AT_ONCE} drains at once, "
            f"{len(next(iter(took.values())))} rounds by turns, medians, of each drain:",
            "",
            *table_lines(("", "CPU s"), rows),
        ]
    )


if __name__ == "__main__":
    main()
