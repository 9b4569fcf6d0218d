"""The status of a stream, as people and as programs read it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kdi_assets.cli.output import brief, clock, columns
from kdi_assets.drain.backlog import Backlog, PartitionBacklog, State, state_of
from kdi_assets.errors import KdiError
from kdi_assets.ledger.table_facts import TableFacts, TableWatch
from kdi_assets.stream import Stream

HEAD = ("STREAM", "BACKLOG", "LAG", "CLOSES IN", "LOSS IN", "DEAD, 24 H", "SMALL FILES", "LAST COMMIT", "STATE")
ALIGN = "<>>>>>>><"


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

    def notes(self) -> list[str]:
        """What the table has no column for."""
        held = self.backlog.open_transaction_offsets
        return [f"{self.stream.name}: {held:,} offsets are held back by an open transaction"] if held else []


def text(seen: Sequence[StreamStatus], now: datetime) -> str:
    """The table, and below it what stands in the way: notes, and every refusal once, in full."""
    if not seen:
        return "no document describes a stream"
    table = columns(HEAD, [one.cells(now) for one in seen], align=ALIGN)
    refusals = dict.fromkeys(str(one.backlog.refusal) for one in seen if one.backlog.refusal)
    return "\n".join([table, *(note for one in seen for note in one.notes()), *refusals])


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
