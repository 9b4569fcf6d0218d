"""Every metric: name, meaning, labels, and how its value is told from a picture. No I/O.

Gauges do not vanish at zero. What is unknown is NaN, what never comes is +Inf; a stream whose broker or log cannot be
read has no gauges of what is read there, and ``kdi_stream_up`` 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from kdi_assets.drain.backlog import PartitionBacklog
from kdi_assets.ledger.table_facts import TableFacts
from kdi_assets.metrics.picture import StreamPicture
from kdi_assets.metrics.totals import Totals

OF_STREAM = ("stream", "topic")
OF_PARTITION = (*OF_STREAM, "partition")


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
    "Whether a look at the cluster's streams ended in time; if not, nothing is told of them.",
    ("cluster",),
)
LOOK_SECONDS = Metric("kdi_look_seconds", "How long the look at the cluster's streams took.", ("cluster",))
FRESHNESS = Metric(
    "kdi_freshness_seconds",
    "Time from a message's timestamp to the commit with its row, of the drains within the last hour, by quantile.",
    (*OF_STREAM, "quantile"),
)
STAGE_SECONDS = Metric("kdi_stage_seconds_total", "Time spent in the stages of drains.", (*OF_STREAM, "stage"))


def _known(value: float | None) -> float:
    return math.nan if value is None else value


def _lag(held: PartitionBacklog) -> float:
    return 0.0 if held.position is not None and not held.offsets else _known(held.lag_seconds)


def _time_to_loss(held: PartitionBacklog) -> float:
    return math.inf if held.position is not None and not held.offsets else _known(held.time_to_loss_seconds)


PARTITION_GAUGES: tuple[tuple[Metric, Callable[[PartitionBacklog], float]], ...] = (
    (
        Metric("kdi_position_offset", "Next offset to drain.", OF_PARTITION),
        lambda held: _known(held.position),
    ),
    (
        Metric("kdi_end_offset", "The last stable offset, exclusive.", OF_PARTITION),
        lambda held: held.end,
    ),
    (
        Metric("kdi_earliest_offset", "The first offset that the broker still has.", OF_PARTITION),
        lambda held: held.earliest,
    ),
    (
        Metric("kdi_backlog_offsets", "Offsets between position and end.", OF_PARTITION),
        lambda held: math.nan if held.position is None else held.offsets,
    ),
    (
        Metric("kdi_lag_seconds", "Age of the oldest message that waits; 0 if none does.", OF_PARTITION),
        _lag,
    ),
    (
        Metric(
            "kdi_time_to_loss_seconds",
            "Time until retention deletes the next message; +Inf if none waits, or retention never does.",
            OF_PARTITION,
        ),
        _time_to_loss,
    ),
    (
        Metric("kdi_open_transaction_offsets", "Offsets held back by a transaction that is not ended.", OF_PARTITION),
        lambda held: held.open_transaction_offsets,
    ),
)


def _backlog_bytes(seen: StreamPicture) -> float:
    return 0.0 if not seen.backlog.offsets else _known(seen.backlog.bytes)


BACKLOG_GAUGES: tuple[tuple[Metric, Callable[[StreamPicture], float]], ...] = (
    (
        Metric("kdi_backlog_bytes", "Keys and values that wait, uncompressed, estimated.", OF_STREAM),
        _backlog_bytes,
    ),
    (
        Metric(
            "kdi_time_to_close_seconds",
            "Time until a drain that began now would have caught up; +Inf if it never would.",
            OF_STREAM,
        ),
        lambda seen: _known(seen.backlog.time_to_close_seconds),
    ),
)
FRESHNESS_LIMIT = Metric(
    "kdi_freshness_limit_seconds",
    "From how long on the stream's document takes a message for late, and for a failure.",
    (*OF_STREAM, "level"),
)
DEAD_LETTER_LIMIT = Metric(
    "kdi_dead_letter_limit_ratio",
    "Share of dead letters among the messages that the stream's document takes for too much.",
    OF_STREAM,
)


def _files(table: TableFacts, of: str) -> float:
    return math.nan if table.files is None else getattr(table.files, of)


TABLE_GAUGES: tuple[tuple[Metric, Callable[[TableFacts], float]], ...] = (
    (
        Metric("kdi_last_commit_timestamp_seconds", "When the newest drain was committed; NaN: none was.", OF_STREAM),
        lambda table: math.nan if table.drained_at is None else table.drained_at.timestamp(),
    ),
    (
        Metric("kdi_table_version", "Newest version of the table.", OF_STREAM),
        lambda table: _known(table.version),
    ),
    (
        Metric("kdi_table_files", "Data files of the newest version.", OF_STREAM),
        lambda table: _files(table, "count"),
    ),
    (
        Metric("kdi_table_bytes", "Size of the data files of the newest version.", OF_STREAM),
        lambda table: _files(table, "bytes"),
    ),
    (
        Metric("kdi_table_small_files", "Files below 32 MiB that share their date with another such one.", OF_STREAM),
        lambda table: _files(table, "small"),
    ),
)

COUNTERS: tuple[tuple[Metric, Callable[[Totals], float]], ...] = (
    (Metric("kdi_drains_total", "Drains that were committed.", OF_STREAM), lambda t: t.drains),
    (Metric("kdi_conflicts_total", "Tries of drains that another commit overtook.", OF_STREAM), lambda t: t.conflicts),
    (Metric("kdi_messages_total", "Messages drained, whatever became of them.", OF_STREAM), lambda t: t.messages),
    (Metric("kdi_rows_total", "Rows that messages became.", OF_STREAM), lambda t: t.rows),
    (Metric("kdi_dead_letters_total", "Messages that became dead letters.", OF_STREAM), lambda t: t.dead_letters),
    (Metric("kdi_tombstones_total", "Messages without a value.", OF_STREAM), lambda t: t.tombstones),
    (
        Metric("kdi_filtered_total", "Messages that a stream's filter or its route left out.", OF_STREAM),
        lambda t: t.filtered,
    ),
    (
        Metric("kdi_unknown_fields_total", "Messages with fields that a stream's record has not.", OF_STREAM),
        lambda t: t.with_unknown_fields,
    ),
    (Metric("kdi_gap_offsets_total", "Offsets that held no visible message.", OF_STREAM), lambda t: t.gap_offsets),
    (
        Metric("kdi_declared_loss_offsets_total", "Offsets that someone decided to give up.", OF_STREAM),
        lambda t: t.declared_loss_offsets,
    ),
    (
        Metric("kdi_message_bytes_total", "Keys and values drained, as produced and uncompressed.", OF_STREAM),
        lambda t: t.message_bytes,
    ),
    (Metric("kdi_file_bytes_total", "Data files that drains added.", OF_STREAM), lambda t: t.file_bytes),
)

GAUGES: tuple[Metric, ...] = (
    LOOK_UP,
    LOOK_SECONDS,
    STREAMS,
    UP,
    STATE,
    *(metric for metric, _ in PARTITION_GAUGES),
    *(metric for metric, _ in BACKLOG_GAUGES),
    DEAD_LETTER_LIMIT,
    *(metric for metric, _ in TABLE_GAUGES),
    FRESHNESS,
    FRESHNESS_LIMIT,
)
TOTALS: tuple[Metric, ...] = (*(metric for metric, _ in COUNTERS), STAGE_SECONDS)
