"""How fresh: from a message's timestamp until a reader sees it in the table; and what it costs when nothing arrives."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tests.deployed import Deployment
from tests.faults.soak.site import Load, System
from tests.faults.soak.watch import Watch, quantile, wait_for

STREAMS, RATE = 5, 200.0
AT_ONCE = "{backlog_messages: 1000, lag_seconds: 1, min_gap_seconds: 2}"
STARTED_SECONDS = 240
WARMED_SECONDS = 30.0
"""The first drains of a new JVM compile what all later ones run; they are not what somebody sees the whole day."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """What was seen; times in seconds, shares of one core."""

    seconds: float
    messages: int
    p50: float
    p95: float
    p99: float
    idle_core: float
    empty_core: float


def measure(
    system: System, seconds: float, *, warmed_seconds: float = WARMED_SECONDS, idle_seconds: float = 60.0
) -> Freshness:
    """Load the streams, watch from outside, leave them alone, and take them away: nothing can follow on this system.

    Args:
        seconds: Of load that count; what is sent in ``warmed_seconds`` before does not.
    """
    watch = Watch(system.streams, system.lake)
    wait_for(lambda: watch.settled() == len(system.streams), seconds=STARTED_SECONDS, what="every stream has its table")
    load, began = Load(system, rate=RATE), datetime.now(UTC)
    time.sleep(warmed_seconds + seconds)  # the load itself
    load.stop()
    topics = {stream.topic for stream in system.streams}
    produced = [m for m in system.publisher.log if m.topic_partition.topic in topics]
    wait_for(lambda: sum(watch.drained().values()) >= len(produced), seconds=120, what="all is drained")
    watch.stop()
    ordered = watch.latencies(produced, since=began + timedelta(seconds=warmed_seconds))
    idle = idle_core(system, seconds=idle_seconds)
    empty = empty_core(system.deployment, seconds=idle_seconds)
    p50, p95, p99 = (quantile(ordered, share) for share in (0.5, 0.95, 0.99))
    return Freshness(seconds, len(ordered), p50, p95, p99, idle_core=idle, empty_core=empty)


def idle_core(system: System, *, seconds: float) -> float:
    """The share of a core that code server, daemon and driver use while nothing arrives."""
    names = ("driver", "code-server", "daemon")
    time.sleep(min(20.0, seconds))  # until the last runs are told of
    before = system.cpu_seconds(*names)
    time.sleep(seconds)
    return (system.cpu_seconds(*names) - before) / seconds


def empty_core(deployment: Deployment, *, seconds: float) -> float:
    """The same of a Dagster without an asset or a sensor, on the same instance, after the streams are gone."""
    deployment.stop()
    (deployment.streams / "defs.yaml").unlink()
    deployment.start("code-server", "daemon")
    system = System(deployment, None, (), None)  # type: ignore[arg-type]
    time.sleep(min(30.0, seconds))  # until both are up
    before = system.cpu_seconds("code-server", "daemon")
    time.sleep(seconds)
    return (system.cpu_seconds("code-server", "daemon") - before) / seconds
