"""The loads of `make soak`, shortened and on one system: what must hold is the same, and no figure is asserted.

The last of them leaves no stream behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kdi_assets.tools.local.broker import QUICK_START
from tests.faults.soak import killing, loads
from tests.faults.soak.site import System, running_system

scenario = pytest.mark.scenario
STREAMS, LAGGING, KILLED, LOADED = 12, 6, 5, 3


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    """One for all: most of what they cost is its start."""
    with running_system(
        streams=STREAMS, drain_when=killing.AT_ONCE, jvm_options=QUICK_START, monitoring_seconds=1
    ) as system:
        yield system


def some(system: System, count: int) -> System:
    """The system, with so many of its streams to be loaded and looked at."""
    return replace(system, streams=system.streams[:count])


def test_streams_that_lag_at_once_are_drained_in_few_runs(system: System) -> None:
    seen = loads.many(system, LAGGING)

    assert seen.runs < LAGGING


@scenario("sensor daemon crashes, ticks are slow", "killed during the commit")
def test_kills_of_daemon_run_driver_and_broker_under_load_lose_and_double_nothing(
    system: System, pytestconfig: pytest.Config
) -> None:
    """Purpose: what each test kills alone, a bad day kills in turn.
    Procedure: five streams under load in a whole deployment; daemon, run worker, driver and broker are killed.
    Pass: the oracle closes on every stream, every touched date is shown, no run is left, no slot is held.
    """
    seen = killing.measure(some(system, KILLED), 20, each=1, seed=pytestconfig.getoption("--seed"))

    assert set(seen.kills.values()) == {1}


def test_messages_of_a_steady_load_are_all_seen_in_the_tables(system: System) -> None:
    loaded = some(system, LOADED)
    before = Counter(message.topic_partition.topic for message in loaded.produced())

    seen = loads.freshness(loaded, 4, warmed_seconds=1, idle_seconds=1)

    sent = Counter(message.topic_partition.topic for message in loaded.produced()) - before
    assert seen.messages > 0
    assert len(sent) == LOADED
    assert max(sent.values()) - min(sent.values()) <= 1
    assert 0 < seen.p50 <= seen.p95 <= seen.p99
