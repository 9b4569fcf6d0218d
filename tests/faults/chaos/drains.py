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
from kdi_assets.documents.model.stream import DateWindow
from kdi_assets.errors import KdiError, Transient
from kdi_assets.streams.drain.report import DrainReport
from tests.driven import Once
from tests.faults.chaos.world import Action, World
from tests.faults.doomed_drain import COMMIT_CHECKED, COMMIT_LANDED, Doom, Doomed
from tests.faults.race import drain_at_once

POINTS = ("before reading", "files written", "dead letters written", "accounted for", "commit sent")
PROCESS_POINTS = (*POINTS, COMMIT_CHECKED, COMMIT_LANDED)


class Crash(BaseException):
    """Ends a drain at a point; no handler in between catches it."""


def drain(world: World) -> str:
    return told(world.drain())


def crash(world: World) -> str:
    """The process ends at a point; the next drain begins with what it left."""
    doom = world.random.choice(POINTS)

    def die() -> None:
        raise Crash

    try:
        return told(world.drain(at=Once(doom, die)))
    except Crash:
        return f"crashed at {doom!r}"


def interfere(world: World) -> str:
    """Someone changes the table between plan and commit."""
    point = world.random.choice(POINTS[:4])
    action = world.choose(world.interferences)
    happened: list[str] = []

    def at(reached: str) -> None:
        if reached == point and action and not happened:
            happened.append(f"{action.name}: {action.run(world)}")

    return f"{told(world.drain(at=at))}; at {point!r} {', '.join(happened) or 'nothing'}"


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
            outcome = told(world.drain())
        except Transient as failed:
            assert not landed, "the commit landed, and the drain says that it failed"
            outcome = type(failed).__name__
        except Py4JNetworkError:  # a decision, which the caller repeats
            assert not landed, "the commit landed, and the decision says that it failed"
            outcome = "no answer"
    return f"{outcome}; the commit {'landed' if landed else 'was never sent'}"


def race(world: World) -> str:
    """Two drains plan on the same version and wait for each other before they read."""
    today = DateWindow(start=datetime.now(UTC).date())
    other = replace(world.stream, date_window=today) if world.random.random() < 0.5 else world.stream
    ended = drain_at_once(world, [world.stream, other], refusals=world.refusals)
    return " | ".join(map(told, ended))


def kill(world: World) -> str:
    """SIGKILL or SIGTERM of a process that drains, at a point."""
    point, number = world.random.choice(PROCESS_POINTS), world.random.choice((signal.SIGKILL, signal.SIGTERM))
    doomed = Doomed(world, Doom(point, number), world.home)
    try:
        return f"{number.name} at {point!r}: {_ended(world, doomed, number)}"
    finally:
        doomed.end()


def zombie(world: World) -> str:
    """A draining process stops at a point, another one drains, and the first resumes."""
    point = world.random.choice(PROCESS_POINTS)
    doomed = Doomed(world, Doom(point, signal.SIGSTOP), world.home)
    try:
        stopped = doomed.stops()
        meanwhile = told(world.drain())
        if stopped:
            doomed.send(signal.SIGCONT)
        ended = _ended(world, doomed, signal.SIGSTOP)
    finally:
        doomed.end()
    return f"{'stopped' if stopped else 'ended before'} at {point!r}; {meanwhile} meanwhile; {ended}"


def _ended(world: World, doomed: Doomed, number: signal.Signals) -> str:
    """How the process ended: by the signal, or past the point with a report or an expected refusal.

    Raises:
        AssertionError: In any other way.
    """
    if (code := doomed.exit_code()) == -number:
        return f"exit code {code}"
    outcome = doomed.outcome()
    assert isinstance(outcome, (DrainReport, *world.refusals)), outcome
    return told(outcome)


def told(report: DrainReport | KdiError | None) -> str:
    """What became of a drain."""
    if report is None:
        return "refused, and decided"
    if isinstance(report, KdiError):
        return type(report).__name__
    settled = f", settled: {'; '.join(report.position_commits)}" if report.position_commits else ""
    return f"{report.rows_added} rows, {report.dead_letters} dead letters{settled}"


def befallen(name: str, run: Callable[[Any], str], promises: str, weight: int) -> Action[Any]:
    """A drain that something happens to: without work it would show nothing."""
    return Action(f"drain, and {name}", run, promises, weight, lambda world: world.waits())


DRAINS: tuple[Action[World], ...] = (
    Action("drain", drain, "all that was there is in the tables", 4),
    befallen("it crashes", crash, "a whole drain or none", 4),
    befallen("somebody interferes", interfere, "all that was there, or what the other one left", 6),
    befallen("the answer is lost", lose_answer, "what landed is known to have landed", 3),
    befallen("another one at once", race, "each message once", 4),
    befallen("its process gets a signal", kill, "a whole drain or none", 3),
    befallen("its process stands still", zombie, "each message once, whoever was first", 3),
)
"""Drains of any source."""
