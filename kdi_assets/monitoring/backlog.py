"""A stream's backlog, topic partition by topic partition, and what it means. No clock, no I/O.

A consumer of Burrow's commits all the time; a stream commits when it drains, and one without a backlog does not. So a
stop is told by how long something has waited, and not by how long ago the last commit was.

Source: Burrow, "Consumer Lag Evaluation Rules".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import pairwise

from kdi_assets.errors import KdiError, Transient
from kdi_assets.ledger.recent_commits import DEFAULT_PACE, Pace
from kdi_assets.stream.stream import Stream, TopicPartition

PATIENCE = 3
"""So many times as long as `drain_when` lets a message wait, and nothing was committed: it stands still."""
LEAST_PATIENCE_SECONDS = 60.0


class State(StrEnum):
    """How a stream stands, in one word. Of a topic partition it is one of Burrow's, the first five, from good to bad.

    OK: nothing waits, or everything was drained lately.
    WARN: drains go on, and the backlog does not get less.
    REWIND: the position went back: a RESTORE, or somebody's decision.
    STALL: the stream commits, and this topic partition's position does not move.
    STOP: something waits, and nothing is committed.
    """

    OK = "OK"
    WARN = "WARN"
    REWIND = "REWIND"
    STALL = "STALL"
    STOP = "STOP"
    PAUSED = "paused"
    RETIRED = "retired"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PositionSample:
    """A topic partition at one ledger commit: position after it, and the end as it was planned, if that is known."""

    position: int
    end: int | None

    @property
    def backlog(self) -> int | None:
        """What the commit left, of what was there when it was planned."""
        return None if self.end is None else max(0, self.end - self.position)


def status_word(
    window: Sequence[PositionSample],
    *,
    position: int,
    end: int,
    waiting_seconds: float | None,
    patience_seconds: float | None,
) -> State:
    """Judge one topic partition.

    Args:
        window: The last ledger commits, the oldest first.
        position: Now.
        end: Now, exclusive.
        waiting_seconds: How long the next message has waited, and no commit came; ``None`` if unknown.
        patience_seconds: How long the stream lets a message wait; ``None`` if it says nothing about time.
    """
    if position >= end:
        return State.OK
    if waiting_seconds is not None and patience_seconds is not None:
        if waiting_seconds > max(PATIENCE * patience_seconds, LEAST_PATIENCE_SECONDS):
            return State.STOP
    seen = [*window, PositionSample(position, end)]
    if any(after.position < before.position for before, after in pairwise(seen)):
        return State.REWIND
    left = [sample.backlog for sample in seen]
    if len(window) < 2 or any(backlog in (None, 0) for backlog in left):
        return State.OK
    if all(sample.position == position for sample in window):
        return State.STALL
    if all((after or 0) >= (before or 0) for before, after in pairwise(left)):
        return State.WARN
    return State.OK


def worst(words: Sequence[State]) -> State | None:
    """The worst of some words; ``None`` of none."""
    return max(words, key=list(State).index, default=None)


@dataclass(frozen=True, slots=True)
class PartitionBacklog:
    """One topic partition: ``[position, end)`` waits.

    Attributes:
        position: Next offset to drain; ``None`` where it is unknown.
        end: The last stable offset, exclusive.
        earliest: The first offset that the broker still has.
        open_transaction_offsets: Behind ``end``: held back until a producer commits or aborts.
        next_at: Timestamp of the next message, UTC; ``None`` if none waits or its time is unknown.
        lag_seconds: Its age.
        arrival_rate: Offsets a second, on average since ``next_at``; ``None`` if unknown.
        time_to_loss_seconds: Until retention deletes the next message, by its time or by the topic partition's size:
            at the earliest, because brokers delete whole segments. Infinite without retention; ``None`` if none waits
            or it is unknown.
        word: Burrow's status word; ``None`` where the position is unknown.
    """

    position: int | None
    end: int
    earliest: int
    open_transaction_offsets: int = 0
    next_at: datetime | None = None
    lag_seconds: float | None = None
    arrival_rate: float | None = None
    time_to_loss_seconds: float | None = None
    word: State | None = None

    @property
    def offsets(self) -> int:
        """The backlog; gaps count."""
        return 0 if self.position is None else max(0, self.end - self.position)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits for a stream: the sums over its topic partitions, or the worst of them.

    Attributes:
        offsets: Between positions and ends; gaps count.
        lag_seconds: Age of the oldest message that waits; ``None`` if none does or its time is unknown.
        refusal: Why the stream cannot be drained as it stands.
        unsettled: Whether the next drain must commit positions first: a start, a RESTORE's answer, a takeover.
        open_transaction_offsets: Behind the last stable offset: held back until a producer commits or aborts.
        bytes: Keys and values that wait, uncompressed, estimated from what was drained last; ``None`` if unknown.
        pace: How long drains of the stream take.
    """

    stream: str
    topic_partitions: Mapping[TopicPartition, PartitionBacklog]
    offsets: int
    lag_seconds: float | None
    refusal: KdiError | None
    open_transaction_offsets: int
    unsettled: bool = False
    bytes: int | None = None
    pace: Pace = DEFAULT_PACE

    @property
    def known(self) -> bool:
        """Whether both the topic's ends and the positions could be read; without either no backlog can be told."""
        return any(held.position is not None for held in self.topic_partitions.values())

    @property
    def word(self) -> State | None:
        """The worst word of the topic partitions."""
        return worst([held.word for held in self.topic_partitions.values() if held.word is not None])

    @property
    def arrival_rate(self) -> float | None:
        """Offsets a second that arrive, over all topic partitions that have a backlog."""
        rates = [held.arrival_rate for held in self.topic_partitions.values() if held.arrival_rate is not None]
        return sum(rates) if rates else None

    @property
    def time_to_loss_seconds(self) -> float | None:
        """Until retention deletes the first message that waits; infinite if it never does, ``None`` if unknown."""
        times = [h.time_to_loss_seconds for h in self.topic_partitions.values() if h.time_to_loss_seconds is not None]
        return min(times, default=None)

    def loss_near(self, limit_seconds: float) -> float | None:
        """The time to loss, where retention is about to delete messages; ``None`` where it is not, or nobody knows.

        Near is what is within the limit, and of a topic that keeps less than twice as long, in the second half of that:
        else it would be near always.
        """
        times = ((h.time_to_loss_seconds, h.lag_seconds or 0.0) for h in self.topic_partitions.values())
        left = min((left for left, lag in times if left is not None and left <= lag), default=None)
        return left if left is not None and left <= limit_seconds else None

    @property
    def time_to_close_seconds(self) -> float | None:
        """Until a drain that began now would have caught up with what arrives; infinite if it never would.

        A drain reads all topic partitions side by side, so there is one time for all of them. ``None`` if unknown.
        """
        if not self.offsets:
            return 0.0 if self.known else None
        if self.arrival_rate is None:
            return None
        return self.pace.seconds_to_close(self.offsets, arrival_rate=self.arrival_rate)


def state_of(stream: Stream, backlog: Backlog) -> State:
    """``refused`` waits for a decision, ``unreachable`` for brokers or storage; both go before ``paused``."""
    if stream.status == "retired":
        return State.RETIRED
    if backlog.refusal is not None:
        return State.UNREACHABLE if isinstance(backlog.refusal, Transient) else State.REFUSED
    if stream.status == "paused":
        return State.PAUSED
    return backlog.word or State.UNKNOWN
