"""`kdi status`: what waits, how old it is, and what stands in the way; a line for every stream, without a JVM."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from kdi_assets.cli.options import AsJson, Defs, StreamNames, streams_meant
from kdi_assets.cli.output import EXIT_RETRY, brief, clock, columns, json_line
from kdi_assets.errors import KdiError, Transient
from kdi_assets.monitoring.backlog import Backlog, PartitionBacklog, State, state_of
from kdi_assets.monitoring.table_facts import TableFacts, TableWatch
from kdi_assets.settings import Settings
from kdi_assets.stream.stream import Stream

HEAD = ("STREAM", "BACKLOG", "LAG", "CLOSES IN", "LOSS IN", "DEAD, 24 H", "SMALL FILES", "LAST COMMIT", "STATE")
ALIGN = "<>>>>>>><"
WATCH_SECONDS, CLEAR = 5.0, "\x1b[2J\x1b[H"


def status(
    streams: StreamNames = None,
    watch: Annotated[bool, typer.Option("--watch", help="BacklogReader every 5 seconds, until Ctrl-C.")] = False,
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
    from kdi_assets.monitoring.backlog_reader import BacklogReader

    look, tables = BacklogReader(), TableWatch()

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


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """One line of the table; ``table`` is empty where its log cannot be read, and then there is a refusal."""

    stream: Stream
    backlog: Backlog
    table: TableFacts

    @classmethod
    def of(cls, stream: Stream, backlog: Backlog, tables: TableWatch, lake: str, now: datetime) -> StreamStatus:
        """The status with what the table's log says."""
        try:
            return cls(stream, backlog, tables(stream, lake, now=now))
        except KdiError:
            return cls(stream, backlog, TableFacts())  # the backlog's refusal says it

    @property
    def state(self) -> State:
        """One word."""
        return state_of(self.stream, self.backlog)

    def cells(self, now: datetime) -> tuple[str, ...]:
        """As people read it."""
        backlog, table = self.backlog, self.table
        nothing = "?" if not backlog.known and self.state != State.RETIRED else "-"
        waits = backlog.known and backlog.offsets > 0
        return (
            self.stream.name,
            f"{backlog.offsets:,}" if backlog.known else nothing,
            _time(backlog.lag_seconds) if waits else nothing,
            _time(backlog.time_to_close_seconds) if waits else nothing,
            _time(backlog.time_to_loss_seconds) if waits else nothing,
            "-" if table.dead_letters is None else f"{table.dead_letters:,}",
            "-" if table.files is None else f"{table.files.small:,}",
            "-" if table.drained_at is None else _moment(table.drained_at, now),
            self.state.value,
        )

    def fields(self) -> dict[str, object]:
        """As programs read it."""
        backlog, table = self.backlog, self.table
        return {
            "stream": self.stream.name,
            "topic": self.stream.topic,
            "cluster": self.stream.cluster.name,
            "state": self.state.value,
            "backlog_offsets": backlog.offsets if backlog.known else None,
            "backlog_bytes": backlog.bytes if backlog.offsets or not backlog.known else 0,
            "lag_seconds": backlog.lag_seconds,
            "arrival_rate_offsets_per_second": backlog.arrival_rate,
            "time_to_close_seconds": backlog.time_to_close_seconds,
            "time_to_loss_seconds": backlog.time_to_loss_seconds,
            "unsettled": backlog.unsettled,
            "open_transaction_offsets": backlog.open_transaction_offsets if backlog.topic_partitions else None,
            "topic_partitions": {tp: _partition_fields(held) for tp, held in sorted(backlog.topic_partitions.items())},
            "dead_letters_24h": table.dead_letters,
            "messages_24h": table.messages,
            "table_version": table.version,
            "table_files": table.files.count if table.files else None,
            "table_bytes": table.files.bytes if table.files else None,
            "small_files": table.files.small if table.files else None,
            "drained_at": table.drained_at,
            "error": backlog.refusal,
        }


def text(seen: Sequence[StreamStatus], now: datetime) -> str:
    """The table, and below it what stands in the way: notes, and every refusal once, in full."""
    if not seen:
        return "no document describes a stream"
    table = columns(HEAD, [one.cells(now) for one in seen], align=ALIGN)
    notes = [
        f"{one.stream.name}: {held:,} offsets are held back by an open transaction"
        for one in seen
        if (held := one.backlog.open_transaction_offsets)
    ]
    refusals = dict.fromkeys(str(one.backlog.refusal) for one in seen if one.backlog.refusal)
    return "\n".join([table, *notes, *refusals])


def _partition_fields(held: PartitionBacklog) -> dict[str, object]:
    return {
        "earliest": held.earliest,
        "position": held.position,
        "end": held.end,
        "backlog_offsets": None if held.position is None else held.offsets,
        "lag_seconds": held.lag_seconds,
        "arrival_rate_offsets_per_second": held.arrival_rate,
        "time_to_loss_seconds": held.time_to_loss_seconds,
        "open_transaction_offsets": held.open_transaction_offsets,
        "status": held.word.value if held.word else None,
    }


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    return "never" if seconds == math.inf else brief(seconds)


def _moment(at: datetime, now: datetime) -> str:
    """The time of a moment of today, the date of another one."""
    return clock(at, date=True)[:10] if now - at > timedelta(hours=20) else clock(at, date=False)
