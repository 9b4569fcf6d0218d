"""Signals to drains of Kinesis in processes of their own, attached to a warm driver."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kdi_assets.errors import Transient
from kdi_assets.streams.drain.report import DrainReport
from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.faults.conftest import DoomedFactory
from tests.faults.doomed_drain import COMMIT_CHECKED, Doomed
from tests.kinesis.drains import EFO, NEVER_NEAR_MS, POLLING, Put, meanwhile

scenario = pytest.mark.scenario
MID_CAPTURE = "mid-capture"
"""The shards are read, and no plan is made yet."""
BEFORE_THE_COMMIT = (MID_CAPTURE, "before reading", "dead letters written", "accounted for", COMMIT_CHECKED)


def _signalled(orders: Put, doomed: DoomedFactory, point: str, number: signal.Signals) -> Doomed:
    """A drain that gets the signal at the point; mid-capture it gets it from here."""
    process = doomed(orders, point, number)
    if point == MID_CAPTURE:
        operation = "SubscribeToShard" if orders.by_fan_out else "GetRecords"
        calls = orders.server.calls(operation) + (1 if orders.by_fan_out else 12)
        orders.server.behaviour.least_behind_ms = NEVER_NEAR_MS
        meanwhile(orders.server, lambda: process.send(number), operation=operation, calls=calls).result()
        orders.server.behaviour.least_behind_ms = 0
    return process


@pytest.mark.parametrize(
    ("number", "mode"),
    [(signal.SIGKILL, POLLING), (signal.SIGTERM, EFO)],
    ids=["killed, polling", "terminated, efo"],
)
@scenario(
    "killed before reading",
    "killed after files are written",
    "killed between dead letters and commit",
    "killed during the commit",
    "killed after the commit, before Dagster's event",
    "Kinesis: subscriptions taken, ended, cut off",
)
def test_drains_that_end_at_every_point_in_turn_leave_nothing_half_done(
    spark: SparkSession, lake: str, server: KinesisServer, doomed: DoomedFactory, number: signal.Signals, mode: Any
) -> None:
    """Purpose: a process may end anywhere; the warm driver, and a subscription of its task, outlive it.
    Procedure: records wait; at each point in turn, from the reading of the shards to the commit, a drain in its own
    process, attached to the warm driver, ends by the signal, and more records arrive; drain once more.
    Pass: each died of the signal; only the last left a version; each record is a row or a dead letter once.
    """
    orders = Put(spark, lake, server, shards=2, consumer=mode)
    orders.put(10, bad=1)
    orders.drain()
    begun = DeltaTable(orders.uri).version()

    for point in BEFORE_THE_COMMIT:
        orders.put(5, bad=1)
        assert _signalled(orders, doomed, point, number).exit_code() == -number, point
        assert DeltaTable(orders.uri).version() == begun, point
    assert _signalled(orders, doomed, "commit sent", number).exit_code() == -number
    assert DeltaTable(orders.uri).version() == begun + 1
    orders.put(5)
    server.advance(6)
    orders.drain()

    orders.assert_each_record_once()


@pytest.mark.parametrize("point", [MID_CAPTURE, "before reading", COMMIT_CHECKED])
@pytest.mark.parametrize("mode", [POLLING, EFO], ids=["polling", "efo"])
@scenario("a driver wakes after a long pause", "the same range run twice")
def test_a_drain_that_wakes_after_another_one_took_its_records_commits_nothing_twice(
    spark: SparkSession, lake: str, server: KinesisServer, doomed: DoomedFactory, point: str, mode: Any
) -> None:
    """Procedure: a drain is stopped (SIGSTOP) while its shards are read, with what it captured, or before its commit;
    more records come, and a shard is split; another drain runs to its end; the first is resumed (SIGCONT).
    Pass: it ends by itself, with nothing left to do or a refusal that a retry can help; each record is there once.
    """
    orders = Put(spark, lake, server, shards=2, consumer=mode)
    orders.put(10, bad=1)
    orders.drain()
    orders.put(10, bad=1)
    server.advance(6)
    sleeper = _signalled(orders, doomed, point, signal.SIGSTOP)
    sleeper.await_stopped()
    orders.put(5)
    orders.split_any()
    orders.drain()

    sleeper.send(signal.SIGCONT)
    outcome = sleeper.outcome()

    assert isinstance(outcome, Transient) or (isinstance(outcome, DrainReport) and not outcome.commits), outcome
    orders.assert_each_record_once()
