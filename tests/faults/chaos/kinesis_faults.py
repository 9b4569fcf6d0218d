"""Drains of Kinesis whose requests fail, or whose stream changes while it is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

from kdi_assets.errors import KdiError, Transient
from kdi_assets.messages.kinesis.errors import NoSuchKinesisStream
from kdi_assets.runtime.threads import start_in_thread
from kdi_assets.streams.drain.report import DrainReport
from kdi_assets.tools.local.kinesis.faults import Fault
from tests.faults.chaos.drains import told
from tests.faults.chaos.kinesis_world import KinesisWorld
from tests.faults.chaos.world import Action
from tests.faults.kinesis.failing_requests import KINDS, OPERATIONS
from tests.kinesis.drains import NEVER_NEAR_MS

READING = ("GetRecords", "SubscribeToShard")
OF_READING: tuple[dict[str, Any], ...] = (
    {"code": "ProvisionedThroughputExceededException", "times": 3},
    {"cut_after": 2_000},
)
OF_GET_RECORDS: tuple[dict[str, Any], ...] = ({"code": "ExpiredIteratorException"}, {"repeats": True})
MOST_SECONDS = 3.0
"""That a drain reads before something happens to its stream."""


def fail_requests(world: KinesisWorld) -> str:
    """Some of the drain's requests are throttled, refused, cut off, answered twice, or find their iterators expired."""
    faults = [_any_fault(world) for _ in range(world.random.randint(1, 3))]
    for fault in faults:
        world.orders.server.order(fault)
    named = ", ".join(
        f"{fault.operation} {fault.code or 'cut off' * bool(fault.cut_after) or 'twice'}" for fault in faults
    )
    outcome = _drained(world)
    unmet = len(world.orders.server.unmet_faults())
    return f"{told(outcome)}; {named} ({unmet} not met)"


def drain_while(world: KinesisWorld, action: Action[KinesisWorld]) -> str:
    """The stream changes between two answers."""
    with _meanwhile(world, lambda: action.run(world)) as happened:
        outcome = _drained(world)
    return f"{told(outcome)}; meanwhile {action.name}: {', '.join(happened)}"


def _any_fault(world: KinesisWorld) -> Fault:
    operation, skip = world.random.choice(OPERATIONS), world.random.randrange(12)
    of_reading = OF_READING if operation in READING else ()
    of_records = OF_GET_RECORDS if operation == "GetRecords" else ()
    return Fault(operation, skip=skip, **world.random.choice((*KINDS, *of_reading, *of_records)))


def _named(fault: Fault) -> str:
    return fault.code or ("answered twice" if fault.repeats else "cut off")


def _drained(world: KinesisWorld) -> DrainReport | KdiError | None:
    """A drain that a retry may have to help."""
    try:
        return world.drain()
    except (Transient, NoSuchKinesisStream) as failed:  # the stream may just be created again
        return failed


@contextmanager
def _meanwhile(world: KinesisWorld, act: Callable[[], str]) -> Iterator[list[str]]:
    """While the body drains, act once it has read for a little while; until then the shards have no end.

    Yields:
        What happened, once the body has ended.
    """
    server, over, happened = world.orders.server, Event(), list[str]()

    def calls() -> int:
        return sum(server.calls(operation) for operation in READING)

    wanted, until = calls() + world.random.randint(1, 12), time.monotonic() + MOST_SECONDS

    def wait_and_act() -> None:
        while calls() < wanted and time.monotonic() < until and not over.wait(0.02):
            pass
        happened.append(act())
        server.behaviour.least_behind_ms = 0

    server.behaviour.least_behind_ms = NEVER_NEAR_MS
    acting = start_in_thread(wait_and_act, name="meanwhile")
    try:
        yield happened
    finally:
        over.set()
        acting.result(30)
