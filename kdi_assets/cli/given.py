"""What commands are given: options that several share, the streams that are meant, one Spark session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.output import progress
from kdi_assets.settings import Settings
from kdi_assets.stream import Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

StreamName = Annotated[str, typer.Argument(metavar="STREAM", help="A table's path, its last part, or a topic.")]
Defs = Annotated[
    Path | None, typer.Option("--defs", help="Folder of the YAML documents; default: KDI_DEFS, else the package's.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per stream, each on a line.")]


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

    def close(self) -> None:
        """Give the session up."""
        from kdi_assets.runtime.session import close_session

        if self._session is not None:
            close_session(self._session)


@contextmanager
def one_session(command: str) -> Iterator[OneSession]:
    """A session for the body, if it asks for one."""
    session = OneSession(Settings.from_environment(), f"kdi {command}")
    try:
        yield session
    except KeyboardInterrupt:
        progress("interrupted: commits reported so far stand; a commit lands whole or not at all")
        raise
    finally:
        session.close()


def _quieten() -> None:
    """PySpark prints every refusal of an expression with the JVM's whole stack, which would bury our line about it."""
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True


Session = Callable[[], "SparkSession"]
