"""The loads of `make soak`, shortened: what must hold is the same, and no figure is asserted."""

from __future__ import annotations

import pytest

from tests.faults.soak import freshness, killing, many

scenario = pytest.mark.scenario


def test_messages_of_a_steady_load_are_all_seen_in_the_tables() -> None:
    seen = freshness.measure(10, warmed_seconds=5, idle_seconds=2)

    assert seen.messages > 0
    assert seen.p50 <= seen.p95 <= seen.p99


def test_streams_that_lag_at_once_are_drained_in_few_runs() -> None:
    seen = many.measure(12, 6)

    assert seen.runs <= 2


@scenario("sensor daemon crashes, ticks are slow")
@scenario("killed during the commit")
def test_kills_of_daemon_run_driver_and_broker_under_load_lose_and_double_nothing(pytestconfig: pytest.Config) -> None:
    """Purpose: what each test kills alone, a bad day kills in turn.
    Procedure: five streams under load in a whole deployment; daemon, run worker, driver and broker are killed.
    Pass: the oracle closes on every stream, every touched date is shown, no run is left, no slot is held.
    """
    seen = killing.measure(30, each=1, seed=pytestconfig.getoption("--seed"))

    assert set(seen.kills.values()) == {1}
