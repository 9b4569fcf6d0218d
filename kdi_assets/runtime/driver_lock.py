"""The lock of a home's warm driver: held from before its JVM starts until that has ended, however the process ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kdi_assets.errors import Terminal

LOCK = "driver.lock"
LOOK_SECONDS = 0.5  # whoever looks whether there is a driver holds the lock for a moment


class DriverRuns(Terminal):
    """A home has one warm driver."""

    home: Path

    what_happened = "a warm driver of {home} runs already, or is about to start or end."
    what_is_safe = "it was left alone."
    what_to_run = "kdi driver status    (or kdi driver stop, and then the same again)"


@contextmanager
def only_driver(home: Path) -> Iterator[None]:
    """Hold the lock of ``home``, which the kernel gives back however this process ends.

    Raises:
        DriverRuns: Another process holds it.
    """
    home.mkdir(parents=True, exist_ok=True)
    with _lock_file(home) as lock:
        until = time.monotonic() + LOOK_SECONDS
        while not _take(lock, fcntl.LOCK_EX):
            if time.monotonic() > until:
                raise DriverRuns(home=home)
            time.sleep(0.01)
        try:
            yield
        finally:
            os.utime(lock)  # the time of its end, for who asks whether another may follow


def driver_is_there(home: Path) -> bool:
    """Whether a driver of ``home`` runs, starts or ends."""
    try:
        with _lock_file(home, create=False) as lock:  # its time is that of a driver's end, not of a look
            return not _take(lock, fcntl.LOCK_SH)  # given back with the file
    except FileNotFoundError:
        return False


def driver_ended_at(home: Path) -> float | None:
    """When the last driver of ``home`` gave the lock back (Unix time); ``None`` if there was none.

    One that was killed gives it back without a word: then this is the end of the one before.
    """
    try:
        return (home / LOCK).stat().st_mtime
    except FileNotFoundError:
        return None


@contextmanager
def until_driver_ended(home: Path) -> Iterator[None]:
    """After the body, wait until no driver of ``home`` is there."""
    with _lock_file(home) as lock:
        yield
        fcntl.flock(lock, fcntl.LOCK_EX)


@contextmanager
def _lock_file(home: Path, *, create: bool = True) -> Iterator[int]:
    lock = os.open(home / LOCK, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    try:
        yield lock
    finally:
        os.close(lock)


def _take(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
