"""A process's side of the warm driver: PySpark's context and session, on a JVM that belongs to another process.

PySpark takes the JVM that it speaks to for its own: it stops it, cancels every job in it, replaces its default session.
Here each of that means this process's share alone. Import it only to attach: it loads PySpark.
"""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path

from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER
from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext, __version__  # noqa: TID253
from pyspark.java_gateway import launch_gateway  # noqa: TID253
from pyspark.sql import SparkSession  # noqa: TID253

from kdi_assets.runtime.driver.control import ControlConnection, connect_to_driver
from kdi_assets.runtime.driver.errors import DriverDiffers, DriverGone
from kdi_assets.runtime.environment import environment_set, forget_jvm, interrupts_kept


class AttachedContext(SparkContext):
    """The warm driver's context as one process sees it; every job of the process carries its job group."""

    def __init__(self, gateway: JavaGateway, connection: ControlConnection, group: str) -> None:
        self.connection = connection
        self.group = group
        jvm = gateway.jvm
        shared = jvm.JavaSparkContext.fromSparkContext(jvm.org.apache.spark.SparkContext.getOrCreate())
        super().__init__(conf=SparkConf(_jconf=shared.getConf()), gateway=gateway, jsc=shared)
        self.carry_group()

    def carry_group(self) -> None:
        """Mark the calling thread's jobs as this process's; the JVM has a thread, and its marks, for each of ours."""
        self.setJobGroup(self.group, f"process {os.getpid()}", interruptOnCancel=True)
        # Processes take turns instead of queueing behind the longest job; few pools, since none is ever given up.
        self.setLocalProperty("spark.scheduler.pool", f"pool {os.getpid() % 16}")

    def cancelAllJobs(self) -> None:
        """Cancel the jobs of this process; PySpark's would cancel everyone's."""
        self.cancelJobGroup(self.group)

    def stop(self) -> None:
        """Leave the driver and all in it as they are, but for what this process still runs there."""
        gateway, self._jsc = SparkContext._gateway, None
        if gateway is None or SparkContext._active_spark_context is not self:
            return
        if server := getattr(self, "_accumulatorServer", None):
            server.shutdown()
            server.server_close()
        _hang_up(gateway)
        forget_jvm()
        self.connection.close()


class AttachedSession(SparkSession):
    """A session of this process in the warm driver."""

    _sc: AttachedContext

    def newSession(self) -> SparkSession:
        """A session of its own, whose jobs the driver knows for this process's also in threads without its group."""
        session = super().newSession()
        self._sc.connection.tell(session_tag=session._jsparkSession.sessionJobTag())
        return session

    def stop(self) -> None:
        """Detach; PySpark's would take away the JVM's default session, and its context with it."""
        self._sc.stop()


def attach(home: Path) -> AttachedSession:
    """Attach this process to the warm driver of ``home``; the session is the driver's default one, to take others from.

    Raises:
        DriverGone: It does not run, and is not about to.
        DriverDiffers: It runs another Spark.
    """
    group = f"kdi-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    connection = connect_to_driver(home, ask="attach", pid=os.getpid(), group=group)
    try:
        if connection.address.spark_version != __version__:
            raise DriverDiffers(theirs=connection.address.spark_version, ours=__version__)
        with environment_set(_environment(connection)), interrupts_kept():
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
            return AttachedSession(AttachedContext(gateway, connection, group))
    except OSError as refused:
        connection.close()
        raise DriverGone(home=home, reason="its JVM does not answer") from refused
    except BaseException:
        connection.close()
        raise


def _environment(connection: ControlConnection) -> dict[str, str]:
    """From where PySpark takes the JVM to speak to; left there, child processes would attach too."""
    return {
        "PYSPARK_GATEWAY_PORT": str(connection.address.gateway_port),
        "PYSPARK_GATEWAY_SECRET": connection.address.secret,
        "PYSPARK_PIN_THREAD": "true",
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
    }


def _hang_up(gateway: JavaGateway) -> None:
    """Close this process's connections; ``gateway.shutdown()`` would end the JVM's server for everyone."""
    client = gateway._gateway_client
    client.finalizer_deque.appendleft(SHUTDOWN_FINALIZER_WORKER)
    gateway.close(keep_callback_server=True)
    client.is_connected = False  # else a leftover DataFrame would open a new connection behind our back
