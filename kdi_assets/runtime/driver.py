"""The warm driver: a process that owns a JVM with Spark's context, for others to attach to in half a second."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from enum import Enum
from pathlib import Path
from queue import Empty, SimpleQueue
from shutil import rmtree
from types import FrameType
from typing import TYPE_CHECKING

from kdi_assets.errors import Transient
from kdi_assets.runtime.clients import Clients
from kdi_assets.runtime.control import ControlConnection, ControlServer, DriverAddress, address_file
from kdi_assets.runtime.driver_lock import only_driver, until_driver_ended
from kdi_assets.runtime.launch import gateway_of, jvm_of, start_spark, stop_spark
from kdi_assets.runtime.session import SESSION_CONFIG
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER_CONFIG = {**SESSION_CONFIG, "spark.scheduler.mode": "FAIR"}


class DriverJvmEnded(Transient):
    """The JVM of the warm driver ended under it."""

    exit_code: int
    log: Path

    def parts(self) -> tuple[str, str, str]:
        return (
            f"the warm driver's JVM ended with code {self.exit_code}; {self.log} says why.",
            "what was committed stays committed; the next drains start from what the tables say.",
            "kdi driver run",
        )


class Ending(Enum):
    """Why a warm driver ended; the value says it to people."""

    STOPPED = "stopped"
    IDLE = "nobody needed it"
    RECYCLED = "recycled, after as many clients as it was to serve"
    JVM_ENDED = "its JVM ended"


def run_driver(
    settings: Settings,
    *,
    idle_exit_seconds: float | None = None,
    recycle_after: int | None = None,
    report: Callable[[str], None],
) -> Ending:
    """Own a JVM in the foreground until told to stop, unused for long, or used often.

    SIGTERM and SIGINT stop it. The jobs of a client that detaches or dies are cancelled. Main thread only.

    Args:
        idle_exit_seconds: End after so long without a client; ``None``: never.
        recycle_after: End once so many clients were served, each of which leaves some memory behind, and those
            attached have left; the others wait for the next driver.
        report: Is told in one line that the driver is ready, and in one why it ended.

    Raises:
        DriverRuns: ``settings.home`` has one.
        DriverJvmEnded: The JVM ended by itself.
        JavaMissing, JarMissing, SparkDidNotStart: The JVM cannot start.
    """
    wakes = _Wakes()
    log, scratch = settings.home / "driver.log", driver_scratch(settings.home)
    with only_driver(settings.home), wakes.signals_stop(), log.open("wb") as output:
        rmtree(scratch, ignore_errors=True)  # a JVM that was killed left there what nobody else removes
        session = start_spark(settings, config=DRIVER_CONFIG, app_name="kdi driver", output=output, scratch=scratch)
        jvm = jvm_of(session)
        wakes.watch(jvm)
        try:
            clients = _clients(session, wakes, recycle_after)
            with _open_doors(settings.home, session, clients):
                report(f"driver ready: process {os.getpid()}, Spark {session.version}, log {log}")
                ending = wakes.ending(clients.idle_seconds, idle_exit_seconds)
        finally:
            stop_spark(session)
        if ending is Ending.JVM_ENDED:
            raise DriverJvmEnded(exit_code=jvm.returncode, log=log)
        report(f"driver ended: {ending.value}")
        return ending


def driver_scratch(home: Path) -> Path:
    """Where the driver of ``home`` keeps temporary files, unless Spark's own configuration names another place.

    Not below ``/tmp``: clients hand data over in files there, and a process of another unit or container may have a
    ``/tmp`` of its own. Whoever attaches has the home.
    """
    return home / "spark"


def stop_driver(home: Path) -> None:
    """Ask the driver of ``home`` to stop, and wait until it has.

    Raises:
        DriverGone: It does not run or does not answer.
    """
    with closing(ControlConnection(home, ask="stop")) as connection, until_driver_ended(home):
        connection.tell(stop=True)


class _Wakes(SimpleQueue["Ending | None"]):
    """What the main thread waits for: an ending, or none: a reason to look at the clock again.

    Of all queues, this kind is the one that a signal handler may put into.
    """

    @contextmanager
    def signals_stop(self) -> Iterator[None]:
        def stop(_signal: int, _frame: FrameType | None) -> None:
            self.put(Ending.STOPPED)

        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def watch(self, jvm: subprocess.Popen[bytes]) -> None:
        """Let the end of the JVM be one."""

        def wait() -> None:
            jvm.wait()
            self.put(Ending.JVM_ENDED)

        threading.Thread(target=wait, daemon=True).start()

    def ending(self, idle_seconds: Callable[[], float | None], idle_exit_seconds: float | None) -> Ending:
        """Wait for an ending; ``idle_seconds`` answers none while a client is attached."""
        while True:
            idle = idle_seconds()
            left = None if idle is None or idle_exit_seconds is None else idle_exit_seconds - idle
            if left is not None and left <= 0:
                return Ending.IDLE
            try:
                ending = self.get(timeout=left)
            except Empty:
                continue
            if ending:
                return ending


def _clients(session: SparkSession, wakes: _Wakes, recycle_after: int | None) -> Clients:
    def left(served: int) -> None:
        wakes.put(Ending.RECYCLED if recycle_after and served >= recycle_after else None)

    return Clients(session, stop=lambda: wakes.put(Ending.STOPPED), left=left, recycle_after=recycle_after)


@contextmanager
def _open_doors(home: Path, session: SparkSession, clients: Clients) -> Iterator[None]:
    """Let clients attach while the body lasts."""
    gateway = gateway_of(session)
    parameters = gateway.gateway_parameters
    with ControlServer(clients, secret=parameters.auth_token) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        DriverAddress(
            pid=os.getpid(),
            gateway_port=parameters.port,
            control_port=server.port,
            secret=parameters.auth_token,
            spark_version=session.version,
            java_version=str(gateway.jvm.System.getProperty("java.version")),
        ).publish(home)
        try:
            yield
        finally:
            # In this order: who reads the file from here on is told that there is no driver, who has read it is
            # refused, and who is attached learns that the driver ends before its jobs fail for that.
            address_file(home).unlink(missing_ok=True)
            clients.close()
            server.hang_up()
