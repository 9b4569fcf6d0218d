"""What a run, a stream in a run and a tick cost: measured in a deployment with a broker, PostgreSQL and Spark."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import linear_regression, median

import psutil
from dagster import DagsterInstance

from benchmarks.idle_streams import tick_costs
from benchmarks.page import commit_of
from benchmarks.stream_simulation import Cost, Costs, measured_drains
from benchmarks.worker import HERE
from kdi_assets.tools.local.generator import Traffic, WebRequests
from tests.faults.soak.site import STARTED_SECONDS, System, running_system, wait_for

UNITS = ("driver", "code-server", "daemon")
MESSAGES = 1000
"""Of each stream of a round, as in the smallest drain of docs/benchmarks.md."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured, and where.

    Attributes:
        run_cpu, run_wall: A run without its streams; from its request to its end.
        stream_cpu, stream_wall: Each stream in it, with 1,000 messages.
        files: New files in the lake for each drain.
        idle_core: Share of a core that the idle deployment uses.
        tick_cpu: CPU seconds of a tick for each stream.
    """

    date: str
    commit: str
    load: float
    rounds: int
    run_cpu: float
    run_wall: float
    stream_cpu: float
    stream_wall: float
    files: float
    idle_core: float
    tick_cpu: float

    def costs(self) -> Costs:
        run, stream = Cost(self.run_cpu, self.run_wall), Cost(self.stream_cpu, self.stream_wall)
        return Costs(run, stream, measured_drains(), tick_cpu=self.tick_cpu)


@dataclass(frozen=True, slots=True)
class Round:
    """One run: its streams, CPU seconds beyond idle, seconds from request to end, files it wrote."""

    streams: int
    cpu: float
    wall: float
    files: int


def measure(sizes: Sequence[int] = (1, 2, 1, 2, 1, 2)) -> Measured:
    """Rounds of one run each, in a deployment whose driver is warm."""
    load = os.getloadavg()[0]
    # Without a gap after a drain, or streams whose last drains were at different times would never be due together.
    drain_when = "{backlog_messages: 100, lag_seconds: 60, min_gap_seconds: 0}"
    with running_system(streams=max(sizes), drain_when=drain_when) as system:
        wait_for(system.settled, seconds=STARTED_SECONDS, what="every stream has its table")
        with system.deployment.instance() as instance:
            measure_round = _rounds(system, instance)
            for streams in (*sizes[:2], *sizes[:2]):  # a JVM's first drains compile the code for all later ones
                measure_round(streams, 0.0)
            before = _cpu(system)
            time.sleep(30)  # the measured time
            idle = (_cpu(system) - before) / 30
            rounds = [measure_round(streams, idle) for streams in sizes]
    counts = [one.streams for one in rounds]
    stream_cpu, run_cpu = linear_regression(counts, [one.cpu for one in rounds])
    stream_wall, run_wall = linear_regression(counts, [one.wall for one in rounds])
    _, *ticks = tick_costs(300, ticks=6)  # the first one reads every log
    return Measured(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        commit=commit_of(HERE),
        load=round(load, 1),
        rounds=len(rounds),
        run_cpu=round(max(0.0, run_cpu), 3),
        run_wall=round(max(0.0, run_wall), 3),
        stream_cpu=round(stream_cpu, 3),
        stream_wall=round(stream_wall, 3),
        files=round(sum(one.files for one in rounds) / sum(counts), 2),
        idle_core=round(idle, 3),
        tick_cpu=round(median(cost.cpu_seconds for cost in ticks) / 300, 6),
    )


def _rounds(system: System, instance: DagsterInstance) -> Callable[[int, float], Round]:
    traffic = WebRequests(Traffic(seed=1))

    def finished() -> bool:
        return all(run.is_finished for run in instance.get_runs())

    def one(streams: int, idle: float, tries: int = 10) -> Round:
        wait_for(finished, seconds=120, what="the runs have ended")
        runs, files, before, began = instance.get_runs_count(), _files(system), _cpu(system), time.monotonic()
        system.publish(system.streams[:streams], MESSAGES * streams, traffic=traffic)
        system.publisher.flush()
        wait_for(lambda: system.drained() and finished(), seconds=120, what="all is drained")
        spent = _cpu(system) - before - idle * (time.monotonic() - began)
        made = instance.get_run_records(limit=instance.get_runs_count() - runs)
        if len(made) != 1:  # a tick fell between two topics, or the sensor expects more seconds than one run has
            if tries == 1:
                raise SystemExit(f"{streams} streams never shared one run. Repeat it while nothing else runs.")
            return one(streams, idle, tries - 1)
        wall = (made[0].end_time or 0.0) - made[0].create_timestamp.timestamp()
        return Round(streams, spent, wall, _files(system) - files)

    return one


def _cpu(system: System) -> float:
    """CPU seconds of the units and of PostgreSQL."""
    pid = int((Path(system.deployment.environment["PGHOST"]) / "postmaster.pid").read_text().split()[0])
    postgres = psutil.Process(pid)
    spent = sum(postgres.cpu_times()[:4])  # with its ended children
    for child in postgres.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a connection's process ends with it
            spent += sum(child.cpu_times()[:4])
    return system.cpu_seconds(*UNITS) + spent


def _files(system: System) -> int:
    """Files of the lake without Hadoop's checksums, which exist only on a local disk."""
    files = [path.name for path in Path(system.lake).rglob("*") if path.is_file()]
    return sum(not (name.startswith(".") and name.endswith(".crc")) for name in files)
