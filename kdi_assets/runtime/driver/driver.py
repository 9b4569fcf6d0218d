"""The warm driver: a process that owns a JVM with Spark's context, for others to attach to in half a second."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from enum import Enum
from pathlib import Path
from queue import Empty, SimpleQueue
from shutil import rmtree
from typing import TYPE_CHECKING

from kdi_assets.runtime.driver.clients import Clients
from kdi_assets.runtime.driver.control import ControlConnection, ControlServer, DriverAddress, address_file
from kdi_assets.runtime.driver.errors import DriverJvmEnded
from kdi_assets.runtime.driver.lock import only_driver, until_driver_ended
from kdi_assets.runtime.processes import stop_signals
from kdi_assets.runtime.spark_config import SESSION_CONFIG
from kdi_assets.runtime.spark_jvm import gateway_of, jvm_of, start_spark, stop_spark
from kdi_assets.runtime.threads import begin
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER_CONFIG = {**SESSION_CONFIG, "spark.scheduler.mode": "FAIR"}


class Ending(Enum):
    """Why a warm driver ended; the value says it to people."""

    STOPPED = "stopped"
    IDLE = "nobody needed it"
    RECYCLED = "recycled, after as many clients as it was to serve"
    JVM_ENDED = "its JVM ended"


Wakes = SimpleQueue[Ending | None]
"""What the main thread waits for: an ending, or none: a reason to look at the clock again.

Of all queues, this kind is the one that a signal handler may put into."""


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
    wakes: Wakes = SimpleQueue()

    def left(served: int) -> None:
        wakes.put(Ending.RECYCLED if recycle_after and served >= recycle_after else None)

    def stop() -> None:
        wakes.put(Ending.STOPPED)

    log, scratch = settings.home / "driver.log", driver_scratch(settings.home)
    with only_driver(settings.home), stop_signals(stop), log.open("wb") as output:
        rmtree(scratch, ignore_errors=True)  # a JVM that was killed left there what nobody else removes
        session = start_spark(settings, config=DRIVER_CONFIG, app_name="kdi driver", output=output, scratch=scratch)
        jvm = jvm_of(session)
        begin(jvm.wait, name="jvm").add_done_callback(lambda _: wakes.put(Ending.JVM_ENDED))
        try:
            clients = Clients(session, stop=stop, left=left, recycle_after=recycle_after)
            with _open_doors(settings.home, session, clients):
                report(f"driver ready: process {os.getpid()}, Spark {session.version}, log {log}")
                ending = _ending(wakes, clients, idle_exit_seconds)
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


def _ending(wakes: Wakes, clients: Clients, idle_exit_seconds: float | None) -> Ending:
    while True:
        idle = clients.idle_seconds()
        left = None if idle is None or idle_exit_seconds is None else idle_exit_seconds - idle
        if left is not None and left <= 0:
            return Ending.IDLE
        with suppress(Empty):
            if ending := wakes.get(timeout=left):
                return ending


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
        ).publish(home)
        try:
            yield
        finally:
            # In this order: who reads the file from here on is told that there is no driver, who has read it is
            # refused, and who is attached learns that the driver ends before its jobs fail for that.
            address_file(home).unlink(missing_ok=True)
            clients.close()
            server.hang_up()
