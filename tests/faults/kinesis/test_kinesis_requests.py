"""Requests of a drain that Kinesis throttles, refuses, cuts off or never really answers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.errors import Transient
from kdi_assets.messages.kinesis import client
from kdi_assets.messages.kinesis.errors import KinesisUnanswered
from kdi_assets.runtime.threads import start_in_thread
from kdi_assets.tools.local.kinesis.faults import Fault
from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.faults.kinesis.failing_requests import KINDS, OPERATIONS
from tests.kinesis.drains import EFO, POLLING, Put

pytestmark = pytest.mark.scenario("Kinesis: requests throttled, failed, cut off, repeated")


@pytest.mark.scenario("credentials expire")
@pytest.mark.parametrize("mode", [POLLING, EFO], ids=["polling", "efo"])
def test_whichever_request_of_a_drain_fails_each_record_is_committed_once(
    spark: SparkSession, lake: str, server: KinesisServer, mode: Any, pytestconfig: pytest.Config
) -> None:
    """Purpose: two clients ask some twenty times in a drain of one shard, and each request may fail.
    Procedure: count the requests of a drain; then, for each of them, a drain of new records in which it fails: by a
    limit, an error of the server, a connection that ends in its answer, or keys that have expired, in turn.
    Pass: each drain commits, or ends with a refusal that a retry can help, and the next one commits.
    """
    orders = Put(spark, lake, server, shards=1, consumer=mode)
    for _ in range(2):
        before = {operation: server.calls(operation) for operation in OPERATIONS}
        orders.put(3)
        orders.drain()
        server.advance(6)
    counts = {operation: server.calls(operation) - before[operation] for operation in OPERATIONS}
    requests = [(operation, skip) for operation, count in counts.items() for skip in range(count)]

    unmet = set()
    for number, (operation, skip) in enumerate(requests, pytestconfig.getoption("--seed")):
        orders.put(2)
        server.order(Fault(operation, skip=skip, **KINDS[number % len(KINDS)]))
        try:
            orders.drain()
        except Transient:
            server.advance(6)
            orders.drain()
        unmet |= {(fault.operation, skip) for fault in server.unmet_faults()}
        server.advance(6)
        assert len(orders.drained()) == len(orders.ids), (operation, skip)

    assert all(skip for _, skip in unmet), "a drain has now fewer of some requests, and not none"
    assert counts["SubscribeToShard"] == (mode == EFO)
    orders.assert_each_record_once()


def test_throttling_without_end_stops_a_drain_with_a_clear_refusal(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Purpose: the reader waits while others use up a shard's calls, and not for ever.
    Procedure: every request for records of one of two shards is throttled from the reader's first one on.
    Pass: within a few minutes the drain says that Kinesis is too busy, and has committed nothing; the next one commits.
    """
    orders = Put(spark, lake, server, shards=2)
    orders.put(20)
    throttled = Fault("GetRecords", shard=orders.open_shards()[0]["ShardId"], skip=1, times=10_000)
    throttled.code = "ProvisionedThroughputExceededException"
    server.order(throttled)
    begun = time.monotonic()

    with pytest.raises(KinesisUnanswered, match="ProvisionedThroughputExceeded"):
        orders.drain()
    assert time.monotonic() - begun < 240
    assert [fault.operation for fault in server.unmet_faults()] == ["GetRecords"]
    assert orders.drained() == []
    orders.drain()

    orders.assert_each_record_once()


@contextmanager
def quick_clock(server: KinesisServer) -> Iterator[None]:
    """The server's time runs ten times as fast: its limits do not slow down a client that does not pause."""
    over = Event()

    def run() -> None:
        while not over.wait(0.02):
            server.advance(0.2)

    running = start_in_thread(run, name="quick clock")
    try:
        yield
    finally:
        over.set()
        running.result()


@pytest.mark.parametrize("mode", [POLLING, EFO], ids=["polling", "efo"])
def test_a_shard_that_needs_250_empty_answers_is_read(
    spark: SparkSession, lake: str, server: KinesisServer, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: 250 empty answers come before each one with records, for both clients."""
    orders = Put(spark, lake, server, shards=1, consumer=mode)
    orders.put(3)
    server.behaviour.empty_pages = 250
    monkeypatch.setattr(client, "PAUSE_SECONDS", 0)  # the reader's own pauses are enough to wait for

    with quick_clock(server):
        orders.drain()

    server.behaviour.empty_pages = 0
    server.advance(6)
    orders.assert_each_record_once()


@pytest.mark.parametrize("mode", [POLLING, EFO], ids=["polling", "efo"])
def test_a_stream_that_is_never_at_its_end_is_drained_to_the_plan_s_moment(
    spark: SparkSession, lake: str, server: KinesisServer, mode: Any
) -> None:
    """Procedure: every answer says that it is two seconds behind; two drains, records before each."""
    orders = Put(spark, lake, server, shards=2, consumer=mode)
    server.behaviour.least_behind_ms = 2_000

    for _ in range(2):
        orders.put(10)
        orders.drain()
        server.advance(6)

    orders.assert_each_record_once()


@pytest.mark.scenario("message of 10 MB and more")
@pytest.mark.scenario("Kinesis: records of several user records, large ones")
@pytest.mark.parametrize("mode", [POLLING, EFO], ids=["polling", "efo"])
def test_a_record_of_ten_megabytes_is_a_row(spark: SparkSession, lake: str, server: KinesisServer, mode: Any) -> None:
    """Purpose: the largest record fills an answer, after which a shard is busy for five seconds.
    Procedure: small records before and after two of 10 MB, one of which is a dead letter; drain.
    """
    orders = Put(spark, lake, server, shards=1, consumer=mode)
    orders.put(3)
    room = (10 << 20) - 300
    orders.put_value(json.dumps({"id": len(orders.ids), "text": "x" * room}).encode(), id_=len(orders.ids))
    orders.put_value(b"x" * room)
    orders.put(3)

    orders.drain()

    server.advance(6)
    orders.assert_each_record_once()
