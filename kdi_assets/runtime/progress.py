"""Steps of long work, announced to whoever listens: a terminal's line, a run's log. The engine knows neither.

As with a logger, the listener is set where the work is started, and no function has to hand it on. Without one, a step
costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkStep:
    """One step of long work.

    Attributes:
        name: What the step is about, such as a table; empty: what the step around it is about.
        doing: What is done, such as ``writing rows``.
        total: How many there are to do; ``None``: unknown.
        before: How many of them were done before the step.
        unit: What ``total`` and ``done`` count, in the singular.
        done: How many are done so far; asked from another thread, now and then.
        commits: Whether the step is one commit, which lands whole or not at all.
    """

    doing: str
    name: str = ""
    total: int | None = None
    before: int = 0
    unit: str = "offset"
    done: Callable[[], int] | None = None
    commits: bool = False


class StepListener(Protocol):
    """Hears of steps, in the thread that does them."""

    def begin(self, step: WorkStep) -> None: ...

    def end(self, step: WorkStep, failure: BaseException | None) -> None: ...


_listener: ContextVar[StepListener | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(listener: StepListener) -> Iterator[None]:
    """Let the listener hear of the steps of the body."""
    before = _listener.get()
    _listener.set(listener)
    try:
        yield
    finally:
        _listener.set(before)


@contextmanager
def announced(step: WorkStep) -> Iterator[None]:
    """The body is the step. Steps may lie in each other."""
    listener = _listener.get()
    if listener is None:
        yield
        return
    listener.begin(step)
    try:
        yield
    except BaseException as failure:
        listener.end(step, failure)
        raise
    listener.end(step, None)
