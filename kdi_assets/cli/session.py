"""A command's Spark session, started only if it is needed; failures of Spark become refusals."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING

from kdi_assets.cli.errors import SparkFailed
from kdi_assets.cli.output import print_progress, refusal_in_json
from kdi_assets.settings import Settings
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET_SECONDS, JVM_SECONDS = 2.0, 5.0
"""How long an interrupted JVM may take to stop logging, and then to remove its temporary files."""


class LazySession:
    """A Spark session that the first call opens and the command keeps."""

    def __init__(self, settings: Settings, app_name: str) -> None:
        self._settings, self._app_name = settings, app_name
        self._session: SparkSession | None = None

    def __call__(self) -> SparkSession:
        """The session; a new one if the warm driver of the last one has ended.

        Raises:
            DriverGone, JavaMissing, JarMissing, SparkDidNotStart: No session can be opened.
        """
        from kdi_assets.runtime.spark import is_open, open_session

        if self._session is None or not is_open(self._session):
            print_progress("attaching to the warm driver" if self._settings.driver == "shared" else "starting Spark")
            _quieten_loggers()
            self._session = open_session(self._settings, app_name=self._app_name)
        return self._session

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Raise ``DriverGone`` if the body failed because the warm driver ended."""
        from kdi_assets.runtime.spark import driver_loss_named

        try:
            yield
        except Exception:
            if self._session is None:
                raise
            with driver_loss_named(self._session):
                raise

    def interrupt(self, *_: object) -> None:
        """Handle Ctrl-C: stop the logging of our own JVM, which would log every cancelled job with its stack.

        Raises:
            KeyboardInterrupt: Always.
        """
        if self._session is not None and self._settings.driver == "own":
            # This thread's connection to the JVM waits for an answer; another thread has its own connection.
            quieten = Thread(target=self._session.sparkContext.setLogLevel, args=("OFF",), daemon=True)
            quieten.start()
            quieten.join(QUIET_SECONDS)
        raise KeyboardInterrupt

    def abandon(self) -> None:
        """End our own JVM at once, even one that is still starting.

        PySpark forgets a JVM whose start is interrupted, and that JVM would wait for its parent for ever. A commit in
        progress lands whole or not at all, as after a power cut.
        """
        import psutil

        if self._settings.driver == "shared":
            return  # other clients use this JVM; it cancels our jobs when we disconnect
        children = psutil.Process().children(recursive=True)
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.terminate()
        for child in psutil.wait_procs(children, timeout=JVM_SECONDS)[1]:
            child.kill()

    def close(self) -> None:
        """Close the session, if it was opened."""
        from kdi_assets.runtime.spark import close_session

        if self._session is not None:
            close_session(self._session)


@contextmanager
def lazy_session(command: str) -> Iterator[LazySession]:
    """A session for the body, opened only if the body calls it."""
    session = LazySession(Settings.from_environment(), f"kdi {command}")
    # If the handler is not Python's own, our caller ignores Ctrl-C or handles it itself.
    handles_interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handles_interrupts:
        signal.signal(signal.SIGINT, session.interrupt)
    try:
        yield session
    except KeyboardInterrupt:
        session.abandon()
        print_progress("interrupted: commits reported so far stand; a commit lands whole or not at all")
        raise
    finally:
        if handles_interrupts:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        session.close()


def _quieten_loggers() -> None:
    """Silence log records that repeat our own error line at length."""
    from pyspark.logger import PySparkLogger

    # PySpark logs every expression that Spark refuses, with the JVM's stack.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    # py4j logs Ctrl-C as an error with its traceback, on the root logger itself; other loggers bypass this filter.
    logging.getLogger().addFilter(lambda record: "KeyboardInterrupt" not in record.getMessage())


@contextmanager
def stream_session(stream: Stream, command: str, *, as_json: bool) -> Iterator[LazySession]:
    """A session for a command about one stream; with ``as_json``, refusals are printed as JSON as well.

    An expression that Spark cannot analyse is a bug here and stays an ``AnalysisException``.

    Raises:
        DriverGone: The warm driver ended.
        SparkFailed: The body failed in Spark, or lost the connection to it.
    """
    with refusal_in_json(stream.name, as_json=as_json), lazy_session(command) as session, session.watched():
        try:
            yield session
        except Exception as error:
            if not _failed_in_spark(error):
                raise
            from kdi_assets.runtime.spark_causes import root_cause

            raise SparkFailed(stream=stream.name, command=command, detail=root_cause(error)) from error


def _failed_in_spark(error: Exception) -> bool:
    # Imported here because most audits need no Spark.
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, PySparkException

    failures = (PySparkException, Py4JError, ConnectionError)  # py4j raises the last one if the JVM died
    return isinstance(error, failures) and not isinstance(error, AnalysisException)
