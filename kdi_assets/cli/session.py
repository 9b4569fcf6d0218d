"""One Spark session for a command, and what it fails with said as a refusal."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING

from kdi_assets.cli.errors import SparkFailed
from kdi_assets.cli.output import progress, refusal_in_json
from kdi_assets.settings import Settings
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HUSH_SECONDS, JVM_SECONDS = 2.0, 5.0
"""How long an interrupted JVM may take to stop logging, and then to remove its temporary files."""


class OneSession:
    """Spark's session, opened when it is first asked for, and kept for the whole command."""

    def __init__(self, settings: Settings, app_name: str) -> None:
        self._settings, self._app_name = settings, app_name
        self._session: SparkSession | None = None

    def __call__(self) -> SparkSession:
        """The session; opened anew if the warm driver of the last one has ended.

        Raises:
            DriverGone, JavaMissing, JarMissing, SparkDidNotStart: There is none to be had.
        """
        from kdi_assets.runtime.spark import is_open, open_session

        if self._session is None or not is_open(self._session):
            progress("attaching to the warm driver" if self._settings.driver == "shared" else "starting Spark")
            _quieten()
            self._session = open_session(self._settings, app_name=self._app_name)
        return self._session

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Name the end of the warm driver when that is why the body failed.

        Raises:
            DriverGone: It is.
        """
        from kdi_assets.runtime.spark import driver_loss_named

        try:
            yield
        except Exception:
            if self._session is None:
                raise
            with driver_loss_named(self._session):
                raise

    def interrupt(self, *_: object) -> None:
        """Answer Ctrl-C; a JVM of our own would log what it breaks off with its whole stack, so it is told first.

        Raises:
            KeyboardInterrupt: Always.
        """
        if self._session is not None and self._settings.driver == "own":
            # The connection of this thread waits for an answer; another thread has one of its own.
            hush = Thread(target=self._session.sparkContext.setLogLevel, args=("OFF",), daemon=True)
            hush.start()
            hush.join(HUSH_SECONDS)
        raise KeyboardInterrupt

    def abandon(self) -> None:
        """End a JVM of our own at once, even one that is just starting.

        Interrupted there, PySpark forgets it, and it would wait for a parent for ever. It may be sending a commit: that
        lands whole or not at all, as after a power cut.
        """
        import psutil

        if self._settings.driver == "shared":
            return  # it is not ours to end; it cancels our jobs when we hang up
        children = psutil.Process().children(recursive=True)
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.terminate()
        for child in psutil.wait_procs(children, timeout=JVM_SECONDS)[1]:
            child.kill()

    def close(self) -> None:
        """Give the session up."""
        from kdi_assets.runtime.spark import close_session

        if self._session is not None:
            close_session(self._session)


@contextmanager
def one_session(command: str) -> Iterator[OneSession]:
    """A session for the body, if it asks for one."""
    session = OneSession(Settings.from_environment(), f"kdi {command}")
    # Another handler than Python's own: whoever started us ignores Ctrl-C, or has an answer of his own.
    answers = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if answers:
        signal.signal(signal.SIGINT, session.interrupt)
    try:
        yield session
    except KeyboardInterrupt:
        session.abandon()
        progress("interrupted: commits reported so far stand; a commit lands whole or not at all")
        raise
    finally:
        if answers:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        session.close()


def _quieten() -> None:
    """Keep from stderr what says less than our own line about the same, on many more lines."""
    from pyspark.logger import PySparkLogger

    # PySpark prints every refusal of an expression with the JVM's whole stack.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    # py4j logs Ctrl-C as an error with its traceback, on the root logger itself; other loggers pass by this filter.
    logging.getLogger().addFilter(lambda record: "KeyboardInterrupt" not in record.getMessage())


@contextmanager
def session_over(stream: Stream, command: str, *, as_json: bool) -> Iterator[OneSession]:
    """A session for what a command does with one stream; with ``as_json``, a refusal is an answer as well.

    What Spark does not understand is a bug of ours, and stays one.

    Raises:
        DriverGone: The warm driver ended.
        SparkFailed: The body failed in Spark, or lost it.
    """
    with refusal_in_json(stream.name, as_json=as_json), one_session(command) as session, session.watched():
        try:
            yield session
        except Exception as lost:
            if not _failed_in_spark(lost):
                raise
            from kdi_assets.drain.spark_errors import root_cause

            raise SparkFailed(stream=stream.name, command=command, detail=root_cause(lost)) from lost


def _failed_in_spark(failed: Exception) -> bool:
    # Imported where something failed, and not before: most audits need no Spark.
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, PySparkException

    lost = (PySparkException, Py4JError, ConnectionError)  # the last: what py4j lets pass if the JVM died
    return isinstance(failed, lost) and not isinstance(failed, AnalysisException)
