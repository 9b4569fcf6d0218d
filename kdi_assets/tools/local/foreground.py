"""Runs one of the embedded servers in the foreground, as `kdi broker run` and `kdi kinesis run` do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from kdi_assets.runtime.processes import stop_signals


class Server(Protocol):
    """What runs until it is stopped."""

    def stop(self) -> None:
        """End it."""


S = TypeVar("S", bound=Server)


def run_until_stopped(start: Callable[[], S], *, check: Callable[[S], object] = lambda _: None) -> None:
    """Start a server, and stop it at SIGTERM or SIGINT.

    Args:
        start: Starts it, and says how to reach it.
        check: Called again and again while it runs; raises if it has ended by itself.
    """
    asked: list[bool] = []  # not an Event: a signal may interrupt while its lock is held
    with stop_signals(lambda: asked.append(True)):
        server = start()
        while not asked:
            check(server)
            time.sleep(0.2)
        server.stop()
