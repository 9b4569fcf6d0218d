"""`python -m benchmarks.cluster`: one million messages by two workers of a Spark cluster, beside `local[2]`, by turns.

Both have two cores for tasks, on the same machine. CPU is that of the driver and its JVM, with the cluster's also that
of its workers and executors; the broker's is not counted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from statistics import median

import psutil
from rich.console import Console

from benchmarks.contents import CONTENTS
from benchmarks.topic import Topic, benchmark_cluster
from kdi_assets.audit.audit import audit
from kdi_assets.drain.drain import drain
from kdi_assets.settings import Settings
from kdi_assets.stream.stream import Stream
from tests.driven import web_requests
from tests.faults.cluster_driver import ClusterDriver
from tests.standalone import Standalone

LOCAL, CLUSTER = "local[2]", "two workers"
CONFIG = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "1g"}
console = Console(highlight=False, soft_wrap=True)
ENVIRONMENT = {"SPARK_SUBMIT_OPTS": "", "SPARK_DRIVER_MEMORY": "2g"}


@dataclass(frozen=True, slots=True)
class Took:
    """A drain's cost."""

    wall_seconds: float
    cpu_seconds: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="after one that warms the JVMs; default: %(default)s")
    options = parser.parse_args(arguments)
    home = Settings.from_environment().home
    with benchmark_cluster(home / "benchmark") as cluster:
        topic = Topic(cluster, "clean", CONTENTS["clean"])
        topic.publish(options.messages)
        stream = replace(web_requests(topic.name, cluster), max_records=options.messages)
        standalone = Standalone(_empty(home / "benchmark" / "standalone"), home=home)
        try:
            measured(stream, standalone, home=home, rounds=options.rounds, messages=options.messages)
        finally:
            standalone.stop()


def measured(stream: Stream, standalone: Standalone, *, home: Path, rounds: int, messages: int) -> None:
    """Drain by turns into new tables, audit the last ones, print the medians."""
    masters, lake = {LOCAL: LOCAL, CLUSTER: standalone.master}, home / "benchmark" / "lake"
    drivers = {
        name: ClusterDriver(
            Settings(home, str(lake), stream.cluster.bootstrap_servers, master),
            config={**CONFIG, "spark.local.dir": str(standalone.hidden)},
            environment=ENVIRONMENT,
            messages_per_task=None,
        )
        for name, master in masters.items()
    }
    took: dict[str, list[Took]] = {name: [] for name in drivers}
    for number in range(rounds + 1):
        for name, driver in drivers.items():
            processes = [driver.pid, *(child.pid for child in standalone.workers.values() if name == CLUSTER)]
            before, begun = _cpu_seconds(processes), time.monotonic()
            report = driver.call(drain, stream, lake=str(_empty(lake / name.replace(" ", "_"))))
            found = Took(time.monotonic() - begun, _cpu_seconds(processes) - before)
            console.print(f"round {number}, {name}: {report.rows_added:,} rows, {found}")
            took[name] += [found] if number else []
    for name, driver in drivers.items():
        report = driver.call(audit, stream, lake=str(lake / name.replace(" ", "_")))
        console.print(f"{name}: audit complete: {report.complete}, of {messages:,} messages")
        driver.stop()
    middle = {
        name: Took(median(t.wall_seconds for t in found), median(t.cpu_seconds for t in found))
        for name, found in took.items()
    }
    for name, found in middle.items():
        console.print(f"| {name} | {found.wall_seconds:.1f} s | {found.cpu_seconds:.1f} s |")
    wall = middle[CLUSTER].wall_seconds / middle[LOCAL].wall_seconds
    cpu = middle[CLUSTER].cpu_seconds / middle[LOCAL].cpu_seconds
    console.print(f"the cluster takes {wall:.2f} times the time and {cpu:.2f} times the CPU")


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
