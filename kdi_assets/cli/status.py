"""`kdi status`: a line for each stream with backlog, lag and state; after them the refusals. No Spark."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.options import AsJson, Defs, StreamNames, selected_tables
from kdi_assets.cli.output import EXIT_RETRY, print_json, short_duration, table_text, utc_text
from kdi_assets.cli.place import print_place
from kdi_assets.cli.refined_output import refined_status_fields, refined_status_text
from kdi_assets.cli.served_output import print_served
from kdi_assets.errors import KdiError, Transient
from kdi_assets.monitoring.backlog import Backlog, PartitionBacklog, State, state_of
from kdi_assets.monitoring.table_facts import TableFacts, TableWatch
from kdi_assets.settings import Settings
from kdi_assets.stream.refined_table import RefinedTableSpec
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from kdi_assets.monitoring.refined_status import RefinedStatus

HEAD = ("STREAM", "BACKLOG", "LAG", "CLOSES IN", "LOSS IN", "DEAD, 24 H", "SMALL FILES", "LAST COMMIT", "STATE")
ALIGN = "<>>>>>>><"
WATCH_SECONDS, CLEAR = 5.0, "\x1b[2J\x1b[H"


def status(
    streams: StreamNames = None,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat every 5 seconds until Ctrl-C.")] = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Show each stream's backlog, lag and refusals, and what refined tables wait for. Needs no Spark.

    BACKLOG counts offsets. LAG is the age of the oldest waiting message.
    CLOSES IN: the time until a drain that starts now has caught up. LOSS IN:
    the time until retention deletes the oldest waiting message. DEAD, 24 H: the
    dead letters of the last 24 hours. SMALL FILES: files below 32 MiB that share
    their date with another small file. `?` is unknown, `-` none, `never`
    infinite.

    STATE is OK; WARN: drains commit, but the backlog does not shrink; REWIND:
    positions went back; STALL: drains commit, but the position of a topic
    partition stays; STOP: there is a backlog and no commit; paused or retired:
    by the document; refused: someone must decide; unreachable: the broker or
    the storage.

    Without names, served tables follow: the version of the Delta table that the
    database has, and how many newer ones there are.

    --json has raw numbers with units in the keys, and every topic partition;
    null is unknown or infinite. With --watch, every repetition prints its
    objects.

    Exit codes: 0 shown, refusals too; 1 the documents are wrong; 75 no broker
    answered for any stream; 130 after Ctrl-C.
    """
    tables = selected_tables(streams or (), defs)
    selected = [table for table in tables if isinstance(table, Stream)]
    refined = [table for table in tables if isinstance(table, RefinedTableSpec)]
    if not as_json:
        print_place(defs, tables)
    lake = Settings.from_environment().lake
    read = status_reader(selected, lake)
    began, statuses = time.monotonic(), read()
    _print(statuses, refined, lake, as_json=as_json)
    if not streams:
        print_served(defs, as_json=as_json)
    while watch:
        time.sleep(max(0.0, began + WATCH_SECONDS - time.monotonic()))
        began, statuses = time.monotonic(), read()
        if sys.stdout.isatty():
            typer.echo(CLEAR, nl=False)
        _print(statuses, refined, lake, as_json=as_json)
        if not streams:
            print_served(defs, as_json=as_json)
    if statuses and all(isinstance(one.backlog.refusal, Transient) for one in statuses):
        raise typer.Exit(EXIT_RETRY)


def status_reader(streams: Sequence[Stream], lake: str) -> Callable[[], list[StreamStatus]]:
    """A function that reads the status of the streams; later calls read only what may have changed."""
    from kdi_assets.monitoring.backlog_reader import BacklogReader

    backlog_reader, tables = BacklogReader(), TableWatch()

    def read() -> list[StreamStatus]:
        backlogs = backlog_reader(streams, lake=lake)
        now = datetime.now(UTC)
        return [StreamStatus.of(s, b, tables, lake, now) for s, b in zip(streams, backlogs, strict=True)]

    return read


def _print(statuses: Sequence[StreamStatus], tables: Sequence[RefinedTableSpec], lake: str, *, as_json: bool) -> None:
    refined = _refined_statuses(tables, lake)
    if as_json:
        for fields in [*(one.fields() for one in statuses), *map(refined_status_fields, refined)]:
            print_json(fields)
        return
    now = datetime.now(UTC)
    parts = [text(statuses, now)] if statuses or not refined else []
    typer.echo("\n\n".join([*parts, *([refined_status_text(refined, now)] if refined else ())]))


def _refined_statuses(tables: Sequence[RefinedTableSpec], lake: str) -> list[RefinedStatus]:
    from kdi_assets.monitoring.refined_status import read_refined_status

    return [read_refined_status(table, lake) for table in tables]


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """One line of the table. If the table's log cannot be read, ``table`` is empty and the backlog has a refusal."""

    stream: Stream
    backlog: Backlog
    table: TableFacts

    @classmethod
    def of(cls, stream: Stream, backlog: Backlog, tables: TableWatch, lake: str, now: datetime) -> StreamStatus:
        """The status with the facts of the table's log."""
        try:
            return cls(stream, backlog, tables(stream, lake, now=now))
        except KdiError:
            return cls(stream, backlog, TableFacts())  # the backlog has the refusal

    @property
    def state(self) -> State:
        """The word of the column STATE."""
        return state_of(self.stream, self.backlog)

    def cells(self, now: datetime) -> tuple[str, ...]:
        """Its line of the table."""
        backlog, table = self.backlog, self.table
        empty = "?" if not backlog.known and self.state != State.RETIRED else "-"
        waits = backlog.known and backlog.offsets > 0
        return (
            self.stream.name,
            f"{backlog.offsets:,}" if backlog.known else empty,
            _duration(backlog.lag_seconds) if waits else empty,
            _duration(backlog.time_to_close_seconds) if waits else empty,
            _duration(backlog.time_to_loss_seconds) if waits else empty,
            "-" if table.dead_letters is None else f"{table.dead_letters:,}",
            "-" if table.files is None else f"{table.files.small:,}",
            "-" if table.drained_at is None else _time_or_date(table.drained_at, now),
            self.state.value,
        )

    def fields(self) -> dict[str, object]:
        """Its fields for ``--json``."""
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
            "needs_position_commit": backlog.needs_position_commit,
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


def text(statuses: Sequence[StreamStatus], now: datetime) -> str:
    """The table; after it, open transactions, and every refusal once, in full."""
    if not statuses:
        return "no document describes a stream"
    table = table_text(HEAD, [one.cells(now) for one in statuses], align=ALIGN)
    notes = [
        f"{one.stream.name}: {held:,} offsets are held back by an open transaction"
        for one in statuses
        if (held := one.backlog.open_transaction_offsets)
    ]
    notes += [
        f"{one.stream.name}: no drain commits what waits; kdi plan {one.stream.name} says what a drain would do"
        for one in statuses
        if one.state == State.STOP
    ]
    refusals = dict.fromkeys(str(one.backlog.refusal) for one in statuses if one.backlog.refusal)
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


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    return "never" if seconds == math.inf else short_duration(seconds)


def _time_or_date(at: datetime, now: datetime) -> str:
    """The time of day; if it is more than 20 hours ago, the date."""
    return utc_text(at, date=True)[:10] if now - at > timedelta(hours=20) else utc_text(at, date=False)
