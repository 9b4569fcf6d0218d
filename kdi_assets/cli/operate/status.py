"""`kdi status`: a line for each table, whatever its kind; after them the refusals. No Spark."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.live_line import watch_of_command
from kdi_assets.cli.operate.lag_history import LagHistory
from kdi_assets.cli.options import AsJson, Defs, NamesOfAllKinds, of_all_kinds
from kdi_assets.cli.output import EXIT_RETRY, NO_DOCUMENTS, print_json, short_duration, table_text, utc_text
from kdi_assets.cli.place import print_place
from kdi_assets.documents.model.stream import Cluster, Stream
from kdi_assets.errors import Transient
from kdi_assets.operate.monitoring.backlog import Backlog, State
from kdi_assets.operate.monitoring.status_row import StatusRow, json_fields
from kdi_assets.operate.monitoring.stream_row import StreamRow, stream_row_reader
from kdi_assets.operate.monitoring.table_facts import TableFacts
from kdi_assets.runtime.progress import WorkStep, announced
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from kdi_assets.documents.loading.loader import LoadedFolder
    from kdi_assets.operate.monitoring.follower_rows import FollowedTable, FollowerRow

    _ReadRows = Callable[[], tuple[list[StreamRow], list[FollowerRow]]]

HEAD = ("STREAM", "BACKLOG", "LAG", "CLOSES IN", "LOSS IN", "DEAD, 24 H", "SMALL FILES", "LAST COMMIT", "STATE")
ALIGN = "<>>>>>>><"
LAG_HEAD = "LAG, LAST HOUR"
FOLLOWER_HEAD = ("TABLE", "KIND", "BEHIND", "WAITS", "VERSION", "LAST COMMIT", "STATE", "NEXT")
FOLLOWER_ALIGN = "<<>>>><<"
WATCH_SECONDS, CLEAR = 5.0, "\x1b[2J\x1b[H"
HELP = """Show how far each table is behind, and what is refused: streams, then the tables that follow others. Needs no
Spark.

BACKLOG counts offsets; of a stream of Kinesis, the shards on which records
wait: only reading tells how many. LAG is the age of the oldest waiting message.
CLOSES IN: the time until a drain that starts now has caught up. LOSS IN:
the time until retention deletes the oldest waiting message. DEAD, 24 H: the
dead letters of the last 24 hours. SMALL FILES: files below 32 MiB that share
their date with another small file. `?` is unknown, `-` none, `never`
infinite.

STATE is OK; WARN: drains commit, but the backlog does not shrink; REWIND:
positions went back; STALL: drains commit, but the position of a topic
partition stays; STOP: there is a backlog and no commit; paused or retired:
by the document; refused: someone must decide; unreachable: the broker or
the storage. Of refined, served and announced tables it is also behind:
something is new upstream; not begun: a table that it is made of does not
exist yet; not running: the embedded server, which the command does not
start.

Of these tables, BEHIND counts the versions upstream that are not consumed,
WAITS is the age of the oldest of them, and VERSION the one that the table,
the database or the topic has. NEXT is the command that brings it up to
date; the sensor `follow` does it without you.

Topics that match the pattern of a document and have no table yet are
named after the tables.

With --watch, LAG, LAST HOUR has a bar for every three minutes that the
watch has seen, and the greatest lag of them.

--json has raw numbers with units in the keys, and every topic partition;
null is unknown or infinite. With --watch, every repetition prints its
objects.

Exit codes: 0 shown, refusals too; 1 the documents are wrong; 75 no broker
answered for any stream; 130 after Ctrl-C.
"""


def status(
    tables: NamesOfAllKinds = None,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat every 5 seconds until Ctrl-C.")] = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Print the rows of all tables, and once more every ``WATCH_SECONDS`` with ``--watch``; the help is ``HELP``."""
    from kdi_assets.documents.loading.loader import load_folder

    loaded = load_folder(defs)
    selected = of_all_kinds(loaded, tables or ())
    if not as_json:
        print_place(defs, selected)
    read, lags = _reader(selected, Settings.from_environment()), LagHistory() if watch else None
    began = time.monotonic()
    with watch_of_command(as_json=as_json).watching(), announced(WorkStep(doing="asking brokers and storage")):
        rows = read()
    streams = _print_rows(*rows, as_json=as_json, lags=lags)
    if not as_json and not tables:
        _print_new_topics(loaded)
    while watch:
        time.sleep(max(0.0, began + WATCH_SECONDS - time.monotonic()))
        began, rows = time.monotonic(), read()
        if sys.stdout.isatty():
            typer.echo(CLEAR, nl=False)
        streams = _print_rows(*rows, as_json=as_json, lags=lags)
        if not as_json and not tables:
            _print_new_topics(loaded)
    if streams and all(isinstance(one.refusal, Transient) for one in streams):
        raise typer.Exit(EXIT_RETRY)


def _reader(tables: Sequence[FollowedTable], settings: Settings) -> _ReadRows:
    streams = [table for table in tables if isinstance(table, Stream)]
    read_streams = stream_row_reader(streams, settings.lake)

    def read() -> tuple[list[StreamRow], list[FollowerRow]]:
        from kdi_assets.operate.monitoring.follower_rows import announced_streams, read_follower_rows

        rows, lake, home = read_streams(), settings.lake, settings.home
        followers = [*(t for t in tables if not isinstance(t, Stream)), *announced_streams(streams)]
        known = [(row.stream.cluster.name, row.refusal) for row in rows if row.refusal]
        return rows, read_follower_rows(followers, lake=lake, home=home, now=datetime.now(UTC), known=known)

    return read


def _print_rows(
    streams: list[StreamRow], followers: list[FollowerRow], *, as_json: bool, lags: LagHistory | None
) -> list[StreamRow]:
    rows: list[StatusRow] = [*streams, *followers]
    if as_json:
        for row in rows:
            print_json(json_fields(row))
    else:
        now = datetime.now(UTC)
        if lags:
            lags.add(streams, now)
        typer.echo(text(streams, followers, now, lags))
    return streams


def _print_new_topics(loaded: LoadedFolder) -> None:
    """The topics that match a pattern and have no table, with one request to each cluster that has one."""
    from kdi_assets.operate.monitoring.new_topics import read_new_topics

    for line in (
        line for one in read_new_topics(loaded.topic_tables.values(), loaded.clusters) for line in one.texts()
    ):
        typer.echo(line)


def text(
    streams: Sequence[StreamRow], followers: Sequence[FollowerRow], now: datetime, lags: LagHistory | None = None
) -> str:
    """A table for streams and one for followers; after them notes, and every refusal once, in full.

    Args:
        lags: Adds a column with the lag of the last hour.
    """
    rows: list[StatusRow] = [*streams, *followers]
    if not rows:
        return NO_DOCUMENTS
    head, align = (HEAD, ALIGN) if lags is None else ((*HEAD, LAG_HEAD), f"{ALIGN}<")
    of_streams = [(*stream_cells(one, now), *([lags.line(one.name, now)] if lags else ())) for one in streams]
    parts = [table_text(head, of_streams, align=align)] if streams else []
    if followers:
        cells = [follower_cells(one, now) for one in followers]
        parts.append(table_text(FOLLOWER_HEAD, cells, align=FOLLOWER_ALIGN))
    refusals = dict.fromkeys(str(one.refusal) for one in rows if one.refusal)
    return "\n".join(["\n\n".join(parts), *_notes(streams), *refusals])


def _notes(streams: Sequence[StreamRow]) -> list[str]:
    """What the lines of the table cannot say."""
    notes = [
        f"{one.name}: {held:,} offsets are held back by an open transaction"
        for one in streams
        if (held := one.backlog.open_transaction_offsets)
    ]
    notes += [
        f"{one.name}: no drain commits what waits; kdi plan {one.name} says what a drain would do"
        for one in streams
        if one.state == State.STOP
    ]
    notes += [
        f"{one.name}: today's drains used {used:,.0f} CPU seconds, more than its budget; kdi cost {one.name} shows them"
        for one in streams
        if (used := one.cpu_seconds_over_budget) is not None
    ]
    notes += [
        f"{one.name}: not every shard was looked at to its end yet; kdi status {one.name} --watch goes on"
        for one in streams
        if not (one.refusal or one.backlog.known) and any(h.unknown for h in one.backlog.topic_partitions.values())
    ]
    notes += [
        f"{one.name}: drained in turns by {' and '.join(one.table.deployments)}: nothing is lost or twice; "
        "set KDI_AUTOMATION=off in all but one of them"
        for one in streams
        if one.table and one.table.deployments
    ]
    return notes


def stream_cells(row: StreamRow, now: datetime) -> tuple[str, ...]:
    """A stream's line."""
    backlog, table = row.backlog, row.table or TableFacts()
    empty = "?" if not backlog.known and row.state != State.RETIRED else "-"
    waits = backlog.known and backlog.offsets > 0
    return (
        row.name,
        f"{backlog.offsets:,}{_unit(row.stream, backlog)}" if backlog.known else empty,
        _duration(backlog.lag_seconds) if waits else empty,
        _duration(backlog.time_to_close_seconds) if waits else empty,
        _duration(backlog.time_to_loss_seconds) if waits else empty,
        "-" if table.dead_letters is None else f"{table.dead_letters:,}",
        "-" if table.files is None else f"{table.files.small:,}",
        "-" if table.drained_at is None else _time_or_date(table.drained_at, now),
        row.state.value,
    )


def follower_cells(row: FollowerRow, now: datetime) -> tuple[str, ...]:
    """The line of a refined, served or announced table."""
    unknown = "?" if row.refusal or not row.server_runs else "-"
    return (
        row.name,
        row.kind.value,
        unknown if row.behind is None else f"{row.behind:,}",
        _duration(row.waiting_seconds) if row.new else unknown,
        unknown if row.version is None else f"v{row.version}",
        "-" if row.committed_at is None else _time_or_date(row.committed_at, now),
        f"{row.state}: {row.new}" if row.new else row.state,
        "-" if row.refusal else row.next_command or "-",
    )


def _unit(stream: Stream, backlog: Backlog) -> str:
    """What a backlog counts if it does not count offsets."""
    if isinstance(stream.cluster, Cluster) or not backlog.offsets:
        return ""
    return " shard" if backlog.offsets == 1 else " shards"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    return "never" if seconds == math.inf else short_duration(seconds)


def _time_or_date(at: datetime, now: datetime) -> str:
    """The time of day; if it is more than 20 hours ago, the date."""
    return utc_text(at, date=True)[:10] if now - at > timedelta(hours=20) else utc_text(at, date=False)
