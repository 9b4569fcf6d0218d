"""Watches the steps of long work from a thread of its own, and shows now and then how far the innermost one is."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from kdi_assets.runtime.gateway import running_tasks
from kdi_assets.runtime.progress import WorkStep, heard_by
from kdi_assets.wording import counted, duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Fact = TypeVar("Fact")
LOG_SECONDS = 30.0
"""How often a log gets a line."""
RATE_SECONDS = 30.0
"""The rate is that of so many seconds; Spark's tasks end in bursts."""
THREAD = "progress"
"""The name of the watch's thread."""
END_SECONDS = 5.0
"""How long a thread may take that asks a JVM which no longer answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HowFar:
    """How far the work is.

    Attributes:
        doing: What the innermost step does.
        name: What it is about.
        seconds: Since it began.
        step: The step whose count is shown: the innermost one that counts.
        done: As in ``WorkStep``; ``None``: no step counts.
        per_second: How many are done in a second; ``None``: not known yet.
        tasks: Tasks of Spark's running jobs, those that have ended and all; ``None``: no job runs.
    """

    doing: str
    name: str
    seconds: float
    step: WorkStep
    done: int | None = None
    per_second: float | None = None
    tasks: tuple[int, int] | None = None

    @property
    def share(self) -> float | None:
        """What is done of all, between 0 and 1: counted, or else by Spark's tasks."""
        if self.done is not None and self.step.total:
            return min(1.0, self.done / self.step.total)
        return self.tasks[0] / self.tasks[1] if self.tasks and self.tasks[1] else None

    def head(self) -> str:
        """What is done, and about what."""
        return f"{self.name}: {self.doing}" if self.name else self.doing

    def facts(self) -> list[str]:
        """How many of how many, the rate, the time left, Spark's tasks; the seconds where nothing else is known."""
        facts = [self._counted()] if self.done is not None else []
        if self.per_second:
            facts += [f"{self.per_second:,.0f} a second"] if self.per_second >= 1 else []
            if self.done is not None and self.step.total and self.done < self.step.total:
                facts.append(f"about {duration((self.step.total - self.done) / self.per_second)} left")
        facts += [f"{self.tasks[0]:,} of {counted(self.tasks[1], 'task')}"] if self.tasks else []
        return facts or [duration(self.seconds)]

    def _counted(self) -> str:
        if self.step.total is None:
            return counted(self.done or 0, self.step.unit)
        return f"{self.done:,} of {counted(self.step.total, self.step.unit)}"


class Show(Protocol):
    """Where progress is shown; called from the watch's thread and from that of the work, never at the same time."""

    def show(self, now: HowFar) -> None: ...

    def clear(self) -> None:
        """The step has ended: nothing of it may stay on a terminal's line."""


@dataclass(slots=True, eq=False)
class _Running:
    """A step that has begun.

    Attributes:
        samples: Moments, and how many were done then; the first is up to ``RATE_SECONDS`` old.
    """

    step: WorkStep
    name: str
    began: float
    samples: deque[tuple[float, int]]

    def rate(self, now: float, done: int) -> float | None:
        """How many are done in a second, of late."""
        self.samples.append((now, done))
        while len(self.samples) > 2 and self.samples[1][0] <= now - RATE_SECONDS:
            self.samples.popleft()
        since, before = self.samples[0]
        return (done - before) / (now - since) if now > since and done > before else None


class StepWatch:
    """Hears of steps and shows the innermost one.

    Args:
        shown: Where; ``None``: nowhere.
        spark: The session whose tasks are counted; ``None`` as long as there is none.
        every: Seconds between two looks; a step that is shorter is not shown.
        clock: Monotonic seconds.

    Attributes:
        commits: How many commits have landed.
        interrupted: The innermost step that Ctrl-C broke off, and what it was about.
    """

    def __init__(
        self,
        shown: Show | None,
        *,
        spark: Callable[[], SparkSession | None] = lambda: None,
        every: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shown, self._spark, self._every, self._clock = shown, spark, every, clock
        self._running: list[_Running] = []
        self._lock, self._over = threading.Lock(), threading.Event()
        self.commits = 0
        self.interrupted: tuple[WorkStep, str] | None = None

    def begin(self, step: WorkStep) -> None:
        """As ``StepListener``."""
        with self._lock:
            name = step.name or (self._running[-1].name if self._running else "")
            began = self._clock()
            self._running.append(_Running(step, name, began, deque([(began, step.before)])))

    def end(self, step: WorkStep, failure: BaseException | None) -> None:
        """As ``StepListener``."""
        with self._lock:
            ended = next(r for r in reversed(self._running) if r.step is step)
            self._running.remove(ended)
            if isinstance(failure, KeyboardInterrupt) and self.interrupted is None:
                self.interrupted = step, ended.name
            self.commits += step.commits and failure is None
            if self._shown:
                with suppress(Exception):  # of a terminal that is gone: the work is done
                    self._shown.clear()

    def look(self) -> None:
        """Show how far the innermost step is."""
        with self._lock:
            running = self._innermost()
            if running is None or self._shown is None:
                return
            counting = next((r for r in reversed(self._running) if r.step.done), running)
        # Not under the lock: Spark may take its time, and the work must not wait for it.
        done, tasks = _fact(counting.step.done), _fact(self._tasks)
        with self._lock:
            if self._innermost() is not running:
                return
            now = self._clock()
            self._shown.show(
                HowFar(
                    doing=running.step.doing,
                    name=running.name,
                    seconds=now - running.began,
                    step=counting.step,
                    done=done,
                    per_second=None if done is None else counting.rate(now, done),
                    tasks=tasks,
                )
            )

    @contextmanager
    def watching(self) -> Iterator[StepWatch]:
        """Hear of the body's steps, and look again and again until it ends."""
        thread = threading.Thread(target=self._look_until_over, name=THREAD, daemon=True)
        with heard_by(self):
            if self._shown is None:
                yield self
                return
            thread.start()
            try:
                yield self
            finally:
                self._over.set()
                thread.join(END_SECONDS)

    def _look_until_over(self) -> None:
        while not self._over.wait(self._every):
            with suppress(Exception):  # of a terminal that is gone, of a log that does not answer
                self.look()

    def _tasks(self) -> tuple[int, int] | None:
        session = self._spark()
        return running_tasks(session) if session is not None else None

    def _innermost(self) -> _Running | None:
        return self._running[-1] if self._running else None


def _fact(ask: Callable[[], Fact | None] | None) -> Fact | None:
    """The answer; none of a JVM that has ended, or of one that an older release started and that lacks the call."""
    try:
        return ask() if ask else None
    except Exception:  # noqa: BLE001 - progress must not disturb the work, which fails itself if there is a reason
        return None


@dataclass(frozen=True, slots=True)
class LogLines:
    """Progress as lines of a log."""

    write: Callable[[str], None]

    def show(self, now: HowFar) -> None:
        """As ``Show``."""
        self.write(f"{now.head()}: {', '.join(now.facts())}")

    def clear(self) -> None:
        """Lines of a log stay."""
