"""The client side of the warm driver: PySpark's context and session on the JVM of another process.

PySpark believes that it owns its JVM: it stops it, cancels all its jobs, replaces its default session. The classes here
affect only this process's part. Importing this module loads PySpark, so do it only to attach.
"""

from __future__ import annotations

import os
import sys
import uuid
from functools import partial

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext  # noqa: TID253
from pyspark.java_gateway import launch_gateway  # noqa: TID253
from pyspark.sql import SparkSession  # noqa: TID253

from kdi_assets.errors import KdiError
from kdi_assets.runtime.driver.control import ControlConnection, DriverAddress
from kdi_assets.runtime.driver.drivers import connect_to_driver
from kdi_assets.runtime.environment import environment_set, interrupts_kept
from kdi_assets.runtime.errors import DriverGone
from kdi_assets.runtime.gateway import job_tag, leave_context, shared_context, undone_on_failure
from kdi_assets.settings import Settings


class AttachedContext(SparkContext):
    """The warm driver's context in one process; every job of the process carries its job group."""

    def __init__(self, gateway: JavaGateway, connection: ControlConnection, group: str) -> None:
        self.connection = connection
        self.group = group
        if (found := shared_context(gateway)) is None:
            raise DriverGone(home=connection.folder, reason="its cluster has ended Spark's application")
        shared, conf = found
        super().__init__(conf=conf, gateway=gateway, jsc=shared)
        self.carry_group()

    def carry_group(self) -> None:
        """Set the job group in the JVM thread of the calling thread."""
        self.setJobGroup(self.group, f"process {os.getpid()}", interruptOnCancel=True)
        # Processes take turns instead of waiting for the longest job. A pool for each turn: in one pool, the later job
        # would wait; and turns are used again, because Spark never removes a pool. Drivers of before tell none.
        self.setLocalProperty("spark.scheduler.pool", f"pool {self.connection.answer.get('turn', 0)}")

    def cancelAllJobs(self) -> None:
        """Cancel the jobs of this process; PySpark's method would cancel those of all processes."""
        self.cancelJobGroup(self.group)

    def stop(self) -> None:
        """Detach: the driver cancels the jobs of this process, and nothing else changes there."""
        if leave_context(self):
            self.connection.close()


class AttachedSession(SparkSession):
    """A session of this process in the warm driver."""

    _sc: AttachedContext

    def newSession(self) -> SparkSession:
        """A new session; the driver learns its job tag, for jobs in threads without the job group."""
        session = super().newSession()
        self._sc.connection.send(session_tag=job_tag(session))
        return session

    def stop(self) -> None:
        """Detach; PySpark's method would remove the JVM's default session and its context."""
        self._sc.stop()


def attach(settings: Settings) -> AttachedSession:
    """Attach this process to a warm driver of its home; returns the driver's default session, to make others from.

    Raises:
        DriverGone: It does not run, and does not start.
        DriverDiffers: It has another Spark, or kernels of another release.
        DriverOfOtherS3: Its lake and this process's are on S3, with another endpoint or region.
        CredentialsMissing, CredentialsRefused: The profile of AWS cannot be read.
    """
    group = f"kdi-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    refuse = partial(DriverAddress.refuse_other, settings=settings)
    connection = connect_to_driver(settings.home, refuse=refuse, ask="attach", pid=os.getpid(), group=group)
    try:
        refuse(connection.address)
        return _session(connection, group)
    except BaseException:
        connection.close()
        raise


def _session(connection: ControlConnection, group: str) -> AttachedSession:
    try:
        with environment_set(_environment(connection)), interrupts_kept(), undone_on_failure():
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
            return AttachedSession(AttachedContext(gateway, connection, group))
    except KdiError:
        raise
    except Exception as failure:
        # Of a JVM that ends during a call, py4j says no more than that the call failed.
        if isinstance(failure, OSError | Py4JNetworkError) or connection.driver_ended():
            raise DriverGone(home=connection.folder, reason="its JVM does not answer") from failure
        raise


def _environment(connection: ControlConnection) -> dict[str, str]:
    """Variables by which PySpark finds the JVM; set only for a moment, or child processes would attach too."""
    return {
        "PYSPARK_GATEWAY_PORT": str(connection.address.gateway_port),
        "PYSPARK_GATEWAY_SECRET": connection.address.secret,
        "PYSPARK_PIN_THREAD": "true",
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
    }
