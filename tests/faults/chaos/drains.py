"""Drains with faults: each ends whole or not at all."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

from py4j.protocol import Py4JNetworkError

from kdi_assets.delta import single_commit
from kdi_assets.delta import transaction as delta_transaction
from kdi_assets.drain.errors import AnotherDrainActive
from kdi_assets.drain.plan_errors import RetentionPassedPosition
from kdi_assets.drain.report import DrainReport
from kdi_assets.drain.snapshot import take_snapshot
from kdi_assets.errors import KdiError, Transient
from kdi_assets.stream.stream import DateWindow
from tests.driven import Once
from tests.faults.chaos.actions import INTERFERENCES, Action, restart_broker
from tests.faults.chaos.world import World
from tests.faults.doomed_drain import COMMIT_CHECKED, COMMIT_LANDED, Doom, Doomed
from tests.faults.race import drain_at_once

POINTS = ("before reading", "files written", "dead letters written", "accounted for", "commit sent")
PROCESS_POINTS = (*POINTS, COMMIT_CHECKED, COMMIT_LANDED)


class Crash(BaseException):
    """Ends a drain at a point; no handler in between catches it."""


def drain(world: World) -> str:
    return _told(world.drain())


def crash(world: World) -> str:
    """The process ends at a point; the next drain begins with what it left."""
    doom = world.random.choice(POINTS)

    def die() -> None:
        raise Crash

    try:
        return _told(world.drain(at=Once(doom, die)))
    except Crash:
        return f"crashed at {doom!r}"


def interfere(world: World) -> str:
    """Someone changes the table between plan and commit."""
    point = world.random.choice(POINTS[:4])
    possible = [a for a in INTERFERENCES if a.requires(world)]
    action = world.random.choices(possible, [a.weight for a in possible])[0] if possible else None
    happened: list[str] = []

    def at(reached: str) -> None:
        if reached == point and action and not happened:
            happened.append(f"{action.name}: {action.run(world)}")

    return f"{_told(world.drain(at=at))}; at {point!r} {', '.join(happened) or 'nothing'}"


def lose_answer(world: World) -> str:
    """The connection to the driver breaks around the commit: before it was sent, or after it landed."""
    landed, real = world.random.random() < 0.5, delta_transaction.send_commit
    lost: list[bool] = []

    def send(*arguments: Any) -> int:
        if lost:
            return real(*arguments)
        lost.append(landed)
        if landed:
            real(*arguments)
        raise Py4JNetworkError("the connection broke")

    with patch.object(single_commit, "send_commit", send):
        try:
            told = _told(world.drain())
        except Transient as failed:
            assert not landed, "the commit landed, and the drain says that it failed"
            told = type(failed).__name__
        except Py4JNetworkError:  # a decision, which the caller repeats
            assert not landed, "the commit landed, and the decision says that it failed"
            told = "no answer"
    return f"{told}; the commit {'landed' if landed else 'was never sent'}"


def race(world: World) -> str:
    """Two drains plan on the same version and wait for each other before they read."""
    today = DateWindow(start=datetime.now(UTC).date())
    other = replace(world.stream, date_window=today) if world.random.random() < 0.5 else world.stream
    ended = drain_at_once(world.web, [world.stream, other], refusals=(AnotherDrainActive, RetentionPassedPosition))
    return " | ".join(map(_told, ended))


def kill(world: World) -> str:
    """SIGKILL or SIGTERM of a process that drains, at a point."""
    point, number = world.random.choice(PROCESS_POINTS), world.random.choice((signal.SIGKILL, signal.SIGTERM))
    doomed = Doomed(world.web, Doom(point, number), world.home)
    try:
        return f"{number.name} at {point!r}: {_ended(doomed, number)}"
    finally:
        doomed.end()


def zombie(world: World) -> str:
    """A draining process stops at a point, another one drains, and the first resumes."""
    point = world.random.choice(PROCESS_POINTS)
    doomed = Doomed(world.web, Doom(point, signal.SIGSTOP), world.home)
    try:
        stopped = doomed.stops()
        told = _told(world.drain())
        if stopped:
            doomed.send(signal.SIGCONT)
        ended = _ended(doomed, signal.SIGSTOP)
    finally:
        doomed.end()
    return f"{'stopped' if stopped else 'ended before'} at {point!r}; {told} meanwhile; {ended}"


def lose_broker(world: World) -> str:
    """The broker is killed and started again between plan and read."""
    restarted = Once("before reading", lambda: restart_broker(world))
    outcome: DrainReport | KdiError | None
    try:
        outcome = world.drain(at=restarted)
    except Transient as failed:
        outcome = failed
    return f"{_told(outcome)}; broker {'killed and started again' if restarted.happened else 'stays'}"


def _ended(doomed: Doomed, number: signal.Signals) -> str:
    """How the process ended: by the signal, or past the point with a report or an expected refusal.

    Raises:
        AssertionError: In any other way.
    """
    if (code := doomed.exit_code()) == -number:
        return f"exit code {code}"
    outcome = doomed.outcome()
    assert isinstance(outcome, DrainReport | AnotherDrainActive | RetentionPassedPosition), outcome
    return _told(outcome)


def _told(report: DrainReport | KdiError | None) -> str:
    if report is None:
        return "a loss was decided"
    if isinstance(report, KdiError):
        return type(report).__name__
    settled = f", settled: {'; '.join(report.position_commits)}" if report.position_commits else ""
    return f"{report.rows_added} rows, {report.dead_letters} dead letters{settled}"


def _waits(world: World) -> bool:
    """A fault in a drain without work shows nothing."""
    return world.log is None or take_snapshot(world.stream, world.web.lake).backlog() > 0


def _befallen(name: str, run: Callable[[World], str], promises: str, weight: int) -> Action:
    return Action(f"drain, and {name}", run, promises, weight, _waits)


DRAINS = (
    Action("drain", drain, "all that was there is in the tables", 4),
    _befallen("it crashes", crash, "a whole drain or none", 4),
    _befallen("somebody interferes", interfere, "all that was there, or what the other one left", 6),
    _befallen("the answer is lost", lose_answer, "what landed is known to have landed", 3),
    _befallen("another one at once", race, "each message once", 4),
    _befallen("its process gets a signal", kill, "a whole drain or none", 3),
    _befallen("its process stands still", zombie, "each message once, whoever was first", 3),
    _befallen("the broker goes", lose_broker, "a whole drain or none", 1),
)
"""Every kind of drain."""
