"""Starts and ends Spark's JVM as a child of this process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from kdi_assets.runtime.archive import archive_options
from kdi_assets.runtime.cluster import refuse_path_of_other_file_system, refuse_unshared_lake, runs_here, send_jars
from kdi_assets.runtime.environment import environment_set, interrupts_kept
from kdi_assets.runtime.errors import SparkDidNotStart
from kdi_assets.runtime.executors import bound_waits
from kdi_assets.runtime.gateway import current_gateway, forget_jvm, gateway_of, hadoop_default, use_gateway
from kdi_assets.runtime.jars import spark_class_path
from kdi_assets.runtime.java import find_java, proxy_options
from kdi_assets.runtime.kubernetes import refuse_missing_image, start_failure
from kdi_assets.runtime.spark_config import configure_lake, lake_config
from kdi_assets.runtime.spark_failures import translated
from kdi_assets.runtime.yarn import open_on_yarn, runs_on_yarn
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

LOG_CONFIG = Path(__file__).with_name("spark-log4j2.properties")
STDERR = 2  # standard output is for results
LOCAL_DIR = "spark.local.dir"
CLASS_PATH = "spark.driver.extraClassPath"
FRAMES = ("\tat ", "\t... ")
"""How lines of a Java stack trace begin; the error is in the line above them."""
# Otherwise a wrong length in a damaged Avro message could allocate two gigabytes and end the JVM.
AVRO_LIMITS = (
    f"-Dorg.apache.avro.limits.bytes.maxLength={64 * 1024 * 1024}",
    f"-Dorg.apache.avro.limits.string.maxLength={64 * 1024 * 1024}",
    f"-Dorg.apache.avro.limits.collectionItems.maxLength={8 * 1024 * 1024}",
)
# The optimizing compiler would take a third of a small drain's CPU for methods that are not called again. With 30 times
# the default thresholds a small drain ends before it starts, and a large one passes them within a second or two.
PATIENT_COMPILER = (
    "-XX:Tier4InvocationThreshold=150000",
    "-XX:Tier4MinInvocationThreshold=18000",
    "-XX:Tier4CompileThreshold=450000",
    "-XX:Tier4BackEdgeThreshold=1200000",
)
QUICK_COMPILER = ("-XX:TieredStopAtLevel=1",)
"""For a JVM that ends after a small drain: nothing of it runs long enough to be worth the optimizing compiler."""
# For the short-lived JVM that prints the command line of the real one.
LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Spark's own ports have no password unless told to: other users of the machine could read blocks, which hold messages.
LOOPBACK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.authenticate": "true",
}
FILES = "fs.file.impl"
"""Hadoop's own class starts a process for each file that it creates. Executors of a cluster begin without ours."""


def start_spark(
    settings: Settings,
    *,
    config: Mapping[str, str],
    app_name: str,
    output: IO[bytes] | None = None,
    scratch: Path | None = None,
    compiler: Sequence[str] = PATIENT_COMPILER,
) -> SparkSession:
    """Start a JVM and open Spark's context in it, the only one of this process.

    Args:
        config: Spark's settings; they override Spark's own configuration files.
        output: For the JVM's output; by default this process's standard error.
        scratch: For temporary files, unless Spark's own configuration names a folder; by default Java's choice.
        compiler: The JVM's options for its compilers.

    Raises:
        JavaMissing, JarMissing: There is no Java that Spark runs on, or a locked jar is not there.
        LakeNotSafe: Two drivers could commit the same version in the lake.
        OtherLock, OtherLogStore: Spark's own configuration names another log store for the lake.
        SparkDidNotStart: The JVM ended at once.
        YarnDidNotStart, YarnRefused, YarnNeedsOtherSettings: The master is YARN, and it gives no container.
        KubernetesRefused, ExecutorImageMissing: The master is Kubernetes, which refuses the driver, or has no image.
        ContextDidNotStart: The JVM runs, and Spark does not start in it.
        LakeOfOtherFileSystem, LakeNotShared: Spark, or an executor, would look for the lake's path elsewhere.
        NoExecutors: The cluster gives no executor that could look for it.
    """
    from pyspark.sql import SparkSession

    lake_config(settings)  # refuses the lake before a JVM starts
    java_home = find_java(settings.home)
    jars = spark_class_path(settings)
    jvm_config = _jvm_config(settings, config, app_name, jars)
    if (gateway := current_gateway()) is not None:
        _end_jvm(gateway)  # its context was stopped or it died, but PySpark would go on with it
    with environment_set(_environment(settings, java_home, compiler)), interrupts_kept():
        conf = _launch(jvm_config, java_home, output)
        _set_places(conf, jars, scratch)
        configure_lake(conf, settings)
        session = SparkSession(_open_context(conf))
    if not runs_here(session.sparkContext.master):
        bound_waits(session)
    _refuse_lake(session, settings.lake)
    return session


def _set_places(conf: SparkConf, jars: Sequence[Path], scratch: Path | None) -> None:
    """Set where jars, addresses and temporary files are, unless Spark's own configuration says it."""
    # A machine's own name may not resolve, and a local Spark need not be reachable from elsewhere.
    is_local = runs_here(conf.get("spark.master"))
    places = LOOPBACK if is_local else {}
    if not is_local:
        send_jars(conf, jars)
    elif not hadoop_default(FILES):
        places = {**LOOPBACK, f"spark.hadoop.{FILES}": "kdi.storage.LocalFiles"}  # it would override Hadoop's own file
    for key, value in {**places, **({LOCAL_DIR: str(scratch)} if scratch else {})}.items():
        conf.setIfMissing(key, value)


def _open_context(conf: SparkConf) -> SparkContext:
    from pyspark import SparkContext

    master, namespace = str(conf.get("spark.master", "")), str(conf.get("spark.kubernetes.namespace", "default"))
    with translated(partial(start_failure, master=master, namespace=namespace)):
        refuse_missing_image(conf, master=master)
        return open_on_yarn(conf) if runs_on_yarn(master) else SparkContext(conf=conf)


def _refuse_lake(session: SparkSession, lake: str) -> None:
    try:
        refuse_path_of_other_file_system(session, lake)
        if not runs_here(session.sparkContext.master):
            refuse_unshared_lake(session, lake)
    except BaseException:
        stop_spark(session)
        raise


def stop_spark(session: SparkSession, *, within_seconds: float = 10) -> None:
    """Stop the context and end the JVM, so that this process can start another; kill it after that time."""
    gateway = gateway_of(session)
    try:
        if jvm_of(session).poll() is None:
            session.stop()
    finally:
        _end_jvm(gateway, within_seconds)


def jvm_of(session: SparkSession) -> subprocess.Popen[bytes]:
    """The JVM that this process started for ``session``."""
    return cast("subprocess.Popen[bytes]", gateway_of(session).proc)


def _launch(config: Mapping[str, str], java_home: Path, output: IO[bytes] | None) -> SparkConf:
    """Start the JVM; returns its configuration: ours and that of Spark's files."""
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    ours = SparkConf(loadDefaults=False).setAll(list(config.items()))
    try:
        gateway = launch_gateway(ours, {"stdout": output or STDERR, "stderr": output})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as ended:
        raise SparkDidNotStart(java_home=java_home, said=last_line(output)) from ended
    return use_gateway(gateway)


def last_line(output: IO[bytes] | None) -> str:
    """What a JVM said last that is not a line of a stack trace, and the file with all of it."""
    if output is None:
        return "the output above says why"
    lines = Path(output.name).read_text(errors="replace").split("\n")
    said = (line for line in reversed(lines) if line.strip() and not line.startswith(FRAMES))
    return f"{next(said, 'no output')} ({output.name} has all of it)"


def _end_jvm(gateway: JavaGateway, within_seconds: float = 10) -> None:
    forget_jvm()
    gateway.close(keep_callback_server=True)
    jvm: subprocess.Popen[bytes] = gateway.proc
    if jvm.stdin:
        jvm.stdin.close()  # PySpark's JVM ends when this pipe is closed
    try:
        jvm.wait(timeout=within_seconds)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


def _jvm_config(settings: Settings, config: Mapping[str, str], app_name: str, jars: Sequence[Path]) -> dict[str, str]:
    class_path = os.pathsep.join([*map(str, jars), *filter(None, [config.get(CLASS_PATH, "")])])
    master = {"spark.master": settings.spark_master} if settings.spark_master else {}
    limits = {"spark.executor.defaultJavaOptions": " ".join(AVRO_LIMITS)}
    return {"spark.app.name": app_name, **limits, **master, **config, CLASS_PATH: class_path}


def _environment(settings: Settings, java_home: Path, compiler: Sequence[str]) -> dict[str, str]:
    """Variables for the JVM and its Python workers; Spark's own configuration overrides them."""
    quick = [*archive_options(settings, java_home), *compiler]
    java_options = [*_log_options(), *AVRO_LIMITS, *proxy_options(), *quick, os.environ.get("SPARK_SUBMIT_OPTS", "")]
    return {
        **_messages_in_english(),
        "JAVA_HOME": str(java_home),
        "PYSPARK_PIN_THREAD": "true",  # each Python thread has a JVM thread, with its session and its job group
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "SPARK_LAUNCHER_OPTS": os.environ.get("SPARK_LAUNCHER_OPTS", LAUNCHER_OPTIONS),
        "SPARK_DRIVER_MEMORY": os.environ.get("SPARK_DRIVER_MEMORY", "2g"),  # spark.driver.memory overrides it
        "SPARK_SUBMIT_OPTS": " ".join(filter(None, java_options)),
    }


def _messages_in_english() -> dict[str, str]:
    """Java tells why a file system refuses a link only in words, and ``LinkLogStore`` reads them."""
    of_all = os.environ.get("LC_ALL")
    return {"LC_MESSAGES": "C", **({"LC_ALL": "", "LC_CTYPE": of_all} if of_all else {})}  # names of files stay UTF-8


def _log_options() -> list[str]:
    """Only warnings and errors, unless there is a Spark configuration of its own, which then has the logging."""
    if "SPARK_CONF_DIR" in os.environ or "SPARK_HOME" in os.environ:
        return []
    return [f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}"]
