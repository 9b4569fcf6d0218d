"""A command's Spark session, started only if it is needed; failures of Spark become refusals."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from kdi_assets.cli.errors import SparkFailed
from kdi_assets.cli.live_line import interrupted_text, watch_of_command
from kdi_assets.cli.output import print_progress, refusal_in_json
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.runtime.progress import WorkStep, announced
from kdi_assets.runtime.spark_failures import FailureKind, SparkFailure, translated
from kdi_assets.settings import DriverMode, Settings
from kdi_assets.streams.spark_errors import StorageForbids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OBJECTS_WITH_SESSION = 2_000
"""So many new objects before Python looks for garbage: only then py4j tells the JVM of frames that nobody needs."""
JVM_SECONDS = 5.0
"""How long an interrupted JVM may take to remove its temporary files."""
NOTICES = ("WARNING: Using incubator modules", "Warning: Ignoring non-Spark config property")


class LazySession:
    """A Spark session that the first call opens and the command keeps.

    What a JVM of its own prints goes into a file of the folder ``logs`` of ``KDI_HOME``, unless ``KDI_VERBOSE`` is set.
    """

    def __init__(self, settings: Settings, command: str) -> None:
        self._settings, self._command = settings, command
        self._session: SparkSession | None = None
        self._log: Path | None = None
        self._only_messages: int | None = None

    def expect_only(self, messages: int) -> None:
        """Take the number of messages that the session is for, before it is opened, if the command ends after them."""
        self._only_messages = messages

    def __call__(self) -> SparkSession:
        """The session; a new one if the warm driver of the last one has ended.

        Raises:
            DriverGone, JavaMissing, JarMissing, SparkDidNotStart: No session can be opened.
        """
        from kdi_assets.runtime.driver.drivers import uses_warm_driver
        from kdi_assets.runtime.spark import is_open

        if self._session is None or not is_open(self._session):
            _quieten_loggers()
            if uses_warm_driver(self._settings):
                print_progress(f"attaching to the warm driver of {self._settings.home}")
                self._session = self._open("shared")
            else:
                print_progress("starting Spark")
                with announced(WorkStep(doing="starting Spark")):
                    self._session = self._open("own")
        return self._session

    def opened(self) -> SparkSession | None:
        """The session, if it was opened."""
        return self._session

    def _open(self, driver: DriverMode) -> SparkSession:
        from kdi_assets.runtime.spark import open_session

        with ExitStack() as opened:
            output: IO[bytes] | None = None
            if driver == "own" and not self._settings.verbose:
                log = self._settings.home / "logs" / f"{self._command}-{os.getpid()}.log"
                with suppress(OSError):  # of a folder that is read-only
                    log.parent.mkdir(parents=True, exist_ok=True)
                    output, self._log = opened.enter_context(log.open("ab")), log
            settings = replace(self._settings, driver=driver)
            session = open_session(
                settings, app_name=f"kdi {self._command}", output=output, only_messages=self._only_messages
            )
        gc.freeze()  # what is there now stays, and is not looked at again
        gc.set_threshold(OBJECTS_WITH_SESSION)
        return session

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

    def abandon(self) -> None:
        """End our own JVM at once, even one that is still starting.

        PySpark forgets a JVM whose start is interrupted, and that JVM would wait for its parent for ever. A commit in
        progress lands whole or not at all, as after a power cut.
        """
        import psutil

        # The warm driver is not a child of ours; it cancels our jobs when we disconnect.
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
        if self._log and not _only_notices(self._log):
            print_progress(f"Spark's log: {self._log}")
        elif self._log:
            self._log.unlink()


@contextmanager
def lazy_session(command: str, *, as_json: bool, settings: Settings | None = None) -> Iterator[LazySession]:
    """A session for the body, opened only if the body calls it; shows how far the body's steps are.

    Args:
        settings: By default those of the environment.
    """
    session = LazySession(settings or Settings.from_environment(), command)
    watch = watch_of_command(as_json=as_json, spark=session.opened)
    try:
        with watch.watching():
            yield session
    except KeyboardInterrupt:
        session.abandon()
        print_progress(interrupted_text(watch))
        raise
    finally:
        session.close()


def _only_notices(log: Path) -> bool:
    """Whether the JVM printed nothing but what it and Spark's launcher print at every start."""
    return all(line.startswith(NOTICES) for line in log.read_text(errors="replace").splitlines())


def _quieten_loggers() -> None:
    """Silence log records that repeat our own error line at length."""
    from pyspark.logger import PySparkLogger

    from kdi_assets.runtime.step_watch import THREAD

    # PySpark logs every expression that Spark refuses, with the JVM's stack.
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    # py4j logs a socket that it cannot close, because Ctrl-C has ended the JVM too.
    logging.getLogger("py4j.clientserver").disabled = True
    # py4j logs tracebacks on the root logger itself, whose filter other loggers bypass: Ctrl-C as an error, and what
    # the watch asks a JVM that Ctrl-C has ended.
    logging.getLogger().addFilter(
        lambda record: "KeyboardInterrupt" not in record.getMessage() and record.threadName != THREAD
    )


@contextmanager
def stream_session(stream: Stream, command: str, *, as_json: bool) -> Iterator[LazySession]:
    """A session for a command about one stream; with ``as_json``, refusals are printed as JSON as well.

    An expression that Spark cannot analyse is a bug here and stays an ``AnalysisException``.

    Raises:
        DriverGone: The warm driver ended.
        SparkFailed: The body failed in Spark, or lost the connection to it.
    """
    with (
        refusal_in_json(stream=stream.name, as_json=as_json),
        lazy_session(command, as_json=as_json) as session,
        session.watched(),
    ):

        def error_of(failure: SparkFailure) -> KdiError | None:
            from pyspark.errors import AnalysisException

            if isinstance(failure.exception, AnalysisException):
                return None
            if failure.kind is FailureKind.STORAGE:
                step, again = f"kdi {command}", "the same command again"
                return StorageForbids(
                    stream=stream.name, step=step, detail=failure.root, needs=failure.needs, command=again
                )
            return SparkFailed(stream=stream.name, command=command, detail=failure.root)

        with translated(error_of):
            yield session
