"""The warm driver: a process that owns a JVM with Spark's context; others attach to it in half a second."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from enum import Enum
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from shutil import rmtree
from subprocess import Popen
from typing import IO, TYPE_CHECKING

from kdi_assets.runtime.application_end import ended_application
from kdi_assets.runtime.driver.clients import Clients
from kdi_assets.runtime.driver.control import (
    ControlConnection,
    ControlServer,
    DriverAddress,
    address_file,
    only_driver,
    until_driver_ended,
)
from kdi_assets.runtime.driver.drivers import driver_folder
from kdi_assets.runtime.errors import DriverJvmEnded, FolderNotWritable
from kdi_assets.runtime.gateway import gateway_of, has_ended, is_stopped
from kdi_assets.runtime.jars import release_digest
from kdi_assets.runtime.processes import stop_signals
from kdi_assets.runtime.s3_access import s3_location
from kdi_assets.runtime.spark_config import SESSION_CONFIG
from kdi_assets.runtime.spark_jvm import jvm_of, start_spark, stop_spark
from kdi_assets.runtime.threads import start_in_thread
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER_CONFIG = {**SESSION_CONFIG, "spark.scheduler.mode": "FAIR"}


class Ending(Enum):
    """Why a warm driver ended; the value is for people."""

    STOPPED = "stopped"
    IDLE = "nobody needed it"
    RECYCLED = "recycled, after as many clients as it was to serve"
    JVM_ENDED = "its JVM ended"
    APPLICATION_ENDED = "its cluster ended Spark's application"


LOOK_SECONDS = 5.0
"""How often the driver looks whether its cluster has ended the application, which no process hears of."""
Wakes = SimpleQueue[Ending | None]
"""Wakes the main thread with an ending, or with none to check the time; a signal handler may put into this queue."""


def run_driver(
    settings: Settings,
    *,
    number: int = 1,
    idle_exit_seconds: float | None = None,
    recycle_after: int | None = None,
    report: Callable[[str], None],
) -> Ending:
    """Run the driver in the foreground until it is stopped (SIGTERM, SIGINT), idle or recycled; main thread only.

    Args:
        number: Which driver of the home it is, from 1 on.
        idle_exit_seconds: End after so long without a client; ``None``: never.
        recycle_after: End after so many clients, because each leaves some memory behind.
        report: Called with a line when the driver is ready, and with a line when it has ended.

    Raises:
        DriverRuns: The home has a driver of this number.
        FolderNotWritable: The home is another user's.
        DriverJvmEnded: The JVM ended by itself.
        ApplicationEnded: The cluster ended Spark's application.
        KdiError: As ``start_spark``.
    """
    wakes: Wakes = SimpleQueue()
    stop = partial(wakes.put, Ending.STOPPED)

    def left(served: int) -> None:
        wakes.put(Ending.RECYCLED if recycle_after and served >= recycle_after else None)

    folder = driver_folder(settings.home, number)
    log, scratch = folder / "driver.log", driver_scratch(folder)
    with only_driver(folder), stop_signals(stop), _own_files(folder, log, scratch) as output:
        session = start_spark(settings, config=DRIVER_CONFIG, app_name="kdi driver", output=output, scratch=scratch)
        jvm = _watched_jvm(session, wakes)
        try:
            clients = Clients(session, stop=stop, left=left, recycle_after=recycle_after)
            with _accept_clients(folder, settings, session, clients):
                report(f"driver ready: process {os.getpid()}, Spark {session.version}, log {log}")
                ending = _ending(wakes, clients, idle_exit_seconds)
            # Only now: YARN may take seconds to say why, in which clients would attach to no application.
            if ending is Ending.APPLICATION_ENDED and (error := ended_application()):
                raise error
        finally:
            stop_spark(session)
        return _reported(ending, jvm.returncode, log, report)


def _watched_jvm(session: SparkSession, wakes: Wakes) -> Popen[bytes]:
    """The driver's JVM; its end, and that of the application, wake the main thread."""
    jvm, context = jvm_of(session), session.sparkContext

    def until_closed() -> None:
        while jvm.poll() is None and not is_stopped(context) and not has_ended(context):
            time.sleep(LOOK_SECONDS)

    def closed(_: object) -> None:
        wakes.put(Ending.JVM_ENDED if jvm.poll() is not None else Ending.APPLICATION_ENDED)

    start_in_thread(jvm.wait, name="jvm").add_done_callback(closed)
    # In a thread too: a JVM that hangs does not answer, and the driver must be able to end.
    start_in_thread(until_closed, name="application").add_done_callback(closed)
    return jvm


def _reported(ending: Ending, exit_code: int, log: Path, report: Callable[[str], None]) -> Ending:
    if ending in (Ending.JVM_ENDED, Ending.APPLICATION_ENDED):  # of the latter, the JVM could not say more
        raise DriverJvmEnded(exit_code=exit_code, log=log)
    report(f"driver ended: {ending.value}")
    return ending


def _own_files(folder: Path, log: Path, scratch: Path) -> IO[bytes]:
    """The open log, and an empty folder for temporary files.

    Raises:
        FolderNotWritable: What is there is another user's.
    """
    try:
        rmtree(scratch, ignore_errors=True)  # a JVM that was killed leaves its files there
        scratch.mkdir(mode=0o700)  # Spark's files in it hold messages, and other users may read the files themselves
        return open(log, "wb", opener=_private)
    except OSError as refused:
        raise FolderNotWritable.of(folder, refused) from refused


def _private(path: str, flags: int) -> int:
    """Open a file that only its owner may read: an error of Spark may quote a message."""
    opened = os.open(path, flags, 0o600)
    os.fchmod(opened, 0o600)  # the file may be that of an earlier release
    return opened


def driver_scratch(folder: Path) -> Path:
    """The driver's folder of temporary files, unless Spark's own configuration names another one.

    Not below ``/tmp``: clients pass data in files there, and a process of another unit or container may have another
    ``/tmp``, but the same home.
    """
    return folder / "spark"


def stop_driver(folder: Path) -> None:
    """Ask the driver of ``folder`` to stop, and wait for its end.

    Raises:
        DriverGone: It does not run or does not answer.
    """
    with closing(ControlConnection(folder, ask="stop")) as connection, until_driver_ended(folder):
        connection.send(stop=True)


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
def _accept_clients(folder: Path, settings: Settings, session: SparkSession, clients: Clients) -> Iterator[None]:
    """Let clients attach during the body."""
    parameters = gateway_of(session).gateway_parameters
    with ControlServer(clients, secret=parameters.auth_token) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        DriverAddress(
            pid=os.getpid(),
            gateway_port=parameters.port,
            control_port=server.port,
            secret=parameters.auth_token,
            spark_version=session.version,
            s3=s3_location(settings),
            lake=settings.lake,
            kernel=release_digest(),
        ).publish(folder)
        try:
            yield
        finally:
            # In this order: a client that looks for the file finds no driver, one that has read it is refused, and an
            # attached one learns that the driver ends before its jobs fail.
            address_file(folder).unlink(missing_ok=True)
            clients.close()
            server.close_all()
