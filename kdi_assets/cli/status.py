"""`kdi status`: what waits, how old it is, and what stands in the way; a line for every stream, without a JVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.given import AsJson, Defs, streams_meant
from kdi_assets.cli.output import EXIT_RETRY, clock, columns, duration, error_fields, json_line
from kdi_assets.errors import KdiError, Transient
from kdi_assets.settings import Settings
from kdi_assets.wording import kind_in_words

if TYPE_CHECKING:
    from kdi_assets.drain.look import Backlog
    from kdi_assets.stream import Stream

HEAD = ("STREAM", "BACKLOG", "LAG", "DEAD LETTERS, 24 H", "TABLE", "STATE")


def status(
    streams: Annotated[
        list[str] | None,
        typer.Argument(metavar="STREAM", help="Tables' paths, last parts, or topics; default: all."),
    ] = None,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Show backlog, lag, dead letters and what stands in the way of each stream. Needs no Spark.

    BACKLOG counts offsets, LAG is the age of the oldest message that waits,
    `?` is unknown.

    Exit codes: 0 it could look, whatever it saw, refusals too; 1 the documents
    are wrong; 75 no broker answered for any of the streams.
    """
    from kdi_assets.drain.look import look_at

    chosen, lake = streams_meant(streams or (), defs), Settings.from_environment().lake
    now = datetime.now(UTC)
    backlogs = look_at(chosen, lake=lake)
    seen = [StreamStatus(s, b, table_facts(s, lake, now)) for s, b in zip(chosen, backlogs, strict=True)]
    if as_json:
        for one in seen:
            json_line(one.fields())
    else:
        typer.echo(_text(seen, now) if seen else "no document describes a stream")
    if seen and all(isinstance(one.backlog.refusal, Transient) for one in seen):
        raise typer.Exit(EXIT_RETRY)


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What a table's log says; ``None`` where there is no table or its log cannot be read.

    Attributes:
        drained_at: When the newest drain among the live rows was committed.
        dead_letters: Of the drains committed within the last 24 hours.
    """

    version: int | None = None
    drained_at: datetime | None = None
    dead_letters: int | None = None


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """One line of the table."""

    stream: Stream
    backlog: Backlog
    table: TableFacts

    @property
    def known(self) -> bool:
        """Whether both the topic's ends and the positions could be read; without either no backlog can be told."""
        return any(held.position is not None for held in self.backlog.topic_partitions.values())

    @property
    def state(self) -> str:
        """One word."""
        if refusal := self.backlog.refusal:
            return "unreachable" if isinstance(refusal, Transient) else "refused"
        if self.backlog.offsets or (self.backlog.unsettled and self.table.version is not None):
            return "waiting"
        return "drained" if self.table.drained_at else "never drained"

    def cells(self, now: datetime) -> tuple[str, ...]:
        """As people read it."""
        backlog, table = self.backlog, self.table
        lag = "?" if not self.known or backlog.offsets else "-"
        return (
            self.stream.name,
            f"{backlog.offsets:,}" if self.known else "?",
            lag if backlog.lag_seconds is None else duration(backlog.lag_seconds),
            "-" if table.dead_letters is None else f"{table.dead_letters:,}",
            "-" if table.version is None else f"v{table.version}",
            self._state_cell(now),
        )

    def fields(self) -> dict[str, object]:
        """As programs read it."""
        backlog, table = self.backlog, self.table
        return {
            "stream": self.stream.name,
            "topic": self.stream.topic,
            "state": self.state,
            "backlog_offsets": backlog.offsets if self.known else None,
            "lag_seconds": backlog.lag_seconds,
            "unsettled": backlog.unsettled,
            "open_transaction_offsets": backlog.open_transaction_offsets if backlog.topic_partitions else None,
            "topic_partitions": {
                tp: {"earliest": held.earliest, "position": held.position, "end": held.end}
                for tp, held in backlog.topic_partitions.items()
            },
            "dead_letters_24h": table.dead_letters,
            "table_version": table.version,
            "drained_at": table.drained_at,
            "error": error_fields(backlog.refusal) if backlog.refusal else None,
        }

    def _state_cell(self, now: datetime) -> str:
        if refusal := self.backlog.refusal:
            return kind_in_words(refusal) if isinstance(refusal, Transient) else f"refused: {kind_in_words(refusal)}"
        drained_at = self.table.drained_at
        when = f" {clock(drained_at, date=now - drained_at > timedelta(hours=20))}" if drained_at else ""
        held = self.backlog.open_transaction_offsets
        open_ = f", {held:,} held back by an open transaction" if held else ""
        return (f"{self.state}{when}" if self.state == "drained" else self.state) + open_


def table_facts(stream: Stream, lake: str, now: datetime) -> TableFacts:
    """Read the log of the stream's table from its end back to yesterday, and to the newest drain."""
    try:
        return _table_facts(stream, lake, now)
    except KdiError:
        return TableFacts()  # the backlog's refusal says it


def _table_facts(stream: Stream, lake: str, now: datetime) -> TableFacts:
    from kdi_assets.ledger.entry import entry_of
    from kdi_assets.ledger.history import live_commits
    from kdi_assets.ledger.log import TableLog

    log = TableLog.open(stream.table_uri(lake))
    if log is None:
        return TableFacts()
    yesterday, drained_at, letters = now - timedelta(hours=24), None, 0
    for commit in live_commits(log):
        if commit.committed_at is None:
            continue
        if commit.committed_at < yesterday and drained_at:
            break
        entry = entry_of(commit.user_metadata, commit.version, stream.app_id)
        if entry is not None and entry.kind == "drain":
            drained_at = drained_at or commit.committed_at
            letters += entry.dead_letters if commit.committed_at >= yesterday else 0
    return TableFacts(log.version, drained_at, letters)


def _text(seen: Sequence[StreamStatus], now: datetime) -> str:
    """The table, and below it every refusal once, in full."""
    table = columns(HEAD, [one.cells(now) for one in seen], align="<>>><<")
    refusals = dict.fromkeys(str(one.backlog.refusal) for one in seen if one.backlog.refusal)
    return "\n".join([table, *refusals])
