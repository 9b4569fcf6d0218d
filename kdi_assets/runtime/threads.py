"""Work beside us that may never end: it must not keep the process from ending."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

Result = TypeVar("Result")


def begin(work: Callable[[], Result], *, name: str) -> Future[Result]:
    """Begin ``work`` in a thread of its own; its result or its failure arrives in the answer.

    A daemon thread: at its end Python waits for those of an executor, also for one that hangs in the storage.
    """
    answer: Future[Result] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as failure:  # noqa: BLE001 - handed over: whoever asks for the result meets it
            answer.set_exception(failure)

    Thread(target=run, name=name, daemon=True).start()
    return answer
