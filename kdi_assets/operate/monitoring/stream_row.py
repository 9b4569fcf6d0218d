"""The state of a stream at one moment: its backlog, and the facts of its table's log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kdi_assets.documents.model.capabilities import TableKind
from kdi_assets.documents.model.limits import FreshnessLimits
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.operate.monitoring.backlog import Backlog, PartitionBacklog, State, state_of
from kdi_assets.operate.monitoring.status_row import command_after
from kdi_assets.operate.monitoring.table_facts import TableFacts, TableWatch


@dataclass(frozen=True, slots=True)
class StreamRow:
    """A ``StatusRow``.

    Attributes:
        table: ``None`` if the table's log cannot be read, and then the backlog has the refusal; empty if there is no
            table yet.
    """

    stream: Stream
    backlog: Backlog
    table: TableFacts | None

    @property
    def name(self) -> str:
        return self.stream.name

    @property
    def kind(self) -> TableKind:
        return TableKind.STREAM

    @property
    def state(self) -> State:
        return state_of(self.stream, self.backlog)

    @property
    def behind(self) -> int | None:
        return self.backlog.offsets if self.backlog.known else None

    @property
    def waiting_seconds(self) -> float | None:
        if self.behind == 0:  # behind an open transaction, messages may wait that nobody can see
            return None if self.backlog.open_transaction_offsets else 0.0
        return self.backlog.lag_seconds

    @property
    def committed_at(self) -> datetime | None:
        return self.table.drained_at if self.table else None

    @property
    def limits(self) -> FreshnessLimits | None:
        return self.stream.freshness

    @property
    def refusal(self) -> KdiError | None:
        return self.backlog.refusal

    @property
    def next_command(self) -> str:
        run = f"kdi drain {self.name}"
        if self.refusal:
            return command_after(self.refusal, run=run)
        idle = self.stream.status != "active" or not (self.behind or self.backlog.needs_position_commit)
        return "" if idle else run

    @property
    def cpu_seconds_over_budget(self) -> float | None:
        """The CPU seconds of today's drains, if they are more than the document's budget."""
        budget, used = self.stream.checks.cpu_seconds_a_day, self.table.cpu_seconds_today if self.table else 0.0
        return used if budget is not None and used > budget else None

    @property
    def facts(self) -> Mapping[str, object]:
        backlog, table = self.backlog, self.table or TableFacts()
        return {
            "stream": self.stream.name,
            "topic": self.stream.topic,
            "cluster": self.stream.cluster.name,
            "backlog_offsets": self.behind,
            "backlog_bytes": backlog.bytes if backlog.offsets or not backlog.known else 0,
            "lag_seconds": backlog.lag_seconds,
            "arrival_rate_offsets_per_second": backlog.arrival_rate,
            "time_to_close_seconds": backlog.time_to_close_seconds,
            "time_to_loss_seconds": backlog.time_to_loss_seconds,
            "needs_position_commit": backlog.needs_position_commit,
            "open_transaction_offsets": backlog.open_transaction_offsets if backlog.topic_partitions else None,
            "topic_partitions": {tp: _partition_facts(held) for tp, held in sorted(backlog.topic_partitions.items())},
            "dead_letters_24h": table.dead_letters,
            "messages_24h": table.messages,
            "table_version": table.version,
            "table_files": table.files.count if table.files else None,
            "table_bytes": table.files.bytes if table.files else None,
            "small_files": table.files.small if table.files else None,
            "drained_at": table.drained_at,
            "cpu_seconds_today": round(table.cpu_seconds_today, 3) if self.table else None,
            "cpu_seconds_a_day": self.stream.checks.cpu_seconds_a_day,
            "deployments_in_turns": list(table.deployments),
        }


def _partition_facts(held: PartitionBacklog) -> dict[str, object]:
    return {
        "earliest": held.earliest,
        "position": held.position,
        "end": held.end,
        "backlog_offsets": None if held.position is None or held.unknown else held.offsets,
        "lag_seconds": held.lag_seconds,
        "arrival_rate_offsets_per_second": held.arrival_rate,
        "time_to_loss_seconds": held.time_to_loss_seconds,
        "open_transaction_offsets": held.open_transaction_offsets,
        "status": held.word.value if held.word else None,
    }


def stream_row_reader(streams: Sequence[Stream], lake: str) -> Callable[[], list[StreamRow]]:
    """A function that reads the rows of the streams; later calls read only what may have changed."""
    from kdi_assets.operate.monitoring.backlog_reader import BacklogReader

    backlog_reader, tables = BacklogReader(), TableWatch()

    def read() -> list[StreamRow]:
        backlogs = backlog_reader(streams, lake=lake)
        now = datetime.now(UTC)
        return [StreamRow(s, b, _facts(tables, s, lake, now)) for s, b in zip(streams, backlogs, strict=True)]

    return read


def _facts(tables: TableWatch, stream: Stream, lake: str, now: datetime) -> TableFacts | None:
    try:
        return tables(stream, lake, now=now)
    except KdiError:
        return None
