"""The backlog of one topic partition, from its offsets, its next message and the newest commits. No clock, no I/O."""

from __future__ import annotations

import math
from datetime import datetime

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.topic_state import BrokerOffsets, Retention
from kdi_assets.operate.monitoring.backlog import PartitionBacklog, status_word
from kdi_assets.operate.monitoring.ledger_cache import RecentCommits

BATCH_BYTES = 70
"""What a broker stores beside key and value of a message in a batch of its own. The estimated size of uncompressed
messages with this is, apart from headers, at least the stored size, so a loss never comes earlier than predicted."""


def partition_backlog(
    tp: TopicPartition,
    offsets: BrokerOffsets,
    position: int | None,
    next_at: datetime | None,
    recent: RecentCommits,
    retention: Retention | None,
    patience_seconds: float | None,
    now: datetime,
) -> PartitionBacklog:
    """What waits in a topic partition now.

    Args:
        next_at: Timestamp of the next message; ``None``: there is none, or it is unknown.
        recent: The newest commits of the stream.
        retention: ``None``: unknown, or nothing is lost.
        patience_seconds: How long the stream lets a message wait; ``None`` without a limit.
    """
    size = recent.bytes_per_offset
    stored_bytes = None if size is None else size + BATCH_BYTES
    backlog = 0 if position is None else max(0, offsets.end - position)
    lag = None if next_at is None or not backlog else max(0.0, (now - next_at).total_seconds())
    rate = backlog / max(lag, 1.0) if lag is not None else None
    waited = lag if lag is None or recent.last_at is None else min(lag, (now - recent.last_at).total_seconds())
    window, word = recent.window.get(tp, ()), None
    if position is not None:
        word = status_word(
            window, position=position, end=offsets.end, waiting_seconds=waited, patience_seconds=patience_seconds
        )
    return PartitionBacklog(
        position=position,
        end=offsets.end,
        earliest=offsets.earliest,
        open_transaction_offsets=max(0, offsets.high_watermark - offsets.end),
        next_at=next_at if backlog else None,
        lag_seconds=lag,
        arrival_rate=rate,
        time_to_loss_seconds=time_to_loss(backlog, lag, rate, retention, stored_bytes=stored_bytes),
        word=word,
    )


def time_to_loss(
    backlog: int,
    lag: float | None,
    rate: float | None,
    retention: Retention | None,
    *,
    stored_bytes: float | None,
) -> float | None:
    """Seconds until the brokers may delete the next message, by age or by size; ``None`` without one, or if unknown.

    Args:
        backlog: Offsets from that message on.
        lag: Its age in seconds.
        rate: Offsets that arrive in a second.
        stored_bytes: The size of an offset at the broker.
    """
    if retention is None or not backlog:
        return None
    by_age: float | None = math.inf
    if retention.seconds is not None:
        by_age = None if lag is None else max(0.0, retention.seconds - lag)
    by_size: float | None = math.inf
    if retention.bytes is not None:
        by_size = max(0.0, retention.bytes / stored_bytes - backlog) / rate if stored_bytes and rate else None
    known = [left for left in (by_age, by_size) if left is not None]
    sooner = min(known, default=None)
    return None if sooner == math.inf and len(known) < 2 else sooner  # one limit may be unknown
