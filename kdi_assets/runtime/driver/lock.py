"""The lock of a home's warm driver: held from before its JVM starts until that has ended, however the process ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kdi_assets.runtime.driver.errors import DriverRuns

LOOK_SECONDS = 0.5  # whoever looks whether there is a driver holds the lock for a moment


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
        yield


def driver_is_there(home: Path) -> bool:
    """Whether a driver of ``home`` runs, starts or ends."""
    try:
        with _lock_file(home) as lock:
            return not _take(lock, fcntl.LOCK_SH)  # given back with the file
    except OSError:  # there is no home, or it is another user's
        return False


@contextmanager
def until_driver_ended(home: Path) -> Iterator[None]:
    """After the body, wait until no driver of ``home`` is there."""
    with _lock_file(home) as lock:
        yield
        fcntl.flock(lock, fcntl.LOCK_EX)


@contextmanager
def _lock_file(home: Path) -> Iterator[int]:
    lock = os.open(home / "driver.lock", os.O_RDWR | os.O_CREAT, 0o600)
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
