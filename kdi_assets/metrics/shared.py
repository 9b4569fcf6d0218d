"""One computation at a time for all who ask; none begins unless somebody asks."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

from kdi_assets.runtime.threads import begin

LATE_SECONDS = 60.0
"""How old an answer may be that came too late for who asked, and that nobody else was given."""

T = TypeVar("T")


@dataclass
class _Run(Generic[T]):
    began: float
    answer: Future[T] = field(default_factory=Future)
    ended: float = 0.0
    given_late: bool = False


class Shared(Generic[T]):
    """Whoever asks while an answer is being computed gets that one.

    An answer that takes longer than anybody waits would never be given: it is the next one's who asks, and meanwhile
    another is computed. As soon as one comes in time, answers are new again.
    """

    def __init__(
        self, compute: Callable[[], T], *, patience_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._compute, self._patience, self._clock = compute, patience_seconds, clock
        self._lock = Lock()
        self._last: _Run[T] | None = None

    def ask(self) -> Future[T]:
        """The answer, or the promise of one."""
        with self._lock:
            last = self._last
            if last is not None and not last.answer.done():
                return last.answer
            self._last = self._begun()
            if last is not None and self._late(last):
                last.given_late = True
                return last.answer
            return self._last.answer

    def _late(self, run: _Run[T]) -> bool:
        took_too_long = run.ended - run.began > self._patience
        return took_too_long and not run.given_late and self._clock() - run.ended < LATE_SECONDS

    def _begun(self) -> _Run[T]:
        def compute() -> T:
            try:
                return self._compute()
            finally:
                run.ended = self._clock()  # before the answer is there, of which ``_late`` asks how long it took

        run: _Run[T] = _Run(self._clock())
        run.answer = begin(compute, name="shared answer")
        return run
