"""One computation at a time for all who ask; and nobody waits for it longer than they can."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """Whoever asks while an answer is being computed gets that one."""

    def __init__(self, compute: Callable[[], T], *, patience_seconds: float) -> None:
        self._compute, self._patience = compute, patience_seconds
        self._lock = Lock()
        self._running: Future[T] | None = None

    def __call__(self) -> T | None:
        """The answer; ``None`` if it takes too long. It is computed to its end all the same, and only once."""
        with self._lock:
            if self._running is None or self._running.done():
                self._running = Future()
                Thread(target=self._run, args=(self._running,), daemon=True).start()
            running = self._running
        try:
            return running.result(self._patience)
        except TimeoutError:
            if running.done():
                raise  # the computation's own
            return None

    def _run(self, future: Future[T]) -> None:
        try:
            future.set_result(self._compute())
        except BaseException as failed:  # noqa: BLE001 - it belongs to whoever asked, in another thread
            future.set_exception(failed)
