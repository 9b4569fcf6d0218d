"""Which JVM this process uses, as PySpark keeps it in private attributes of its classes, and py4j's connection to it.

Apart from ``spark_internals``, because that is about one session, and this about the process: PySpark believes that it
owns its one JVM, and here JVMs are ended, replaced, and shared with other processes.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from kdi_assets.runtime.root_cause import is_jvm_loss
from kdi_assets.runtime.spark_internals import jvm_context, jvm_session, jvm_view

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

EXECUTOR_ENV = "spark.executorEnv."


def gateway_of(session: SparkSession) -> JavaGateway:
    """The py4j gateway to the JVM of ``session``."""
    return cast("JavaGateway", session.sparkContext._gateway)


def current_gateway() -> JavaGateway | None:
    """The gateway to the JVM that PySpark would use."""
    from pyspark import SparkContext

    return SparkContext._gateway


def use_gateway(gateway: JavaGateway) -> SparkConf:
    """Let PySpark use a JVM that was started; returns the JVM's configuration."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized(gateway=gateway)
    return SparkConf(_jvm=gateway.jvm)


def hadoop_default(name: str) -> str | None:
    """A setting of Hadoop's configuration files, in a JVM that was started and has no context yet."""
    value = cast("JavaGateway", current_gateway()).jvm.org.apache.hadoop.conf.Configuration().get(name)
    return None if value is None else str(value)


def forget_jvm() -> None:
    """Let PySpark start or find another JVM; it keeps the current one in class attributes."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def first_session() -> SparkSession | None:
    """The session that PySpark's builder would answer with."""
    from pyspark.sql import SparkSession

    return SparkSession._instantiatedSession


def activate(session: SparkSession) -> None:
    """Make ``session`` the active one of the calling thread, in the JVM too, and the one of PySpark's builder."""
    from pyspark.sql import SparkSession

    SparkSession._get_j_spark_session_class(jvm_view(session)).setActiveSession(jvm_session(session))
    SparkSession._activeSession = SparkSession._instantiatedSession = session


def cache_jvm_names(gateway: JavaGateway) -> None:
    """Let the JVM answer once what a name is: a package, a class or a static method.

    Otherwise the JVM searches every package that PySpark imports and every jar, again for each part of each name.

    Source: Py4J 0.10.9, ``py4j/java_gateway.py`` (``JVMView``, ``JavaPackage`` and ``JavaClass``: ``__getattr__``).
    """
    from kdi_assets.runtime.jvm_names import remembering

    remembering(gateway.jvm)


def is_stopped(context: SparkContext) -> bool:
    return context._jsc is None


def has_ended(context: SparkContext) -> bool:
    """Whether the JVM has stopped the context by itself, as it does when its cluster ends the application.

    PySpark's part of the context does not notice it. A JVM that does not answer has not stopped it.
    """
    try:
        return bool(cast(Any, context)._jsc.sc().isStopped())
    except Exception as failed:
        if not is_jvm_loss(failed):
            raise
        return False


def ended_context() -> SparkContext | None:
    """The context of this process, if it has ended so."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    return context if context is not None and not is_stopped(context) and has_ended(context) else None


def shared_context(gateway: JavaGateway) -> tuple[Any, SparkConf] | None:
    """The context that runs in a JVM, and its configuration: arguments of PySpark's ``SparkContext``.

    Returns:
        Nothing if none runs: the cluster has ended its application. Spark's public call would start another one, with
        the configuration that the JVM began with, so without our log stores.
    """
    from pyspark import SparkConf

    class ConfOfAttached(SparkConf):
        def getAll(self) -> list[tuple[str, str]]:
            """Only variables of executors: ``SparkContext`` takes no others, and each would be five calls."""
            found = cast(Any, self._jconf).getAllWithPrefix(EXECUTOR_ENV)
            return [(EXECUTOR_ENV + each._1(), each._2()) for each in found]

    cache_jvm_names(gateway)  # PySpark's own context asks for many
    jvm = gateway.jvm
    active = getattr(getattr(jvm.org.apache.spark, "SparkContext$"), "MODULE$").getActive()
    if active.isEmpty() or active.get().isStopped():
        return None
    shared = jvm.JavaSparkContext.fromSparkContext(active.get())
    return shared, ConfOfAttached(_jconf=shared.getConf())


def leave_context(context: SparkContext) -> bool:
    """Stop PySpark's part of a context, close py4j's connections and forget the JVM, where everything goes on.

    Returns:
        Whether it was the context of this process; otherwise nothing was closed.
    """
    from pyspark import SparkContext

    gateway = current_gateway()
    context._jsc = None
    if gateway is None or SparkContext._active_spark_context is not context:
        return False
    if server := getattr(context, "_accumulatorServer", None):
        # Not awaited: it looks every half a second whether it shall end, and every command would wait for that.
        threading.Thread(target=server.shutdown, name="kdi-accumulators-end", daemon=True).start()
    _disconnect(gateway)
    forget_jvm()
    return True


def _disconnect(gateway: JavaGateway) -> None:
    """Close this process's connections; ``gateway.shutdown()`` would end the JVM's server for all processes."""
    from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER

    client = gateway._gateway_client
    client.finalizer_deque.appendleft(SHUTDOWN_FINALIZER_WORKER)
    gateway.close(keep_callback_server=True)
    client.is_connected = False  # otherwise a leftover DataFrame would open a new connection


@contextmanager
def undone_on_failure() -> Iterator[None]:
    """End what PySpark and py4j have begun in the body, if it fails: a context, and the thread of a gateway.

    PySpark returns a gateway only after it has called the JVM. If a call fails, nobody has the gateway, and its thread
    would run until the process ends.
    """
    from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER, FinalizerWorker
    from pyspark import SparkContext

    before = {*threading.enumerate()}
    try:
        yield
    except BaseException:
        if context := SparkContext._active_spark_context:
            leave_context(context)
        for thread in {*threading.enumerate()} - before:
            if isinstance(thread, FinalizerWorker):
                thread.deque.appendleft(SHUTDOWN_FINALIZER_WORKER)
        raise


def job_tag(session: SparkSession) -> str:
    """The tag of all jobs of a session."""
    return str(jvm_session(session).sessionJobTag())


def job_group(session: SparkSession) -> str | None:
    """The group of this process's jobs in the warm driver; ``None`` in a JVM of our own."""
    return getattr(session.sparkContext, "group", None)


def cancel_jobs(context: Any, group: str, tags: Collection[str], *, reason: str) -> None:
    """Cancel the jobs of a group and those with one of the tags, in the JVM's context.

    Future jobs of the group too: between two jobs of an action there is none to cancel, and the JVM thread of a client
    that has died would start the next one.
    """
    context.cancelJobGroupAndFutureJobs(group, reason)
    for tag in tags:
        context.cancelJobsWithTag(tag)


def active_jobs(context: Any) -> int:
    """How many jobs run in the JVM's context, of whomever."""
    return len(context.statusTracker().getActiveJobIds())


def running_tasks(session: SparkSession) -> tuple[int, int] | None:
    """Tasks of the session's running jobs: those that have ended, and all; ``None``: no job runs.

    By the jobs' tag: in the warm driver, other processes have jobs too.
    """
    jvm = jvm_view(session)
    tracker, as_text = jvm_context(session).statusTracker(), jvm.java.util.Arrays.toString
    ours = _numbers(as_text(tracker.getJobIdsForTag(job_tag(session))))
    running = _numbers(as_text(tracker.getActiveJobIds()))
    jobs = [tracker.getJobInfo(job) for job in ours & running]
    stages = {stage for job in jobs if job.isDefined() for stage in _numbers(as_text(job.get().stageIds()))}
    infos = [tracker.getStageInfo(stage) for stage in stages]
    counts = [(i.get().numCompletedTasks(), i.get().numTasks()) for i in infos if i.isDefined()]
    return (sum(ended for ended, _ in counts), sum(total for _, total in counts)) if counts else None


def _numbers(array: str) -> set[int]:
    """Of an array of Java as text: py4j would ask the JVM for each item."""
    return {int(number) for number in array.strip("[]").split(", ") if number}


class ClientObjects:
    """Objects that py4j keeps in the JVM until a client releases them; a dead client never does."""

    def __init__(self, gateway: JavaGateway) -> None:
        from py4j.java_gateway import JavaObject
        from py4j.protocol import GATEWAY_SERVER_OBJECT_ID

        server = JavaObject(GATEWAY_SERVER_OBJECT_ID, gateway._gateway_client)
        self._kept = server.getGateway().getBindings()
        self._owners = gateway.jvm.java.util.HashSet(self._kept.keySet())
        for own in (self._kept, self._owners):
            self._owners.add(own._target_id)

    def release(self) -> None:
        """Release all objects but this process's own; only while no other process is attached."""
        self._kept.keySet().retainAll(self._owners)
