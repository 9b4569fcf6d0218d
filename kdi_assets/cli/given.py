"""What commands are given: options that several share, the streams that are meant, one Spark session."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, time
from getpass import getuser
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.output import progress
from kdi_assets.settings import Settings
from kdi_assets.stream import Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

StreamName = Annotated[str, typer.Argument(metavar="STREAM", help="A table's path, its last part, or a topic.")]
StreamNames = Annotated[
    list[str] | None, typer.Argument(metavar="STREAM", help="Tables' paths, last parts, or topics; default: all.")
]
Defs = Annotated[
    Path | None, typer.Option("--defs", help="Folder of the YAML documents; default: KDI_DEFS, else the package's.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per stream, each on a line.")]

HUSH_SECONDS, JVM_SECONDS = 2.0, 5.0
"""How long an interrupted JVM may take to stop logging, and then to remove its temporary files."""


def streams_meant(names: Sequence[str], defs: Path | None) -> list[Stream]:
    """The streams with these names, or all of them if no name is given.

    Raises:
        Mistakes, DefsFolderMissing: The documents cannot be read.
        UnknownStream, AmbiguousStream: A name fits none, or several.
    """
    from kdi_assets.components.load import load_streams, select_streams

    streams = load_streams(defs)
    return select_streams(streams, names) if names else list(streams.values())


def stream_meant(name: str, defs: Path | None) -> Stream:
    """The stream with this name; raises like ``streams_meant``."""
    return streams_meant([name], defs)[0]


def topic_partition_meant(text: str | None, stream: Stream) -> TopicPartition | None:
    """``web_requests/3``, or ``3`` where the topic is plain.

    Raises:
        typer.BadParameter: It is neither, or of another topic than the stream's.
    """
    if text is None:
        return None
    topic, _, number = text.rpartition("/")
    if not number.isdecimal():
        raise typer.BadParameter(f"{text!r} is none; write {stream.topic}/0", param_hint="--topic-partition")
    if topic not in ("", stream.topic):
        raise typer.BadParameter(
            f"{stream.name} drains topic {stream.topic}, not {topic}", param_hint="--topic-partition"
        )
    return TopicPartition(stream.topic, int(number))


def dates_meant(first: str | None, last: str | None) -> tuple[date | None, date | None]:
    """What ``--from`` and ``--to`` name, both inclusive.

    Raises:
        typer.BadParameter: It is no date, or they are the wrong way round.
    """
    begin, end = _date(first, "--from"), _date(last, "--to")
    if begin and end and begin > end:
        raise typer.BadParameter(f"{begin} is behind --to {end}", param_hint="--from")
    return begin, end


def _date(text: str | None, option: str) -> date | None:
    try:
        return date.fromisoformat(text) if text is not None else None
    except ValueError:
        raise typer.BadParameter(f"{text!r} is none; write 2026-01-31", param_hint=option) from None


def moment_meant(text: str, option: str, *, or_else: str = "") -> datetime:
    """``2026-01-31T06:00:00Z``; a date alone is its first moment, UTC.

    Args:
        or_else: What the option takes as well, for the refusal.

    Raises:
        typer.BadParameter: It is none, or has no zone.
    """
    try:
        if len(text) == len("2026-01-31"):
            return datetime.combine(date.fromisoformat(text), time(), UTC)
        moment = datetime.fromisoformat(text)
    except ValueError:
        wanted = f"{or_else}a date or a moment such as 2026-01-31T06:00:00Z"
        raise typer.BadParameter(f"{text!r} is none; give {wanted}", param_hint=option) from None
    if moment.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no zone; write {text}Z, or with another offset", param_hint=option)
    return moment


def whoami() -> str:
    """Who decides, as the ledger is to record it."""
    try:
        return getuser()
    except (KeyError, OSError):  # in a container, a user may be a number
        return str(os.getuid())


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
        from kdi_assets.runtime.session import is_open, open_session

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
        from kdi_assets.runtime.session import driver_loss_named

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
        from kdi_assets.runtime.session import close_session

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
