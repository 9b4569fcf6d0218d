"""The measurements of a deployment: how fresh its tables are, what idle costs, how many streams can lag at once."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from kdi_assets.tools.local.generator import Traffic, WebRequests
from tests.faults.soak.site import STARTED_SECONDS, Load, System, wait_for

RATE = 200.0
AT_ONCE = "{backlog_messages: 1000, lag_seconds: 1, min_gap_seconds: 2}"
USUAL = "{backlog_messages: 100, lag_seconds: 60}"
WARMED_SECONDS = 30.0
"""The first drains of a new JVM compile the code for all later ones; they are not typical."""
PER_STREAM = 200
UNITS = ("driver", "code-server", "daemon")


@dataclass(frozen=True, slots=True)
class Freshness:
    """The result; times in seconds, shares of one core.

    Attributes:
        drains: Commits during the measured load.
        busy_cores: What driver, code server with its runs, and daemon use under load.
    """

    seconds: float
    messages: int
    drains: int
    busy_cores: float
    p50: float
    p95: float
    p99: float
    idle_core: float
    empty_core: float


def freshness(
    system: System, seconds: float, *, warmed_seconds: float = WARMED_SECONDS, idle_seconds: float = 60.0
) -> Freshness:
    """Load the streams, leave them idle, and remove them: nothing can follow on this system.

    Args:
        seconds: Measured load; the load of ``warmed_seconds`` before it does not count.
    """
    wait_for(system.settled, seconds=STARTED_SECONDS, what="every stream has its table")
    load, began = Load(system, rate=RATE), datetime.now(UTC)
    time.sleep(warmed_seconds)
    cpu_before = system.cpu_seconds(*UNITS)
    time.sleep(seconds)  # the load itself
    busy = (system.cpu_seconds(*UNITS) - cpu_before) / seconds
    load.stop()
    wait_for(system.drained, seconds=120, what="all is drained")
    drains = system.drains()
    visible = {
        (counts.range.topic_partition, offset): seen_at
        for seen_at, entry in drains
        for counts in entry.ranges
        for offset in range(counts.range.start, counts.range.end)
    }
    warmed = began + timedelta(seconds=warmed_seconds)
    under_load = [at for at, _ in drains if warmed <= at < warmed + timedelta(seconds=seconds)]
    counted = [m for m in system.produced() if m.timestamp >= warmed]
    ordered = sorted((visible[m.topic_partition, m.offset] - m.timestamp).total_seconds() for m in counted)
    p50, p95, p99 = (ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.95, 0.99))
    idle = _idle_core(system, *UNITS, seconds=idle_seconds)
    # A Dagster without an asset or a sensor, on the same instance.
    system.deployment.stop()
    (system.deployment.streams / "defs.yaml").unlink()
    system.deployment.start("code-server", "daemon")
    empty = _idle_core(system, "code-server", "daemon", seconds=idle_seconds)
    return Freshness(seconds, len(ordered), len(under_load), busy, p50, p95, p99, idle_core=idle, empty_core=empty)


def _idle_core(system: System, *names: str, seconds: float) -> float:
    """The share of a core that the units use without messages."""
    time.sleep(min(30.0, seconds))  # until all are up, and the last runs have their events
    before = system.cpu_seconds(*names)
    time.sleep(seconds)
    return (system.cpu_seconds(*names) - before) / seconds


@dataclass(frozen=True, slots=True)
class Many:
    """The result, in seconds.

    Attributes:
        settled: Until each of the streams had its table, from nothing.
        drained: From the last message published until the last of the lagging streams had it in its table.
        runs: The runs that Dagster started for it.
    """

    settled: float
    drained: float
    runs: int


def many(system: System, lagging: int) -> Many:
    """Let all streams of a new system create their tables; then let some lag at the same moment."""
    streams = len(system.streams)
    with system.deployment.instance() as instance:
        settled = wait_for(system.settled, seconds=STARTED_SECONDS + 6 * streams, what="every stream has its table")
        wait_for(lambda: all(run.is_finished for run in instance.get_runs()), seconds=60, what="the runs have ended")
        before = instance.get_runs_count()
        behind = replace(system, streams=system.streams[:: streams // lagging][:lagging])
        system.publish(behind.streams, PER_STREAM * lagging, traffic=WebRequests(Traffic(seed=1)))
        system.publisher.flush()
        drained = wait_for(behind.drained, seconds=300, what="all lagging are drained")
        return Many(settled, drained, instance.get_runs_count() - before)
