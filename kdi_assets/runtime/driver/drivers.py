"""The warm drivers of a home: which there are, and to which of them a process attaches."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from kdi_assets.errors import KdiError
from kdi_assets.runtime.driver.control import (
    ControlConnection,
    DriverAddress,
    driver_is_there,
    driver_status,
    lock_within,
)
from kdi_assets.runtime.errors import DriverGone
from kdi_assets.runtime.threads import start_in_thread
from kdi_assets.settings import Settings

START_SECONDS = 60.0  # on an idle machine a JVM takes seven seconds
GAP_SECONDS = 5.0  # a supervisor waits for one, and Python starts in another one or two
Refuse = Callable[[DriverAddress], None]

CLIENTS_SECONDS = 1.0  # a driver counts its clients in milliseconds
TURN_SECONDS = 3.0  # a process chooses in milliseconds, or in CLIENTS_SECONDS beside a driver that hangs


def driver_folder(home: Path, number: int) -> Path:
    """The folder with address, lock, log and temporary files of a driver; that of the first one is the home."""
    return home if number == 1 else home / "drivers" / str(number)


def running_drivers(home: Path) -> dict[int, Path]:
    """Folders of the drivers of ``home`` that run, start or end, by number."""
    numbers = sorted(int(folder.name) for folder in home.glob("drivers/*") if folder.name.isdecimal())
    folders = {number: driver_folder(home, number) for number in (1, *numbers)}
    return {number: folder for number, folder in folders.items() if driver_is_there(folder)}


def connect_to_driver(
    home: Path, *, within_seconds: float = START_SECONDS, refuse: Refuse = lambda _: None, **hello: object
) -> ControlConnection:
    """Connect to the driver of ``home`` with the fewest clients, and wait for one that is about to start.

    A supervisor replaces a driver that died, or that ended because it had served enough clients; a client that comes
    in between must not fail.

    Args:
        refuse: Raises for a driver that is not for this process; such a one is taken only if all are.

    Raises:
        DriverGone: None runs and none starts, or none was ready in time.
    """
    began = seen = time.monotonic()
    while True:
        running = running_drivers(home)
        try:
            return _connect(home, _usable([*running.values()] or [home], refuse), hello)
        except DriverGone:
            now = time.monotonic()
            if running:
                seen = now
            if now - seen > GAP_SECONDS or now - began > within_seconds:  # between two drivers nobody holds the lock
                raise
        time.sleep(0.1)


def _usable(folders: list[Path], refuse: Refuse) -> list[Path]:
    """Of several drivers, those that are for this process and those that start; all, if there are none."""

    def usable(folder: Path) -> bool:
        try:
            refuse(DriverAddress.read(folder))
        except DriverGone:
            return True
        except KdiError:
            return False
        return True

    return folders if len(folders) == 1 else [*filter(usable, folders)] or folders


def _connect(home: Path, folders: Sequence[Path], hello: dict[str, Any]) -> ControlConnection:
    """Raises ``DriverGone`` if no driver takes this process."""
    if len(folders) == 1:
        return ControlConnection(folders[0], **hello)
    # One after the other: processes that start together would all find the same driver without clients.
    with _turn_to_choose(home), ThreadPoolExecutor(len(folders)) as threads:
        for _, folder in sorted(zip(threads.map(_clients, folders), folders, strict=True)):
            with suppress(DriverGone):  # it is about to end, or hangs
                return ControlConnection(folder, **hello)
    raise DriverGone(home=home, reason="none of its drivers takes another client")


def _clients(folder: Path) -> float:
    """The number of clients of a driver; of one that does not answer soon, more than any other has."""
    try:
        return len(driver_status(folder, within_seconds=CLIENTS_SECONDS)["clients"])
    except DriverGone:
        return math.inf


@contextmanager
def _turn_to_choose(home: Path) -> Iterator[None]:
    """Wait for the turn of this process, but not for long: it is only about balance, and who has it may hang."""
    folder = os.open(home, os.O_RDONLY)  # the home itself: a file could belong to another user
    try:
        with suppress(OSError):  # NFS has no such locks of a folder
            lock_within(folder, TURN_SECONDS)
        yield
    finally:
        os.close(folder)


def uses_warm_driver(settings: Settings) -> bool:
    """Whether sessions go to a warm driver; with ``auto``, if those that answer are for this lake and this process."""
    if settings.driver != "auto":
        return settings.driver == "shared"
    try:
        addresses = _answering(settings.home)
        for address in addresses:
            address.refuse_other(settings)
    except KdiError:
        return False
    return bool(addresses) and all(address.lake == settings.lake for address in addresses)


def _answering(home: Path) -> list[DriverAddress]:
    """The addresses of the drivers that answer; beside one that does, one that hangs is not waited for."""
    folders = [*running_drivers(home).values()] or [home]
    asked = [start_in_thread(partial(_address, folder), name="driver") for folder in folders]
    wait(asked, CLIENTS_SECONDS)
    any(one.result() for one in as_completed(asked))  # waits for the first that answers; one that starts refuses
    return [address for one in asked if one.done() and (address := one.result())]


def _address(folder: Path) -> DriverAddress | None:
    with suppress(DriverGone), closing(ControlConnection(folder, ask="status")) as connection:
        return connection.address
    return None
