"""Spark's failures as ours: one place that knows which of them a retry can help."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kdi_assets.drain.errors import ReadOrWriteFailed, RunAgain, TableRefusesRows
from kdi_assets.stream.stream import Stream


@contextmanager
def spark_failures(stream: Stream, step: str) -> Iterator[None]:
    """Translate failures of Spark, and of what writes beside it, into ours; an error of ours passes."""
    from deltalake.exceptions import DeltaError
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, DeltaError, OSError) as failed:
        detail = root_cause(failed)
        if "DELTA_VIOLATE_CONSTRAINT" in detail or "DELTA_NOT_NULL_CONSTRAINT" in detail:
            raise TableRefusesRows(stream=stream.name, detail=detail) from failed
        raise ReadOrWriteFailed(stream=stream.name, step=step, detail=detail) from failed


@contextmanager
def jvm_loss_named(stream: Stream) -> Iterator[None]:
    """Translate the end of the JVM beside the steps that say what they do: any call may be the first to find it gone.

    Raises:
        ReadOrWriteFailed: A call of the body did.
    """
    from py4j.protocol import Py4JError

    try:
        yield
    except (Py4JError, ConnectionError) as failed:
        if not _tells_of_jvm_loss(failed):
            raise
        raise ReadOrWriteFailed(stream=stream.name, step="a call to Spark", detail=root_cause(failed)) from failed


@contextmanager
def refused_to(command: str) -> Iterator[None]:
    """Let refusals name the command that was given, where they would name a drain."""
    try:
        yield
    except RunAgain as refused:
        refused.command = command
        raise


def root_cause(failed: BaseException) -> str:
    """The first line of the innermost Java exception, where Spark says what really happened."""
    if _tells_of_jvm_loss(failed):
        return "the driver's JVM ended or closed the connection; its own output says why (out of memory?)"
    java = getattr(failed, "java_exception", None) or getattr(failed, "_origin", None)
    while java is not None and java.getCause() is not None:
        java = java.getCause()
    text = f"{java.getClass().getSimpleName()}: {java.getMessage()}" if java is not None else str(failed)
    return text.strip().splitlines()[0][:500]


def _tells_of_jvm_loss(failed: BaseException) -> bool:
    """py4j raises its own error, or one without a word of the JVM, or tries again and lets the refusal pass."""
    from py4j.protocol import Py4JError, Py4JNetworkError

    wordless = type(failed) is Py4JError and "Trace:" not in str(failed)
    return wordless or isinstance(failed, Py4JNetworkError | ConnectionError)
