"""How tests wait for what other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], *, seconds: float = 60) -> None:
    """Wait for what other processes do; the pause only spares the processor that they need for it."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not within {seconds} seconds"
        time.sleep(0.02)
