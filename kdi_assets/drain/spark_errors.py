"""Spark's exceptions in a drain, translated into errors of ours that say whether a retry can help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from kdi_assets.drain.errors import ReadOrWriteFailed, RunAgain, StorageForbids, TableRefusesRows, WorkerPythonUnfit
from kdi_assets.runtime.spark_causes import NO_PROGRAM, is_jvm_loss, root_cause, storage_needs, violates_constraint
from kdi_assets.stream.stream import Stream

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
        StorageForbids: A right is missing in the storage, or room.
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
        if violates_constraint(detail):
            raise TableRefusesRows(stream=stream.name, detail=detail) from failed
        if WORKER_UNFIT.search(detail):
            raise WorkerPythonUnfit(stream=stream.name, detail=detail) from failed
        if needs := storage_needs(detail):
            raise StorageForbids(stream=stream.name, step=step, detail=detail, needs=needs) from failed
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
        if not is_jvm_loss(failed):
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
