"""Spark's exceptions in a drain, translated into errors of ours that say whether a retry can help."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from kdi_assets.drain.errors import ReadOrWriteFailed, RunAgain, StorageForbids, TableRefusesRows, WorkerPythonUnfit
from kdi_assets.errors import KdiError
from kdi_assets.runtime.spark_failures import FailureKind, SparkFailure, translated
from kdi_assets.sources.of_stream import source_of
from kdi_assets.stream.stream import Stream


def spark_failures(stream: Stream, step: str) -> AbstractContextManager[None]:
    """Translate exceptions of Spark, delta-rs and the file system; errors of ours pass unchanged.

    Args:
        step: What the body does, for the error's text.

    Raises:
        TableRefusesRows: A constraint of the table does not hold for a row.
        StorageForbids: A right is missing in the storage, or room.
        WorkerPythonUnfit: Python workers lack a package, or there is no such Python.
        KdiError: The source failed.
        ReadOrWriteFailed: All other failures.
    """

    def error_of(failure: SparkFailure) -> KdiError:
        if of_source := source_of(stream).failure(failure.root):
            return of_source
        match failure.kind:
            case FailureKind.CONSTRAINT:
                return TableRefusesRows(stream=stream.name, detail=failure.root)
            case FailureKind.WORKER:
                return WorkerPythonUnfit(stream=stream.name, detail=failure.root)
            case FailureKind.STORAGE:
                return StorageForbids(stream=stream.name, step=step, detail=failure.root, needs=failure.needs)
        return ReadOrWriteFailed(stream=stream.name, step=step, detail=failure.root)

    return translated(error_of)


def jvm_loss_named(stream: Stream) -> AbstractContextManager[None]:
    """Translate the end of the JVM outside ``spark_failures``: any call to it may be the first that fails.

    Raises:
        ReadOrWriteFailed: The JVM ended in the body.
    """

    def error_of(failure: SparkFailure) -> KdiError | None:
        if not failure.jvm_is_lost:
            return None
        return ReadOrWriteFailed(stream=stream.name, step="a call to Spark", detail=failure.root)

    return translated(error_of)


@contextmanager
def refused_to(command: str) -> Iterator[None]:
    """Let refusals of the body name this command as the one to run again, in place of a drain."""
    try:
        yield
    except RunAgain as refused:
        refused.command = command
        raise
