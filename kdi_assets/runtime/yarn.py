"""Opens Spark's context on YARN within a bounded time, and logs what YARN says; Spark alone would wait for ever."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import TimeoutError as TookTooLong
from functools import partial
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from kdi_assets.runtime.errors import YarnDidNotStart, YarnRefused
from kdi_assets.runtime.gateway import current_gateway
from kdi_assets.runtime.spark_failures import failure_of
from kdi_assets.runtime.threads import start_in_thread

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf, SparkContext

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 300.0
"""How long a driver waits for YARN to start its application; a queue that is full now has room within minutes."""
LOG_SECONDS = 30.0
ANSWER_SECONDS = 20.0
"""By default Hadoop's client asks a ResourceManager that does not answer for a quarter of an hour."""
TAGS, QUEUE = "spark.yarn.tags", "spark.yarn.queue"


def runs_on_yarn(master: str | None) -> bool:
    """Whether YARN gives the executors, by ``spark.master``."""
    return master == "yarn"


def open_on_yarn(conf: SparkConf) -> SparkContext:
    """Open Spark's context, and wait only so long for YARN to start its application; log now and then what YARN says.

    Raises:
        YarnDidNotStart: It did not within ``PATIENCE_SECONDS``; the application was withdrawn.
        YarnRefused: It refuses the application, or its first container failed.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark import SparkContext

    tag, queue = f"kdi-{uuid4()}", str(conf.get(QUEUE, "default"))
    conf.set(TAGS, ",".join(filter(None, [conf.get(TAGS, ""), tag])))
    gateway, ended = cast("JavaGateway", current_gateway()), Event()
    waiting = start_in_thread(partial(_wait_or_withdraw, gateway, tag, ended), name="wait for YARN")
    try:
        return SparkContext(conf=conf)
    except BaseException as failed:  # also the loss of the JVM that the wait has ended
        ended.set()
        if not isinstance(failed, Exception):  # interrupted: YARN would start the application later
            _answer(partial(_kill, gateway.jvm, tag))
            raise
        if said := waiting.result():
            raise YarnDidNotStart(queue=queue, seconds=PATIENCE_SECONDS, said=said) from failed
        if isinstance(failed, Py4JJavaError):
            raise YarnRefused(queue=queue, detail=failure_of(failed).root) from failed
        raise
    finally:
        ended.set()


def _wait_or_withdraw(gateway: JavaGateway, tag: str, ended: Event) -> str:
    """Wait for the context; when patience ends, withdraw the application, and end a JVM that does not notice it.

    Returns:
        What YARN said last; empty if the wait ended before.
    """
    began = monotonic()
    while True:
        if ended.wait(LOG_SECONDS):
            return ""
        said, waited = _answer(partial(_said, gateway.jvm, tag)), monotonic() - began
        log.warning("waiting for YARN since %.0f s: %s", waited, said)
        if waited >= PATIENCE_SECONDS:
            break
    if ended.is_set():
        return ""
    _answer(partial(_kill, gateway.jvm, tag))
    if not ended.wait(ANSWER_SECONDS):  # until then Spark deletes what it has uploaded
        gateway.proc.kill()
    return said


def _answer(ask: Callable[[], str]) -> str:
    try:
        return start_in_thread(ask, name="ask YARN").result(ANSWER_SECONDS)
    except TookTooLong:
        return "the ResourceManager does not answer"
    except Exception as failed:  # noqa: BLE001 - the wait goes on, and says it
        return failure_of(failed).root


def _said(jvm: Any, tag: str) -> str:
    """State and diagnostics of the driver's application."""
    client, found = _application(jvm, tag)
    try:
        said = [f"{a.getApplicationId()} is {a.getYarnApplicationState()}: {a.getDiagnostics()}" for a in found]
        return " ".join(said) or "it has no application of this driver yet"
    finally:
        client.stop()


def _kill(jvm: Any, tag: str) -> str:
    client, found = _application(jvm, tag)
    try:
        for application in found:
            client.killApplication(application.getApplicationId())
    finally:
        client.stop()
    return ""


def _application(jvm: Any, tag: str) -> tuple[Any, Any]:
    """A client of YARN, which must be stopped, and the applications with the tag: one, or none yet."""
    hadoop = jvm.org.apache.hadoop.yarn
    client = hadoop.client.api.YarnClient.createYarnClient()
    client.init(hadoop.conf.YarnConfiguration())
    client.start()
    tags = jvm.java.util.HashSet()
    tags.add(tag)
    asked = hadoop.api.protocolrecords.GetApplicationsRequest.newInstance()
    asked.setApplicationTags(tags)
    return client, client.getApplications(asked)
