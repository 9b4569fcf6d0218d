"""A tick that finds nothing goes on looking: Dagster then has one tick to start, to store and to log in place of five.

Dagster's daemon asks for the next tick up to five seconds after one has ended. Within a tick a look comes every five
seconds, as ticks did, and what is found is requested at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import BoundedSemaphore

import dagster as dg

from kdi_assets.resources.reload import ticks_end

LOOK_SECONDS = 5.0
LONGEST_SECONDS = 25.0
"""Of a tick. Dagster gives one up after 60 s; a daemon that stops waits for its ticks, and is killed after 60 s."""
WAITING_AT_ONCE = 3
"""Of a process: each call of a code server has a thread, and others must find one."""
DAEMON_THREADS = 16
"""So many threads for ticks a daemon must have; otherwise ticks that wait would delay others. All locations share them:
so many do for four, each with three that wait and one to spare."""

Look = Callable[[str | None], dg.SensorResult]
_waiting = BoundedSemaphore(WAITING_AT_ONCE)


class PatientTick:
    """Repeats the looks of one sensor, as long as they find nothing.

    Args:
        idle: The reason of a look that found nothing: what is due later, or is refused, ends the tick.
    """

    def __init__(self, idle: str) -> None:
        self._idle = idle
        self._newest: object = None

    def __call__(
        self, look: Look, context: dg.SensorEvaluationContext, *, still_idle: Callable[[], bool] = lambda: False
    ) -> dg.SensorResult:
        """The first look that found something, or the last one.

        Args:
            look: From the cursor of the look before.
            still_idle: Whether another look would find nothing again; it costs less than a look. Asked after a look
                that changed nothing in the cursor.
        """
        # For a test in the UI, and for a first tick, Dagster knows of no tick before; someone waits for the answer.
        if context.last_tick_completion_time is None:
            return look(context.cursor)
        this = self._newest = object()
        ended, until = ticks_end(), time.monotonic() + LONGEST_SECONDS
        before, result = context.cursor, look(context.cursor)
        if not self._found_nothing(result) or not may_wait(context.instance) or not _waiting.acquire(blocking=False):
            return result
        try:
            while self._found_nothing(result) and time.monotonic() + LOOK_SECONDS < until:
                # A daemon that was started again asks for a tick while the one of before still waits.
                if ended.wait(LOOK_SECONDS) or self._newest is not this:
                    break
                asked = time.monotonic()
                # A look that changed the cursor may not be through, as with a long log, which is read in pieces.
                if result.cursor == before and still_idle():
                    continue
                if time.monotonic() > min(asked + LOOK_SECONDS, until):
                    break  # a broker hangs; a look would ask it again
                before, result = result.cursor, look(result.cursor)
        finally:
            _waiting.release()
        return result

    def _found_nothing(self, result: dg.SensorResult) -> bool:
        said = result.skip_reason.skip_message if result.skip_reason else None
        return said == self._idle and not result.asset_events


def may_wait(instance: dg.DagsterInstance) -> bool:
    """Whether the daemon has threads to spare; without any it evaluates one sensor after the other."""
    settings = instance.get_sensor_settings()
    return bool(settings.get("use_threads")) and (settings.get("num_workers") or 0) >= DAEMON_THREADS
