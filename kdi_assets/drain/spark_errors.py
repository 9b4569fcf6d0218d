"""Spark's exceptions translated into errors of ours: the one place that decides whether a retry can help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from kdi_assets.drain.errors import ReadOrWriteFailed, RunAgain, TableRefusesRows, WorkerPythonUnfit
from kdi_assets.stream.stream import Stream
from kdi_assets.wording import first_line

NO_PROGRAM = "Cannot run program"
WORKER_UNFIT = re.compile(
    r"^ModuleNotFoundError: |\[(PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION|PYTHON_VERSION_MISMATCH)\]"
    rf"|{NO_PROGRAM} .*error=2"
)
"""A Python worker lacks a package, has another version of Python, or does not exist."""


@contextmanager
def spark_failures(stream: Stream, step: str) -> Iterator[None]:
    """Translate exceptions of Spark, delta-rs and the file system; errors of ours pass unchanged.

    Args:
        step: What the body does, for the error's text.

    Raises:
        TableRefusesRows: A constraint of the table does not hold for a row.
        WorkerPythonUnfit: Python workers lack a package, or there is no such Python.
        ReadOrWriteFailed: All other failures.
    """
    from deltalake.exceptions import DeltaError
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, DeltaError, OSError) as failed:
        detail = root_cause(failed)
        if "DELTA_VIOLATE_CONSTRAINT" in detail or "DELTA_NOT_NULL_CONSTRAINT" in detail:
            raise TableRefusesRows(stream=stream.name, detail=detail) from failed
        if WORKER_UNFIT.search(detail):
            raise WorkerPythonUnfit(stream=stream.name, detail=detail) from failed
        if re.search("ExpiredToken|InvalidToken", str(failed)):
            detail += " (renew the credentials; a warm driver has those of its start: kdi driver stop)"
        raise ReadOrWriteFailed(stream=stream.name, step=step, detail=detail) from failed


@contextmanager
def jvm_loss_named(stream: Stream) -> Iterator[None]:
    """Translate the end of the JVM outside ``spark_failures``: any call to it may be the first that fails.

    Raises:
        ReadOrWriteFailed: The JVM ended in the body.
    """
    from py4j.protocol import Py4JError

    try:
        yield
    except (Py4JError, ConnectionError) as failed:
        if not _is_jvm_loss(failed):
            raise
        raise ReadOrWriteFailed(stream=stream.name, step="a call to Spark", detail=root_cause(failed)) from failed


@contextmanager
def refused_to(command: str) -> Iterator[None]:
    """Let refusals of the body name this command as the one to run again, in place of a drain."""
    try:
        yield
    except RunAgain as refused:
        refused.command = command
        raise


def root_cause(failed: BaseException) -> str:
    """The first line of the innermost exception, of Java or of a Python worker: the cause, without Spark's wrapping."""
    if _is_jvm_loss(failed):
        return "the driver's JVM ended or closed the connection; its own output says why (out of memory?)"
    java = getattr(failed, "java_exception", None) or getattr(failed, "_origin", None)
    # The cause below a program that cannot be run does not name the program.
    while java is not None and java.getCause() is not None and not str(java.getMessage()).startswith(NO_PROGRAM):
        java = java.getCause()
    text = f"{java.getClass().getSimpleName()}: {java.getMessage()}" if java is not None else str(failed)
    _, _, trace = text.partition("Traceback (most recent call last):")
    # Python indents the frames of a trace; what it raised comes after them.
    raised = next((line for line in trace.splitlines() if line and not line[0].isspace()), "")
    return (raised or first_line(text))[:500]


def _is_jvm_loss(failed: BaseException) -> bool:
    """py4j raises its network error, its base error without a Java trace, or the refused connection of its retry."""
    from py4j.protocol import Py4JError, Py4JNetworkError

    wordless = type(failed) is Py4JError and "Trace:" not in str(failed)
    return wordless or isinstance(failed, Py4JNetworkError | ConnectionError)
