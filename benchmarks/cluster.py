"""One million messages drained by two workers of a Spark cluster, beside `local[2]`, by turns.

Usage: ``python -m benchmarks.cluster [--write]``; with ``--write`` the figures go into docs/benchmarks.md. Each has two
cores for tasks, on this machine. CPU is that of the driver and its JVM, with the cluster's also that of its workers and
executors; the broker's is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree

import psutil

from benchmarks.contents import CONTENTS
from benchmarks.harness import beginning, console, hold, medians, option_parser, own_broker, own_folder, show_section
from benchmarks.page import PAGE, Measured, table_lines, with_goal
from benchmarks.topic import Topic
from kdi_assets.documents.model.stream import Stream
from kdi_assets.settings import Settings
from kdi_assets.streams.audit.audit import audit
from kdi_assets.streams.drain.drain import drain
from tests.deployment.standalone import Standalone
from tests.driven import web_requests
from tests.faults.systems.cluster_driver import ClusterDriver

LOCAL, CLUSTER = "local[2]", "two workers"
BEGIN = "<!-- what `python -m benchmarks.cluster` measured -->"
GOAL = 1.2
"""The cluster in terms of ``local[2]``, which has as many cores, of wall seconds."""
CONFIG = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "1g"}
ENVIRONMENT = {"SPARK_SUBMIT_OPTS": "", "SPARK_DRIVER_MEMORY": "2g"}


@dataclass(frozen=True, slots=True)
class Took:
    """A drain's cost."""

    wall_seconds: float
    cpu_seconds: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write if asked."""
    parser = option_parser("cluster", __doc__, rounds=3, write=PAGE)
    parser.add_argument("--messages", type=int, default=1_000_000, help="default: %(default)s")
    options, begun = parser.parse_args(arguments), beginning()
    home = Settings.from_environment().home
    with own_folder() as folder, own_broker(folder) as cluster:
        topic = Topic(cluster, "clean", CONTENTS["clean"])
        topic.publish(options.messages)
        stream = replace(web_requests(topic.name, cluster), max_records=options.messages)
        standalone = Standalone(_empty(folder / "standalone"), home=home)
        try:
            found = measured(stream, standalone, home=home, rounds=options.rounds, messages=options.messages)
        finally:
            standalone.stop()
    text = as_markdown(found, begun, messages=options.messages)
    show_section(text, BEGIN, PAGE, write=options.write)


def measured(
    stream: Stream, standalone: Standalone, *, home: Path, rounds: int, messages: int
) -> dict[str, list[Took]]:
    """Drain by turns into new tables, and audit the last ones."""
    masters, lakes = {LOCAL: LOCAL, CLUSTER: standalone.master}, home / "benchmark" / "lake"
    folders = {name: lakes / name.replace(" ", "_") for name in masters}
    drivers: dict[str, ClusterDriver] = {}
    took: dict[str, list[Took]] = {name: [] for name in masters}
    try:
        for name, master in masters.items():
            drivers[name] = ClusterDriver(
                Settings(home, str(lakes), stream.kafka.bootstrap_servers, master),
                config={**CONFIG, "spark.local.dir": str(standalone.hidden)},
                environment=ENVIRONMENT,
                messages_per_task=None,
            )
        for number in range(rounds + 1):
            for name, driver in drivers.items():
                processes = [driver.pid, *(child.pid for child in standalone.workers.values() if name == CLUSTER)]
                before, begun = _cpu_seconds(processes), time.monotonic()
                report = driver.call(drain, stream, lake=str(_empty(folders[name])))
                found = Took(time.monotonic() - begun, _cpu_seconds(processes) - before)
                console.print(f"round {number}, {name}: {report.rows_added:,} rows, {found}")
                took[name] += [found] if number else []
        for name, driver in drivers.items():
            audited = driver.call(audit, stream, lake=str(folders[name]))
            hold(audited.complete and audited.rows == messages, f"{name}: the audit found {audited}")
            console.print(f"{name}: audit complete, {audited.rows:,} rows")
    finally:
        for driver in drivers.values():
            driver.stop()
    return took


def as_markdown(took: Mapping[str, Sequence[Took]], begun: Measured, *, messages: int) -> str:
    """When and where it was measured, the medians, and the cluster in terms of ``local[2]``."""
    middle = {name: medians(found, "wall_seconds", "cpu_seconds") for name, found in took.items()}
    wall, cpu = (there / here for there, here in zip(middle[CLUSTER], middle[LOCAL], strict=True))
    rows = [(name, *(f"{figure:.1f}" for figure in figures)) for name, figures in middle.items()]
    rows.append((f"{CLUSTER} / {LOCAL}", with_goal(wall, GOAL), f"{cpu:.2f}"))
    return "\n".join(
        [
            f"{begun.where()} {messages:,} messages, {len(took[LOCAL])} rounds, medians; the audit of both tables is "
            "complete.",
            "",
            *table_lines(("", "wall s", "CPU s"), rows),
        ]
    )


def _cpu_seconds(pids: Sequence[int]) -> float:
    """Of these processes and their descendants, ended ones included."""
    trees = [psutil.Process(pid) for pid in pids]
    every = [process for tree in trees for process in (tree, *tree.children(recursive=True))]
    return float(sum(sum(process.cpu_times()[:4]) for process in every))


def _empty(folder: Path) -> Path:
    rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


if __name__ == "__main__":
    main()
