"""The tests' own warm driver, whose JVM can be stopped, and is killed with it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from kdi_assets.runtime.driver.control import driver_status
from kdi_assets.runtime.driver.drivers import driver_folder
from kdi_assets.runtime.errors import DriverGone
from kdi_assets.runtime.processes import Child
from kdi_assets.tools.local.broker import QUICK_START
from tests.conftest import CHECKOUT
from tests.interpreted import INTERPRETED
from tests.waiting import wait_until

JVM_OPTIONS = {
    "SPARK_DRIVER_MEMORY": "1g",
    "SPARK_SUBMIT_OPTS": " ".join([*QUICK_START, *(f"-D{option}={value}" for option, value in INTERPRETED.items())]),
}


class WarmDriver:
    """`kdi driver run` in its own home, until it is stopped.

    Args:
        variables: Additional environment variables.
        number: Which driver of the home.
    """

    def __init__(self, home: Path, variables: Mapping[str, str] | None = None, *, number: int = 1) -> None:
        self.home, self._folder, self._log = home, driver_folder(home, number), home / f"log {number}"
        if not (home / "jars").exists():
            (home / "jars").symlink_to(CHECKOUT / ".kdi" / "jars")
        self.environment = {"KDI_HOME": str(home), "KDI_SPARK_MASTER": "local[2]", **JVM_OPTIONS, **(variables or {})}
        command: list[str | Path] = [
            Path(sys.executable).with_name("kdi"),
            "driver",
            "run",
            "--idle-exit",
            "0",
            "--number",
            str(number),
        ]
        self._child = Child(command, environment=self.environment, log=self._log)
        wait_until(self._answers, seconds=180)

    def _answers(self) -> bool:
        assert self._child.exit_code() is None, self._log.read_text()
        try:
            return bool(self.status())
        except DriverGone:
            return False

    def status(self) -> dict[str, Any]:
        """Its clients and jobs."""
        return driver_status(self._folder)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def jvm(self) -> int:
        """The process id of its JVM."""
        (jvm,) = psutil.Process(self._child.pid).children()
        return jvm.pid

    @contextmanager
    def held(self) -> Iterator[None]:
        """Stop its JVM during the body."""
        with stopped(self.jvm()):
            yield

    def wait_until_nobody_is_attached(self) -> None:
        wait_until(lambda: not self.status()["clients"])

    def kill(self) -> None:
        """End it and its JVM at once (SIGKILL)."""
        self._child.kill()

    def stop(self) -> None:
        self._child.stop()


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """The process is stopped by a signal during the body, in which it may be killed."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: is_stopped(pid))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def is_stopped(pid: int) -> bool:
    """Whether the process is stopped by a signal."""
    return psutil.pid_exists(pid) and psutil.Process(pid).status() == psutil.STATUS_STOPPED
