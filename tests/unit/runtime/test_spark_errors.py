"""The cause that the text of a failure of Spark names."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from dagster import DagsterExecutionInterruptedError
from py4j.protocol import Py4JNetworkError

from kdi_assets.runtime.root_cause import root_cause
from kdi_assets.streams.drain.shared_read import Drained, _read_once
from kdi_assets.streams.spark_errors import ReadOrWriteFailed, WorkerPythonUnfit, spark_failures
from tests.judged import stream_of

IN_A_WORKER = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 1, in main
    process()
{raised}

\tat org.apache.spark.api.python.BasePythonRunner
Driver stacktrace:
"""


class JavaException:
    """As py4j shows it."""

    def __init__(self, message: str, cause: JavaException | None = None) -> None:
        self.getMessage = lambda: message
        self.getCause = lambda: cause
        self.getClass = lambda: self
        self.getSimpleName = lambda: "IOException"


def in_a_worker(raised: str) -> str:
    return IN_A_WORKER.format(raised=raised)


def test_of_a_python_worker_the_cause_is_what_python_raised() -> None:
    assert root_cause(OSError(in_a_worker("ValueError: 7\nmore"))) == "ValueError: 7"


@pytest.mark.parametrize(
    "text",
    [
        in_a_worker("ModuleNotFoundError: No module named 'ptars'"),
        in_a_worker("pyspark.errors.PySparkImportError: [PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be installed"),
        in_a_worker("pyspark.errors.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has 3.13"),
    ],
)
def test_a_python_that_cannot_decode_is_no_passing_fault(text: str) -> None:
    with pytest.raises(WorkerPythonUnfit, match="PYSPARK_PYTHON"), spark_failures(stream_of("id int"), "reading"):
        raise OSError(text)


def test_a_python_that_is_missing_is_named_although_java_has_its_path_above_the_innermost_cause() -> None:
    missing = JavaException('Cannot run program "/no/python": error=2, No such file', JavaException("error=2, No such"))
    failed = OSError("Job aborted")
    failed.java_exception = JavaException("Job aborted", missing)  # type: ignore[attr-defined]

    with pytest.raises(WorkerPythonUnfit, match="/no/python"), spark_failures(stream_of("id int"), "reading"):
        raise failed


def test_any_other_failure_can_be_tried_again() -> None:
    with pytest.raises(ReadOrWriteFailed), spark_failures(stream_of("id int"), "reading"):
        raise OSError(in_a_worker("MemoryError"))


def test_an_expired_token_names_the_warm_driver_which_keeps_it() -> None:
    failed = OSError("Job aborted: ExpiredToken: The provided token has expired.")

    with pytest.raises(ReadOrWriteFailed, match="kdi driver stop"), spark_failures(stream_of("id int"), "reading"):
        raise failed


def test_a_jvm_that_ends_while_its_failure_is_read_is_a_loss_of_the_jvm() -> None:
    def gone() -> None:
        raise ConnectionRefusedError("Connection refused")

    failed = OSError("Java heap space")
    failed.java_exception = JavaException("Java heap space")  # type: ignore[attr-defined]
    failed.java_exception.getCause = gone  # type: ignore[attr-defined]

    with (
        pytest.raises(ReadOrWriteFailed, match="the driver's JVM ended"),
        spark_failures(stream_of("id int"), "reading"),
    ):
        raise failed


@pytest.mark.parametrize(
    "said",
    [
        "Call From here/127.0.0.1 to namenode:8020 failed on connection exception: java.net.ConnectException: refused",
        'End of File Exception between local host is: "here"; destination host is: "namenode":8020',
    ],
)
def test_the_server_of_hadoop_that_does_not_answer_is_named(said: str) -> None:
    failed: Any = OSError("An error occurred while calling o1.commit")
    failed.java_exception = Thrown("Job aborted", Thrown(said, Thrown("null")))

    assert root_cause(failed) == f"IOException: {said}"


class Thrown:
    """An exception of Java."""

    def __init__(self, message: str, cause: Thrown | None = None) -> None:
        self.getMessage, self.getCause = lambda: message, lambda: cause

    def getClass(self) -> SimpleNamespace:
        """Its class."""
        return SimpleNamespace(getSimpleName=lambda: "IOException")


def read_once(fails: Callable[[], NoReturn]) -> AbstractContextManager[object]:
    """The read of a pass of two streams, in which the session fails."""
    member: Any = SimpleNamespace(holds_messages=False)
    return _read_once(fails, [member, member], [member, member])


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, DagsterExecutionInterruptedError])
@pytest.mark.parametrize("body", ["a step", "a stream of a pass", "the read of a pass"])
def test_an_interrupt_stays_one_if_what_is_undone_after_it_meets_a_jvm_that_it_ended(
    body: str, interrupt: type[BaseException]
) -> None:
    """Purpose: a drain that Ctrl-C breaks off, or a run that is terminated, has not failed, and other streams of the
    pass are not drained after it.
    """

    def interrupted() -> NoReturn:
        try:
            raise interrupt
        finally:
            raise Py4JNetworkError("Answer from Java side is empty")

    bodies: dict[str, AbstractContextManager[object]] = {
        "a step": spark_failures(stream_of("id bigint"), "reading messages"),
        "a stream of a pass": Drained().keeping_failure(),
        "the read of a pass": read_once(interrupted),
    }
    with pytest.raises(interrupt), bodies[body]:
        if body != "the read of a pass":
            interrupted()
