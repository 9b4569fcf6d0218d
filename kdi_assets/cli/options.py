"""Options that several commands share, and the streams that a command names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from getpass import getuser
from pathlib import Path
from typing import Annotated

import typer

from kdi_assets.stream.stream import Stream, TopicPartition

StreamName = Annotated[str, typer.Argument(metavar="STREAM", help="A table's path, its last part, or a topic.")]
StreamNames = Annotated[
    list[str] | None, typer.Argument(metavar="STREAM", help="Tables' paths, last parts, or topics; default: all.")
]
Defs = Annotated[
    Path | None, typer.Option("--defs", help="Folder of the YAML documents; default: KDI_DEFS, else the package's.")
]
DATE = "%Y-%m-%d"
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: one object on each line.")]


def streams_meant(names: Sequence[str], defs: Path | None) -> list[Stream]:
    """The streams with these names, or all of them if no name is given.

    Raises:
        Mistakes, DefsFolderMissing: The documents cannot be read.
        UnknownStream, AmbiguousStream: A name fits none, or several.
    """
    from kdi_assets.config.loader import load_streams, select_streams

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


def refuse_empty_span(first: datetime | None, last: datetime | None) -> None:
    """Refuse ``--from`` and ``--to`` that are the wrong way round; both are inclusive.

    Raises:
        typer.BadParameter: They are.
    """
    if first and last and first > last:
        raise typer.BadParameter(f"{first.date()} is behind --to {last.date()}", param_hint="--from")


def moment_meant(text: str, option: str) -> datetime:
    """``2026-01-31T06:00:00Z``; a date alone is its first moment, UTC.

    Raises:
        typer.BadParameter: It is none, or has no zone.
    """
    try:
        if len(text) == len("2026-01-31"):
            return datetime.combine(date.fromisoformat(text), time(), UTC)
        moment = datetime.fromisoformat(text)
    except ValueError:
        example = "a date or a moment such as 2026-01-31T06:00:00Z"
        raise typer.BadParameter(f"{text!r} is none; give {example}", param_hint=option) from None
    if moment.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no zone; write {text}Z, or with another offset", param_hint=option)
    return moment


def whoami() -> str:
    """Who decides, as the ledger is to record it."""
    try:
        return getuser()
    except (KeyError, OSError):  # in a container, a user may be a number
        return str(os.getuid())
