"""Processes are killed under load: nothing is lost or doubled, nothing hangs, Dagster shows every date."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random

import psutil
from dagster import DagsterInstance

from kdi_assets.components.names import pool, table_key
from kdi_assets.documents.model.stream import Stream
from tests.faults.soak.site import STARTED_SECONDS, Load, System, wait_for
from tests.oracle import assert_each_offset_once, read_back

STREAMS, RATE, BAD = 5, 50.0, 0.02
AT_ONCE = "{backlog_messages: 50, lag_seconds: 2, min_gap_seconds: 2}"
RECOVERED_SECONDS = 300
WORKER_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Killed:
    """What was done, and the state at the end."""

    seconds: float
    kills: Mapping[str, int]
    messages: int
    commits: int
    runs: int
    runs_failed: int
    recovered_seconds: float


def measure(system: System, seconds: float, *, each: int, seed: int) -> Killed:
    """Kill each kind of process this often, at random moments of the load; then ask the oracle and Dagster.

    Raises:
        AssertionError: A message is lost or doubled, a date is not shown, a run hangs, a pool has no slot.
    """
    with system.deployment.instance() as instance:
        random = Random(seed)
        wait_for(system.settled, seconds=STARTED_SECONDS, what="every stream has its table")
        load = Load(system, rate=RATE, bad=BAD, seed=seed)
        done = _kill(system, _schedule(random, seconds, each=each), random)
        load.stop()
        recovered = wait_for(lambda: _at_rest(system, instance), seconds=RECOVERED_SECONDS, what="all is at rest")
        check(system, instance, seed=seed)
        failed = sum(run.is_failure for run in instance.get_runs())
        messages, runs = len(system.produced()), instance.get_runs_count()
        return Killed(seconds, done, messages, len(system.drains()), runs, failed, recovered)


def _schedule(random: Random, seconds: float, *, each: int) -> list[tuple[float, str]]:
    return sorted((random.uniform(0.05, 0.9) * seconds, kind) for kind in KILLS for _ in range(each))


def _kill(system: System, schedule: list[tuple[float, str]], random: Random) -> Counter[str]:
    began, done = time.monotonic(), Counter[str]()
    for at, kind in schedule:
        time.sleep(max(0.0, began + at - time.monotonic()))  # the schedule is under test
        done[kind] += KILLS[kind](system, random)
    return done


def _kill_daemon(system: System, random: Random) -> bool:
    system.deployment.services["daemon"].kill_group()
    return True


def _kill_worker(system: System, random: Random) -> bool:
    """Kill the process of a run; waits for one."""
    until = time.monotonic() + WORKER_SECONDS
    while time.monotonic() < until:
        with suppress(psutil.Error, StopIteration):  # it starts
            if workers := system.deployment.run_workers():
                os.kill(random.choice(workers).pid, signal.SIGKILL)
                return True
        time.sleep(0.05)
    return False


def _kill_driver(system: System, random: Random) -> bool:
    """Kill the JVM, or the process around it."""
    driver = system.deployment.services["driver"]
    with suppress(psutil.Error, ProcessLookupError):
        jvms = psutil.Process(driver.pid).children()
        os.kill(random.choice([driver.pid, *(jvm.pid for jvm in jvms)]), signal.SIGKILL)
        return True
    return False


def _kill_broker(system: System, random: Random) -> bool:
    system.broker.kill()
    time.sleep(random.uniform(0.0, 3.0))  # sometimes, every process notices
    system.broker.restart()
    return True


KILLS: Mapping[str, Callable[[System, Random], bool]] = {
    "daemon": _kill_daemon,
    "run worker": _kill_worker,
    "driver": _kill_driver,
    "broker": _kill_broker,
}


def _at_rest(system: System, instance: DagsterInstance) -> bool:
    """Whether nothing waits, no run is unfinished, and every commit has its events."""
    finished = all(run.is_finished for run in instance.get_runs())
    return system.drained() and finished and not _untold(system, instance)


def _untold(system: System, instance: DagsterInstance) -> list[str]:
    """Dates of tables that Dagster does not show as materialized; after a crash the next ticks report them."""
    missing = []
    for stream in system.streams:
        dates = {row["date"].isoformat() for row in read_back(stream, system.lake).rows}
        missing += [f"{stream.name} {d}" for d in dates - instance.get_materialized_partitions(table_key(stream))]
    return missing


def check(system: System, instance: DagsterInstance, *, seed: int) -> None:
    """What must hold at the end.

    Raises:
        AssertionError: It does not.
    """
    assert not system.publisher.failures, f"the broker lost messages itself: {system.publisher.failures[:3]}"
    for stream in system.streams:
        produced = replace(system, streams=[stream]).produced()
        assert_each_offset_once(produced, read_back(stream, system.lake), seed=seed)
    assert not (missing := _untold(system, instance)), f"not shown as materialized: {missing}"
    assert not (held := [s.name for s in system.streams if _slots(instance, s)]), f"pools without a slot: {held}"


def _slots(instance: DagsterInstance, stream: Stream) -> int:
    """Slots of the stream's pool that are held, or waited for."""
    found = instance.event_log_storage.get_concurrency_info(pool(stream))
    return found.active_slot_count + found.pending_step_count
