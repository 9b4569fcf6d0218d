"""Errors of Spark and the storage in a drain, and Spark's exceptions translated into them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError, Terminal, Transient
from kdi_assets.messages.of_stream import source_of
from kdi_assets.runtime.progress import WorkStep, announced
from kdi_assets.runtime.spark_failures import FailureKind, SparkFailure, translated


class RunAgain(KdiError):
    """An error whose text names the command that met it; its other base says whether a retry can help.

    Attributes:
        command: The command that met the error; by default a drain. ``refused_to`` sets another one.
    """

    stream: str
    command: str = ""

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        self.command = self.command or f"kdi drain {self.stream}"


class TableRefusesRows(Terminal):
    """A constraint of the table does not hold for a row of the stream."""

    stream: str
    detail: str

    what_happened = "{stream}: the table refuses a row: {detail}"
    what_is_safe = "nothing was committed; positions stay as they are."
    what_to_run = (
        "kdi drain {stream}   (first drop the constraint, or let `schema:` (NOT NULL) or `date:` make such "
        "messages dead letters)"
    )


class ReadOrWriteFailed(RunAgain, Transient):
    """Spark, delta-rs or the storage failed in one step.

    Attributes:
        step: What was being done, such as "committing".
        detail: Its cause in one line; ``__cause__`` has the rest.
    """

    step: str
    detail: str

    what_happened = "{stream}: {step} failed: {detail}"
    what_is_safe = (
        "all rows and positions committed so far; a commit lands whole or not at all."  # its answer may be lost
    )
    what_to_run = "{command}   (it begins at the positions that the log has)"


class StorageForbids(RunAgain, Terminal):
    """The storage refuses an operation, and will refuse it again: a right is missing, or room.

    Attributes:
        step: What was being done, such as "committing".
        detail: The cause in one line, with the path if the storage names it.
        needs: What someone must give first.
    """

    step: str
    detail: str
    needs: str

    what_happened = "{stream}: {step} failed: {detail}"
    what_is_safe = "all rows and positions committed so far; a commit lands whole or not at all."
    what_to_run = "{command}   (once {needs})"


class WorkerPythonUnfit(RunAgain, Terminal):
    """The Python of Spark's workers cannot run what reads, decodes or validates the messages.

    Attributes:
        detail: What it lacks, in one line.
    """

    detail: str

    what_happened = "{stream}: Python in Spark's workers cannot run what reads or decodes the messages: {detail}"
    what_is_safe = "nothing was committed; positions stay as they are."
    what_to_run = (
        "{command}   (once the executors have this Python with the packages of deploy/requirements.lock; "
        "PYSPARK_PYTHON names its path there, docs/clusters.md the ways to bring it)"
    )


@contextmanager
def spark_failures(
    stream: Stream, step: str, *, offsets: int | None = None, done: Callable[[], int] | None = None
) -> Iterator[None]:
    """Announce a step, and translate exceptions of Spark, delta-rs and the file system; errors of ours pass unchanged.

    Args:
        step: What the body does, for progress and for the error's text.
        offsets: How many the step goes through, if that is known.
        done: How many it went through so far.

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

    with announced(WorkStep(name=stream.name, doing=step, total=offsets, done=done)), translated(error_of):
        yield


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
