"""Backlogs as plain values."""

from __future__ import annotations

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.errors import KdiError
from kdi_assets.operate.monitoring.backlog import Backlog, PartitionBacklog, State

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def waits(
    offsets: int = 0,
    lag: float | None = None,
    *,
    stream: str = "bronze/orders",
    position: int = 100,
    held: int = 0,
    refusal: KdiError | None = None,
    rate: float | None = None,
    loss: float | None = None,
    word: State | None = State.OK,
) -> Backlog:
    """The backlog of a stream with one topic partition."""
    seen = PartitionBacklog(position, position + offsets, 0, held, None, lag, rate, loss, word)
    return Backlog(stream, {P0: seen}, offsets, lag, refusal, held)
