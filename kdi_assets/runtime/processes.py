"""Child processes that do not outlive us, however we end."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

STOP_SECONDS = 15.0  # a broker that writes its snapshot and Dagster's five processes both need a few

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None  # loaded here: not after a fork
_running: set[Child] = set()


class Child:
    """A child process and what it started, in a process group of their own.

    A terminal's Ctrl-C reaches only us, so that we can stop children in order. If we are killed, Linux sends them
    SIGTERM. It does so when the *thread* that started them ends: start children from one that lasts.
    """

    def __init__(
        self, command: Sequence[str | Path], *, log: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start it.

        Args:
            log: Gets standard output and standard error, appended; by default they are ours.
            environment: Variables beside those that we have.
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
        """As ``subprocess`` has it (negative: the signal); none while it runs."""
        return self._process.poll()

    def stop(self, *, within_seconds: float = STOP_SECONDS) -> None:
        """Ask it to end; kill it and what it left behind when it does not within that time."""
        if self.exit_code() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(within_seconds)
        self.kill()

    def kill(self) -> None:
        """End it and all of its group at once (SIGKILL)."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        _running.discard(self)


@contextmanager
def stop_signals(stop: Callable[[], object]) -> Iterator[None]:
    """While the body lasts, SIGTERM and SIGINT call ``stop`` instead of ending the process; main thread only."""
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _die_with(parent: int) -> None:
    """In the child, before it becomes its program."""
    # A shell that starts us with & has SIGINT ignored, children inherit that, and Dagster turns SIGTERM into SIGINT.
    # One that inherits an ignored SIGTERM could not be stopped at all.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before we asked to be told
            os._exit(1)


def killed_with_parent(parent: int) -> None:
    """In a child that was forked and stays what it is: killed when its parent dies; nothing in children of its own."""
    if _libc is not None and os.getppid() == parent:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@atexit.register
def _stop_running() -> None:
    for child in list(_running):
        child.stop()
