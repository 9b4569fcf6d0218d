"""What commands print, data on stdout, progress and refusals on stderr; and their exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, date, datetime
from enum import StrEnum
from math import isinf
from typing import TYPE_CHECKING

import typer

from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.errors import KdiError, Transient
from kdi_assets.streams.ledger.entry import FieldCounts
from kdi_assets.wording import duration, printable

if TYPE_CHECKING:
    from kdi_assets.operate.monitoring.commit_history import HistoryEntry
    from kdi_assets.operate.monitoring.refined_history import RefinedCommit

EXIT_DECIDE, EXIT_USAGE, EXIT_RETRY = 1, 2, 75
"""0 is done; 2 is Click's code for wrong usage; 75 is EX_TEMPFAIL of sysexits.h; Ctrl-C ends with 130."""

_MARKS = {True: "", False: "[undone]", None: "[undone?]"}
NO_DOCUMENTS = "no document describes a table; kdi new TOPIC writes one"
UNCHANGED = "Nothing was changed; the same command with --yes does it."
SHOWN_CHARACTERS = 500  # of a message's value


def print_progress(line: str) -> None:
    """Print a line about a step of the command, on stderr."""
    typer.echo(line, err=True)


def print_refusal(refusal: KdiError) -> None:
    """Print a refusal in full, on stderr."""
    print_progress(str(refusal))


def exit_code(refusals: Iterable[KdiError]) -> int:
    """The exit code of the worst refusal: usage, then a decision, then a retry; 0 without refusals."""
    codes = {_code(refusal) for refusal in refusals}
    return next((code for code in (EXIT_USAGE, EXIT_DECIDE, EXIT_RETRY) if code in codes), 0)


def exit_if_refused(refusals: Collection[KdiError]) -> None:
    """End the command with the exit code of the worst refusal, if there is one."""
    if refusals:
        raise typer.Exit(exit_code(refusals))


def _code(refusal: KdiError) -> int:
    from kdi_assets.documents.loading.errors import (
        AmbiguousStream,
        DefsFolderMissing,
        DefsFolderNotNamed,
        NotAStream,
        NotRefined,
        UnknownStream,
    )

    of_usage = (AmbiguousStream, DefsFolderMissing, DefsFolderNotNamed, NotAStream, NotRefined, UnknownStream)
    if isinstance(refusal, of_usage):
        return EXIT_USAGE  # the command line is wrong, not the stream
    return EXIT_RETRY if isinstance(refusal, Transient) and refusal.is_repeatable else EXIT_DECIDE


@contextmanager
def refusal_in_json(*, as_json: bool, **of: str) -> Iterator[None]:
    """With ``--json``, print a refusal of the body as an object with ``error``; then raise it, as without.

    Args:
        of: What was refused, under the key that it has in the command's result: ``stream``, ``table``, …
    """
    try:
        yield
    except KdiError as refusal:
        if as_json:
            print_json({**of, "error": refusal})
        raise


def print_result(text: str, fields: Mapping[str, object], *, as_json: bool, error: KdiError | None = None) -> None:
    """Print a result: text for people, or one JSON object with ``error`` as its last field."""
    if as_json:
        print_json({**fields, "error": error})
    else:
        typer.echo(text)


def print_json(fields: Mapping[str, object]) -> None:
    """Print one JSON object on one line; what a terminal would obey, as DEL and C1 controls, is escaped too."""
    print_json_text(json.dumps(to_json(fields), ensure_ascii=False))


def print_json_text(text: str) -> None:
    """Print JSON that is text already, escaped likewise."""
    typer.echo("".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text))


def error_fields(refusal: KdiError) -> dict[str, object]:
    """The refusal's own fields, its three parts, and whether a retry can help."""
    happened, safe, run = refusal.message_parts()
    own = {field.name: getattr(refusal, field.name) for field in fields(refusal)}
    kind = {"type": type(refusal).__name__, "retry_helps": isinstance(refusal, Transient)}
    return {**own, **kind, "happened": happened, "safe": safe, "run": run}


def to_json(value: object) -> object:
    """The value in JSON's types: topic partitions as ``topic/number``, timestamps in UTC, unknown classes as text."""
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
            return None  # JSON has no infinity
        case None | bool() | int() | float() | str():
            return value
        case datetime():
            return utc_text(value, date=True)
        case date():
            return value.isoformat()
        case Mapping():
            return {str(to_json(key)): to_json(item) for key, item in value.items()}
        case KdiError():
            return to_json(error_fields(value))
        case list() | tuple():
            return [to_json(item) for item in value]
    return str(value)


def history_text(commits: Iterable[HistoryEntry | RefinedCommit]) -> str:
    """The commits of a table as text."""
    rows = []
    for c in commits:
        when = utc_text(c.committed_at, date=True) if c.committed_at else "-"
        because, by = getattr(c.entry, "because", ""), getattr(c.entry, "decided_by", "")
        who = " by ".join(filter(None, [because and f'"{printable(because)}"', printable(by)]))
        detail = " ".join(filter(None, [printable(c.description), f"({who})" if who else "", _MARKS[c.live]]))
        rows.append((f"v{c.version}", when, c.operation, detail))
    return table_text(("VERSION", "TIME", "WHAT", "DETAIL"), rows, align="><<<")


def unmet_expectations(unmet: Mapping[str, int]) -> list[str]:
    """What a drain or a refinement says of each expectation that rows do not meet."""
    return [f"{rows:,} not meeting {expected}" for expected, rows in unmet.items() if rows]


def table_text(head: Sequence[str], rows: Iterable[Sequence[object]], *, align: str) -> str:
    """A table as text. Its width does not depend on the terminal, so that it can be piped and copied.

    Args:
        rows: Cells; ``None`` is printed as a dash.
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


def value_text(value: bytes) -> str:
    """A message's value as text; bytes that are no UTF-8 as ``\\x..``."""
    return bytes(value).decode("utf-8", "backslashreplace")


def value_excerpt(value: bytes) -> str:
    """The beginning of a message's value, control characters escaped."""
    return text_excerpt(value_text(value), SHOWN_CHARACTERS)


def text_excerpt(text: str, most: int) -> str:
    """The beginning of a text that came from a message, control characters escaped."""
    more = f" … ({len(text):,} characters)" if len(text) > most else ""
    return printable(text[:most]) + more


UTC_SQL = "date_format(to_utc_timestamp({0}, current_timezone()), \"yyyy-MM-dd'T'HH:mm:ss'Z'\")"
"""Spark SQL of the text that ``utc_text`` gives, of any timestamp: Kafka's may have years that Python does not."""


def utc_text(timestamp: datetime, *, date: bool) -> str:
    """A timestamp in UTC, to the second, with or without its date."""
    return timestamp.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ" if date else "%H:%M:%SZ")


def short_duration(seconds: float) -> str:
    """A duration for a table's cell: ``38s``, ``2h 5m``, ``12d 3h``; from 100 days on, days alone."""
    if seconds >= 100 * 86400:
        return f"{seconds / 86400:,.0f}d"
    return re.sub(r" (d|h|min|s)\b", lambda unit: unit[1][0], duration(seconds))
