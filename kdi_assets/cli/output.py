"""What commands say: data on stdout, as columns or as JSON; progress and refusals on stderr; and the exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, date, datetime
from enum import StrEnum
from math import isinf

import typer

from kdi_assets.errors import KdiError, Transient
from kdi_assets.ledger.entry import FieldCounts
from kdi_assets.stream.stream import OffsetRange, TopicPartition
from kdi_assets.wording import counted as counted
from kdi_assets.wording import duration as duration

EXIT_DECIDE, EXIT_USAGE, EXIT_RETRY = 1, 2, 75
"""0 is done, 2 is Click's for usage; 75 is EX_TEMPFAIL of sysexits.h. Ctrl-C ends with 130, as shells expect."""

UNCHANGED = "Nothing was changed; the same command with --yes does it."
SHOWN_CHARACTERS = 500
"""Of a value."""


def progress(line: str) -> None:
    """A line about what goes on, for whoever watches."""
    typer.echo(line, err=True)


def refuse(refusal: KdiError) -> None:
    """Show a refusal in full, on stderr."""
    progress(str(refusal))


def exit_code(refusals: Iterable[KdiError]) -> int:
    """The code of the worst: what a person must decide goes before what a retry may heal; 0 of none."""
    codes = {_code(refusal) for refusal in refusals}
    return next((code for code in (EXIT_USAGE, EXIT_DECIDE, EXIT_RETRY) if code in codes), 0)


def _code(refusal: KdiError) -> int:
    from kdi_assets.config.errors import AmbiguousStream, DefsFolderMissing, UnknownStream

    if isinstance(refusal, AmbiguousStream | UnknownStream | DefsFolderMissing):
        return EXIT_USAGE  # what was typed is wrong, not what it was about
    return EXIT_RETRY if isinstance(refusal, Transient) else EXIT_DECIDE


@contextmanager
def refusal_in_json(stream: str, *, as_json: bool) -> Iterator[None]:
    """With ``--json``, a refusal is an answer as well: an object with ``error`` goes before it.

    Raises:
        KdiError: The body's, in either case; whoever runs the command shows it and takes the exit code of it.
    """
    try:
        yield
    except KdiError as refusal:
        if as_json:
            json_line({"stream": stream, "error": refusal})
        raise


def answer(text: str, fields: Mapping[str, object], *, as_json: bool, error: KdiError | None = None) -> None:
    """Print an answer: for people, or as one JSON object with ``error`` as its last field."""
    if as_json:
        json_line({**fields, "error": error})
    else:
        typer.echo(text)


def json_line(answer: Mapping[str, object]) -> None:
    """One JSON object on a line of its own."""
    typer.echo(json.dumps(plain(answer), ensure_ascii=False))


def error_fields(refusal: KdiError) -> dict[str, object]:
    """The refusal's own fields, its three parts, and whether a retry can help."""
    happened, safe, run = refusal.parts()
    own = {field.name: getattr(refusal, field.name) for field in fields(refusal)}
    kind = {"type": type(refusal).__name__, "retry_helps": isinstance(refusal, Transient)}
    return {**own, **kind, "happened": happened, "safe": safe, "run": run}


def plain(value: object) -> object:
    """The value as JSON knows it: ``topic/number`` for topic partitions, UTC for moments, text for the unknown."""
    match value:
        case TopicPartition():
            return str(value)
        case OffsetRange(topic_partition, start, end):
            return {"topic_partition": str(topic_partition), "start": start, "end": end}
        case FieldCounts(messages, named, others):
            return {"messages": messages, "by_field": dict(named), "others_at_least": others}
        case StrEnum():
            return value.value
        case float() if isinf(value):
            return None  # JSON has no number for it
        case None | bool() | int() | float() | str():
            return value
        case datetime():
            return clock(value, date=True)
        case date():
            return value.isoformat()
        case Mapping():
            return {str(plain(key)): plain(item) for key, item in value.items()}
        case KdiError():
            return plain(error_fields(value))
        case list() | tuple():
            return [plain(item) for item in value]
    return str(value)


def columns(head: Sequence[str], rows: Iterable[Sequence[object]], *, align: str) -> str:
    """A table as text: as wide as what is in it, however narrow the terminal, so that it can be piped and copied.

    Args:
        rows: Texts, numbers, whatever says itself; ``None`` is a dash.
        align: A ``<`` or ``>`` for each column.
    """
    lines = [head, *(list(map(_cell, row)) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(f"{cell:{a}{w}}" for cell, a, w in zip(line, align, widths, strict=True)).rstrip() for line in lines
    )


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return "-" if value is None else str(value)


def printable(text: str) -> str:
    """The text with what would steer a terminal escaped; messages are other people's."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def decoded(value: bytes) -> str:
    """The bytes as text; what is no UTF-8 as ``\\x..``."""
    return bytes(value).decode("utf-8", "backslashreplace")


def shown(value: bytes) -> str:
    """The beginning of a message's value, control characters escaped."""
    text = decoded(value)
    more = f" … ({len(text):,} characters)" if len(text) > SHOWN_CHARACTERS else ""
    return printable(text[:SHOWN_CHARACTERS]) + more


def clock(moment: datetime, *, date: bool) -> str:
    """A moment in UTC, to the second; with or without its date."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ" if date else "%H:%M:%SZ")


def brief(seconds: float) -> str:
    """A length of time as narrow as a column wants it: ``38s``, ``2h 5m``, ``12d 3h``; days alone from a hundred on."""
    if seconds >= 100 * 86400:
        return f"{seconds / 86400:,.0f}d"
    return re.sub(r" (d|h|min|s)\b", lambda unit: unit[1][0], duration(seconds))
