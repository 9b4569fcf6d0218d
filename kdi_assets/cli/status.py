"""`kdi status`: what waits, how old it is, and what stands in the way; a line for every stream, without a JVM."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from kdi_assets.cli.given import AsJson, Defs, StreamNames, streams_meant
from kdi_assets.cli.output import EXIT_RETRY, json_line
from kdi_assets.cli.stream_status import StreamStatus, text
from kdi_assets.errors import Transient
from kdi_assets.settings import Settings
from kdi_assets.stream import Stream

WATCH_SECONDS, CLEAR = 5.0, "\x1b[2J\x1b[H"


def status(
    streams: StreamNames = None,
    watch: Annotated[bool, typer.Option("--watch", help="Look every 5 seconds, until Ctrl-C.")] = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Show what waits of each stream, for how long, and what stands in the way. Needs no Spark.

    BACKLOG counts offsets. LAG is the age of the oldest message that waits,
    CLOSES IN the time until a drain that began now would have caught up, LOSS
    IN the time until retention deletes the first message that waits. SMALL
    FILES share their date with others below 32 MiB. `?` is unknown, `-`
    nothing, `never` endless. DEAD, 24 H are the dead letters of the last day.

    STATE is OK; WARN: drains go on, and the backlog does not get less; REWIND:
    positions went back; STALL: commits come, and a topic partition's position
    stays; STOP: messages wait, and no commit comes; paused or retired by the
    document; refused: someone must decide; unreachable: broker or storage.

    --json has raw numbers, units in the keys, and every topic partition; null
    is unknown, and endless: JSON has no number for it. With --watch each look
    prints its objects.

    Exit codes: 0 it could look, whatever it saw, refusals too; 1 the documents
    are wrong; 75 no broker answered for any of the streams; 130 after Ctrl-C.
    """
    look = looks(streams_meant(streams or (), defs), Settings.from_environment().lake)
    began, seen = time.monotonic(), look()
    _show(seen, as_json=as_json)
    while watch:
        time.sleep(max(0.0, began + WATCH_SECONDS - time.monotonic()))
        began, seen = time.monotonic(), look()
        if sys.stdout.isatty():
            typer.echo(CLEAR, nl=False)
        _show(seen, as_json=as_json)
    if seen and all(isinstance(one.backlog.refusal, Transient) for one in seen):
        raise typer.Exit(EXIT_RETRY)


def looks(streams: Sequence[Stream], lake: str) -> Callable[[], list[StreamStatus]]:
    """Answers the status of the streams, each time it is called; the second time it asks only for what can be new."""
    from kdi_assets.drain.look import Look
    from kdi_assets.ledger.table_facts import TableWatch

    look, tables = Look(), TableWatch()

    def seen() -> list[StreamStatus]:
        backlogs = look(streams, lake=lake)
        now = datetime.now(UTC)
        return [StreamStatus.of(s, b, tables, lake, now) for s, b in zip(streams, backlogs, strict=True)]

    return seen


def _show(seen: Sequence[StreamStatus], *, as_json: bool) -> None:
    if as_json:
        for one in seen:
            json_line(one.fields())
    else:
        typer.echo(text(seen, datetime.now(UTC)))
