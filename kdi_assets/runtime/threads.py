"""Work in daemon threads, which may hang without keeping the process from ending."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

Result = TypeVar("Result")


def start_in_thread(work: Callable[[], Result], *, name: str) -> Future[Result]:
    """Start ``work`` in a thread of its own; the future gets its result or its failure.

    A daemon thread, because Python waits at its end for an executor's threads, also for one that hangs in the storage.
    """
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as failure:  # noqa: BLE001 - handed over: the future raises it
            future.set_exception(failure)

    Thread(target=run, name=name, daemon=True).start()
    return future
