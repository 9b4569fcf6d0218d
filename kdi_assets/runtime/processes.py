"""Child processes that end with this process, however it ends."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

STOP_SECONDS = 15.0  # a broker writes its snapshot, and Dagster stops five processes

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None  # loaded before any fork
_running: set[Child] = set()


class Child:
    """A child process in a process group of its own, with the processes that it starts.

    A terminal's Ctrl-C reaches only this process, which then stops its children in order. If this process is killed,
    Linux sends them SIGTERM; also when the *thread* that started them ends, so start children from a lasting thread.
    """

    def __init__(
        self, command: Sequence[str | Path], *, log: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start it.

        Args:
            log: Gets standard output and standard error, appended; by default they are this process's.
            environment: Additional variables.
        """
        self.log = log
        parent = os.getpid()
        output = log.open("ab") if log else None
        try:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                preexec_fn=lambda: _die_with(parent),
            )
        finally:
            if output:
                output.close()
        _running.add(self)

    @property
    def pid(self) -> int:
        """Its process id, and the id of its group."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """As in ``subprocess`` (negative: the signal); none while it runs."""
        return self._process.poll()

    def await_answer(self, answers: Callable[[], bool], *, seconds: float) -> str:
        """Wait until it answers; return why it does not, empty if it does."""
        until = time.monotonic() + seconds
        while not answers():
            if (code := self.exit_code()) is not None:
                return f"ended with exit code {code} before it answered"
            if time.monotonic() > until:
                return f"did not answer within {seconds:.0f} s"
            time.sleep(0.1)
        return ""

    def stop(self, *, within_seconds: float = STOP_SECONDS) -> None:
        """Ask it to end; then kill it, if it did not end in time, and what is left of its group."""
        if self.exit_code() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(within_seconds)
        self.kill()

    def kill(self) -> None:
        """Kill its group (SIGKILL)."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        _running.discard(self)


@contextmanager
def stop_signals(stop: Callable[[], object]) -> Iterator[None]:
    """In the body, SIGTERM and SIGINT call ``stop`` instead of ending the process; main thread only."""
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _die_with(parent: int) -> None:
    """Runs in the child before its program starts."""
    # A shell that starts a process with & ignores SIGINT for it and its children, and Dagster turns SIGTERM into
    # SIGINT. A child that inherits an ignored SIGTERM could not be stopped at all.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the call above
            os._exit(1)


def killed_with_parent(parent: int) -> None:
    """In a forked child: let Linux kill it when its parent dies; no effect in the child's own children."""
    if _libc is not None and os.getppid() == parent:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@atexit.register
def _stop_running() -> None:
    for child in list(_running):
        child.stop()
