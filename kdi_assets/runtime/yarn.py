"""Opens Spark's context on YARN within a bounded time, and asks YARN about its application; Spark alone would wait.

This module is the only one that asks YARN, by YARN's own client in the driver's JVM.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import TimeoutError as TookTooLong
from contextlib import contextmanager
from functools import partial
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit
from uuid import uuid4

from kdi_assets.runtime.errors import YarnDidNotStart, YarnNeedsOtherSettings, YarnRefused
from kdi_assets.runtime.gateway import current_gateway
from kdi_assets.runtime.root_cause import is_jvm_loss, root_cause, root_text
from kdi_assets.runtime.threads import start_in_thread
from kdi_assets.wording import first_line

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf, SparkContext

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 300.0
"""How long a driver waits for YARN to start its application; a queue that is full now has room within minutes."""
LOG_SECONDS = 30.0
ANSWER_SECONDS = 20.0
"""By default Hadoop's client asks a ResourceManager that does not answer for a quarter of an hour."""
NO_FAILURE = ("SUCCEEDED", "UNDEFINED")
TAGS, QUEUE = "spark.yarn.tags", "spark.yarn.queue"
_CONTAINERS_ERROR = re.compile(
    r"^.*?((?:[\w.$]*(?:Exception|Error): |\S+: No such file or directory|Container \S+ is running ).*)$", re.MULTILINE
)
"""Of the output of a container, as YARN quotes it: what Java, its launcher and the shell say, and memory that is too
small; behind a time, or a shell's name and line."""
_NEEDS = (
    (r"unknown queue|queue .* does not exist", "spark.yarn.queue names a queue of the cluster"),
    (
        r"cannot submit applications? to queue",
        "the queue takes applications of this user, or spark.yarn.queue names another",
    ),
    (
        "Could not find or load main class",
        "spark.yarn.jars or spark.yarn.archive has Spark's jars as the cluster's machines find them",
    ),
    (
        r"/bin/java: No such file or directory",
        "spark.executorEnv.JAVA_HOME and spark.yarn.appMasterEnv.JAVA_HOME name the Java of the cluster's machines, or "
        "are not set",
    ),
)
"""What YARN, Spark's client of it or a container says if the next try fails as well, and what must be true first."""
_TOO_LARGE = re.compile("Required (executor|AM) memory|Invalid resource request")
"""YARN's largest container is that of the machines that run, so one that is too large now may fit later."""
_FITS = (
    "spark.executor.memory, spark.executor.cores and spark.yarn.am.memory must fit into the largest container that the "
    "running machines offer"
)
_NO_FILE = re.compile(r"does not exist: *(\S+)|File (\S+) does not exist")


def runs_on_yarn(master: str | None) -> bool:
    """Whether YARN gives the executors, by ``spark.master``."""
    return master == "yarn"


def open_on_yarn(conf: SparkConf) -> SparkContext:
    """Open Spark's context, and wait only so long for YARN to start its application; log now and then what YARN says.

    Raises:
        YarnDidNotStart: It did not within ``PATIENCE_SECONDS``; the application was withdrawn.
        YarnRefused: It refuses the application, or its first container failed.
        YarnNeedsOtherSettings: The same, and it will do so again.
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
            raise refusal(queue, root_text(failed), dict(conf.getAll())) from failed
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


def what_yarn_says(application: str) -> str:
    """The final status and the diagnostics of this process's application, once it has ended; within seconds.

    Empty if YARN or the JVM does not answer, or if YARN knows no reason, as of a driver that somebody stops.
    """
    asked = start_in_thread(partial(_end, cast("JavaGateway", current_gateway()).jvm, application), name="ask YARN")
    try:
        return asked.result(ANSWER_SECONDS)
    except TookTooLong:
        return ""
    except Exception as failed:  # noqa: BLE001 - whoever asks has an error already, and says it
        return "" if is_jvm_loss(failed) else root_cause(failed)


def in_brief(diagnostics: str) -> str:
    """The first line of what YARN says, and the first error of a container that it quotes below."""
    first, below = first_line(diagnostics), diagnostics.strip().partition("\n")[2]
    error = _CONTAINERS_ERROR.search(below)
    return f"{first[:500]}: {error[1].strip()[:500]}" if error else first[:500]


def refusal(queue: str, said: str, settings: Mapping[str, str]) -> YarnRefused | YarnNeedsOtherSettings:
    """The error of a context that did not open.

    Args:
        said: All that YARN, HDFS or Spark's client of them said, with what it quotes of a container.
        settings: Spark's.
    """
    detail = in_brief(said)
    needs = next((needs for words, needs in _NEEDS if re.search(words, said)), "") or _missing_file(said, settings)
    if needs:
        return YarnNeedsOtherSettings(queue=queue, detail=detail, needs=needs)
    return YarnRefused(queue=queue, detail=f"{detail} ({_FITS})" if _TOO_LARGE.search(said) else detail)


def _missing_file(said: str, settings: Mapping[str, str]) -> str:
    """That a file must be there which a setting names; empty if it is about no such file."""
    if not (found := _NO_FILE.search(said)):
        return ""
    path = urlsplit(found[1] or found[2]).path  # of the file, or of the folder that it should be in
    named = re.compile(rf"{re.escape(path)}(?=[/,#\s]|$)")
    named_by = sorted(name for name, value in settings.items() if path and named.search(value))
    return f"{path} is there, or {' and '.join(named_by)} names another" if named_by else ""


def _answer(ask: Callable[[], str]) -> str:
    try:
        return start_in_thread(ask, name="ask YARN").result(ANSWER_SECONDS)
    except TookTooLong:
        return "the ResourceManager does not answer"
    except Exception as failed:  # noqa: BLE001 - whoever asks goes on, and says it
        return root_cause(failed)


def _said(jvm: Any, tag: str) -> str:
    """State and diagnostics of the driver's application."""
    with _client(jvm) as client:
        found = _with_tag(jvm, client, tag)
        said = [f"{a.getApplicationId()} is {a.getYarnApplicationState()}: {a.getDiagnostics()}" for a in found]
    return " ".join(said) or "it has no application of this driver yet"


def _end(jvm: Any, application: str) -> str:
    """Final status and diagnostics of an application; empty if they say of no failure."""
    with _client(jvm) as client:
        report = client.getApplicationReport(
            jvm.org.apache.hadoop.yarn.api.records.ApplicationId.fromString(application)
        )
        status, diagnostics = str(report.getFinalApplicationStatus()), str(report.getDiagnostics() or "")
    return "" if not diagnostics and status in NO_FAILURE else f"{status}: {in_brief(diagnostics)}"


def _kill(jvm: Any, tag: str) -> str:
    with _client(jvm) as client:
        for application in _with_tag(jvm, client, tag):
            client.killApplication(application.getApplicationId())
    return ""


@contextmanager
def _client(jvm: Any) -> Iterator[Any]:
    hadoop = jvm.org.apache.hadoop.yarn
    client = hadoop.client.api.YarnClient.createYarnClient()
    client.init(hadoop.conf.YarnConfiguration())
    client.start()
    try:
        yield client
    finally:
        client.stop()


def _with_tag(jvm: Any, client: Any, tag: str) -> Any:
    """The applications with the tag: one, or none yet."""
    tags = jvm.java.util.HashSet()
    tags.add(tag)
    asked = jvm.org.apache.hadoop.yarn.api.protocolrecords.GetApplicationsRequest.newInstance()
    asked.setApplicationTags(tags)
    return client.getApplications(asked)
