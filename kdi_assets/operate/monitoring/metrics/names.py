"""Every metric: name, meaning, labels and value. No I/O.

Gauges do not vanish at zero. Unknown values are NaN, times that never come are +Inf. A stream whose broker or log
cannot be read lacks the gauges from there, and its ``kdi_stream_up`` is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kdi_assets.operate.monitoring.backlog import Backlog, PartitionBacklog
from kdi_assets.operate.monitoring.follower_rows import FollowerRow
from kdi_assets.operate.monitoring.table_facts import TableFacts
from kdi_assets.streams.ledger.entry import LedgerEntry

OF_STREAM = ("stream", "topic")
OF_PARTITION = (*OF_STREAM, "partition")
OF_TABLE = ("table", "kind")


@dataclass(frozen=True, slots=True)
class Metric:
    """A name and what it means."""

    name: str
    meaning: str
    labels: tuple[str, ...]


UP = Metric("kdi_stream_up", "Whether the topic's ends, the positions and the table's log could be read.", OF_STREAM)
STATE = Metric("kdi_stream_state", "1 for the state that the stream is in, 0 for the others.", (*OF_STREAM, "state"))
STREAMS = Metric("kdi_streams", "Streams by state.", ("state",))
LOOK_UP = Metric(
    "kdi_look_up",
    "Whether a look at the cluster's streams ended in time; if not, they have no gauges.",
    ("cluster",),
)
LOOK_SECONDS = Metric("kdi_look_seconds", "How long the look at the cluster's streams took.", ("cluster",))
NEW_TOPICS = Metric(
    "kdi_new_topics", "Topics that match a document's pattern and have no table in the loaded documents.", ("document",)
)
FRESHNESS = Metric(
    "kdi_freshness_seconds",
    "Time from a message's timestamp to the commit with its row, of the drains within the last hour, by quantile.",
    (*OF_STREAM, "quantile"),
)
STAGE_SECONDS = Metric("kdi_stage_seconds_total", "Time spent in the stages of drains.", (*OF_STREAM, "stage"))


def _known(value: float | None) -> float:
    return math.nan if value is None else value


def _lag(held: PartitionBacklog) -> float:
    return 0.0 if held.is_idle else _known(held.lag_seconds)


def _time_to_loss(held: PartitionBacklog) -> float:
    return math.inf if held.is_idle else _known(held.time_to_loss_seconds)


PARTITION_GAUGES: Mapping[Metric, Callable[[PartitionBacklog], float]] = {
    Metric("kdi_position_offset", "Next offset to drain.", OF_PARTITION): lambda p: _known(p.position),
    Metric("kdi_end_offset", "The last stable offset, exclusive.", OF_PARTITION): lambda p: p.end,
    Metric("kdi_earliest_offset", "The first offset that the broker still has.", OF_PARTITION): lambda p: p.earliest,
    Metric("kdi_backlog_offsets", "Offsets between position and end.", OF_PARTITION): lambda p: (
        math.nan if p.position is None or p.unknown else p.offsets
    ),
    Metric("kdi_lag_seconds", "Age of the oldest waiting message; 0 if none waits.", OF_PARTITION): _lag,
    Metric(
        "kdi_time_to_loss_seconds",
        "Time until retention deletes the next message; +Inf if none waits, or retention never does.",
        OF_PARTITION,
    ): _time_to_loss,
    Metric("kdi_open_transaction_offsets", "Offsets held back by an open transaction.", OF_PARTITION): lambda p: (
        p.open_transaction_offsets
    ),
}
BACKLOG_GAUGES: Mapping[Metric, Callable[[Backlog], float]] = {
    Metric("kdi_backlog_bytes", "Uncompressed keys and values of the backlog, estimated.", OF_STREAM): lambda backlog: (
        _known(backlog.bytes) if backlog.offsets else 0.0
    ),
    Metric(
        "kdi_time_to_close_seconds",
        "Time until a drain that starts now has caught up; +Inf if it never does.",
        OF_STREAM,
    ): lambda backlog: _known(backlog.time_to_close_seconds),
}
FRESHNESS_LIMIT = Metric(
    "kdi_freshness_limit_seconds", "The freshness limits of the stream's document, by level.", (*OF_STREAM, "level")
)
DEAD_LETTER_LIMIT = Metric(
    "kdi_dead_letter_limit_ratio", "The limit of the share of dead letters in the stream's document.", OF_STREAM
)
CPU_BUDGET = Metric(
    "kdi_cpu_budget_seconds", "The CPU seconds that the drains of a day may use, by the stream's document.", OF_STREAM
)
COST = Metric("kdi_cost_total", "What the ledger's commits used, times KDI_PRICES; only with prices.", OF_STREAM)
TABLE_GAUGES: Mapping[Metric, Callable[[TableFacts], float]] = {
    Metric(
        "kdi_last_commit_timestamp_seconds", "When the newest drain was committed; NaN without a drain.", OF_STREAM
    ): lambda table: table.drained_at.timestamp() if table.drained_at else math.nan,
    Metric("kdi_table_version", "Newest version of the table.", OF_STREAM): lambda table: _known(table.version),
    Metric("kdi_table_files", "Data files of the newest version.", OF_STREAM): lambda table: (
        table.files.count if table.files else math.nan
    ),
    Metric("kdi_table_bytes", "Size of the data files of the newest version.", OF_STREAM): lambda table: (
        table.files.bytes if table.files else math.nan
    ),
    Metric(
        "kdi_table_small_files", "Files below 32 MiB on dates with at least two such files.", OF_STREAM
    ): lambda table: table.files.small if table.files else math.nan,
}


def _total(name: str, meaning: str) -> Metric:
    return Metric(name, meaning, OF_STREAM)


LEDGER_COUNTERS: Mapping[Metric, Callable[[LedgerEntry], float]] = {
    _total("kdi_rows_total", "Rows added by drains and replays."): lambda e: e.rows,
    _total("kdi_file_bytes_total", "Bytes of data files that drains and replays added."): lambda e: e.bytes,
    _total("kdi_cpu_seconds_total", "CPU seconds that drains and replays recorded."): lambda e: e.cpu_seconds or 0.0,
    _total("kdi_files_total", "Data files that drains and replays added."): lambda e: e.files_added,
    _total("kdi_declared_loss_offsets_total", "Offsets that someone decided to give up."): lambda e: sum(
        lost.offset_count for lost in e.declared_losses
    ),
}
"""Of every ledger commit."""

DRAIN_COUNTERS: Mapping[Metric, Callable[[LedgerEntry], int]] = {
    _total("kdi_drains_total", "Drains that were committed."): lambda e: 1,
    _total("kdi_conflicts_total", "Commit races that drains lost."): lambda e: e.conflicts,
    _total("kdi_messages_total", "Messages drained, of every verdict."): lambda e: e.messages,
    _total("kdi_dead_letters_total", "Messages that became dead letters."): lambda e: e.dead_letters,
    _total("kdi_tombstones_total", "Messages without a value."): lambda e: e.tombstones,
    _total("kdi_filtered_total", "Messages that the stream's filter or route left out."): lambda e: e.filtered,
    _total("kdi_unknown_fields_total", "Messages with fields that the record does not have."): lambda e: (
        e.unknown.messages
    ),
    _total("kdi_gap_offsets_total", "Offsets that held no visible message."): lambda e: e.gap_offsets,
    _total("kdi_message_bytes_total", "Keys and values drained, as produced and uncompressed."): lambda e: (
        e.message_bytes
    ),
}
"""Of drains alone."""

DOWNSTREAM_UP = Metric(
    "kdi_downstream_up", "Whether it is known what is new for the table, or that it has not begun.", OF_TABLE
)
DOWNSTREAM_GAUGES: Mapping[Metric, Callable[[FollowerRow], float | None]] = {
    Metric(
        "kdi_downstream_behind_versions",
        "Versions upstream, OPTIMIZE included, that are not consumed; 0 if none has new rows.",
        OF_TABLE,
    ): lambda row: _known(row.behind),
    Metric(
        "kdi_downstream_waiting_seconds", "How long the oldest new rows upstream wait; 0 if none do.", OF_TABLE
    ): lambda row: _known(row.waiting_seconds),
    Metric(
        "kdi_downstream_last_commit_timestamp_seconds", "When it was last refined or served.", OF_TABLE
    ): lambda row: row.committed_at.timestamp() if row.committed_at else math.nan,
    Metric(
        "kdi_downstream_freshness_limit_seconds", "The limit `fail` of the document's freshness.", OF_TABLE
    ): lambda row: row.limits.fail_seconds if row.limits else None,
    Metric(
        "kdi_downstream_late_changes_ratio", "Changes of the newest commit that were older than the rows.", OF_TABLE
    ): lambda row: row.late_share,
}
"""A gauge whose value is ``None`` is left out."""
