"""Many streams, a tenth of them behind at once: how long until all are drained, through one Spark session."""

from __future__ import annotations

from dataclasses import dataclass

from kdi_assets.sources.generator import Traffic, WebRequests
from tests.faults.soak.site import System
from tests.faults.soak.watch import Watch, wait_for

PER_STREAM = 200
USUAL = "{backlog_messages: 100, lag_seconds: 60}"


@dataclass(frozen=True, slots=True)
class Many:
    """What was seen, in seconds.

    Attributes:
        settled: Until each of the streams had its table, from nothing.
        drained: From the last message published until the last of the lagging streams had it in its table.
        runs: That Dagster started for it.
    """

    streams: int
    lagging: int
    settled: float
    drained: float
    runs: int


def measure(system: System, lagging: int) -> Many:
    """Let all streams of a new system get their tables; then let some lag at the same moment."""
    streams = len(system.streams)
    with system.deployment.instance() as instance:
        watch = Watch(system.streams, system.lake)
        settled = wait_for(
            lambda: watch.settled() == streams, seconds=240 + 6 * streams, what="every stream is settled"
        )
        wait_for(lambda: all(run.is_finished for run in instance.get_runs()), seconds=60, what="the runs have ended")
        before, behind = instance.get_runs_count(), system.streams[:: streams // lagging][:lagging]
        system.publish(behind, PER_STREAM * lagging, traffic=WebRequests(Traffic(seed=1)))
        system.publisher.flush()
        drained = wait_for(
            lambda: sum(watch.drained().values()) == PER_STREAM * lagging, seconds=300, what="all lagging are drained"
        )
        watch.stop()
        return Many(streams, lagging, settled, drained, instance.get_runs_count() - before)
