"""A stream's backlog by topic partition, and its status. No clock, no I/O.

Burrow's consumers commit all the time. A stream commits only when it drains, so a stop is not measured from the last
commit, but by how long messages have waited.

Source: Burrow, "Consumer Lag Evaluation Rules".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import pairwise

from kdi_assets.documents.model.stream import Stream, TopicPartition
from kdi_assets.errors import KdiError, Transient
from kdi_assets.streams.ledger.recent_commits import DEFAULT_PACE, Pace

PATIENCE = 3
"""A stream without commits is stopped if a message waits this many times longer than `drain_when` allows."""
LEAST_PATIENCE_SECONDS = 60.0


class State(StrEnum):
    """The state of a stream; the first five, from good to bad, are Burrow's status words of a topic partition.

    OK: there is no backlog, or drains keep up with it.
    WARN: drains commit, but the backlog does not shrink.
    REWIND: the position went back, by a RESTORE or a decision.
    STALL: the stream commits, but the position of this topic partition does not move.
    STOP: there is a backlog, and nothing is committed.
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
    """A topic partition at one ledger commit: the position after it, and the planned end (``None`` if unknown)."""

    position: int
    end: int | None

    @property
    def backlog(self) -> int | None:
        """Offsets of the planned end that the commit left undrained."""
        return None if self.end is None else max(0, self.end - self.position)


def status_word(
    window: Sequence[PositionSample],
    *,
    position: int,
    end: int,
    waiting_seconds: float | None,
    patience_seconds: float | None,
) -> State:
    """The status word of one topic partition.

    Args:
        window: The last ledger commits, the oldest first.
        position, end: Now; ``end`` is exclusive.
        waiting_seconds: How long the next message has waited without a commit; ``None`` if unknown.
        patience_seconds: How long the stream lets a message wait; ``None`` without a limit.
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
    """The worst of some status words; ``None`` if there are none."""
    return max(words, key=list(State).index, default=None)


@dataclass(frozen=True, slots=True)
class PartitionBacklog:
    """The backlog of one topic partition: ``[position, end)``.

    Attributes:
        position: Next offset to drain; ``None`` if unknown.
        end: The last stable offset, exclusive.
        earliest: The first offset that the broker still has.
        open_transaction_offsets: Offsets after ``end``, held back until a producer commits or aborts.
        next_at: Timestamp of the next message, UTC; ``None`` without a backlog, or if unknown.
        lag_seconds: The age of the next message.
        arrival_rate: Average offsets a second since ``next_at``; ``None`` if unknown.
        time_to_loss_seconds: Time until retention by age or by size can delete the next message (brokers delete whole
            segments, so it may live longer). Infinite without retention; ``None`` without a backlog, or if unknown.
        word: Burrow's status word; ``None`` if the position, or what follows it, is unknown.
        unknown: Whether anything follows the position is not known yet.
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
    unknown: bool = False

    @property
    def offsets(self) -> int:
        """The backlog; gaps count."""
        return 0 if self.position is None else max(0, self.end - self.position)

    @property
    def is_idle(self) -> bool:
        """Whether it is known that nothing waits."""
        return self.position is not None and not self.offsets and not self.unknown


@dataclass(frozen=True, slots=True)
class Backlog:
    """The backlog of a stream: the sum, or the worst, of its topic partitions.

    Attributes:
        offsets: Between positions and ends; gaps count. Of a source that knows no offsets before it reads, the topic
            partitions on which messages wait.
        lag_seconds: Age of the oldest message of the backlog; ``None`` without a backlog, or if unknown.
        refusal: Why a drain of the stream would fail now.
        open_transaction_offsets: Offsets after the last stable offset, held back until a producer commits or aborts.
        needs_position_commit: Whether the next drain must commit positions first: a start, a takeover, the answer to a
            RESTORE; or a renewal, see ``renews``.
        renews: As of ``Waiting``.
        bytes: Uncompressed keys and values of the backlog, estimated from the last drains; ``None`` if unknown.
        pace: How long drains of the stream take.
    """

    stream: str
    topic_partitions: Mapping[TopicPartition, PartitionBacklog]
    offsets: int
    lag_seconds: float | None
    refusal: KdiError | None
    open_transaction_offsets: int
    needs_position_commit: bool = False
    renews: int | None = None
    bytes: int | None = None
    pace: Pace = DEFAULT_PACE

    @property
    def known(self) -> bool:
        """Whether both the topic's ends and the positions could be read; otherwise the backlog is unknown.

        Of what waits, some topic partitions tell; that nothing waits, only all of them.
        """
        held = self.topic_partitions.values()
        return any(h.position is not None for h in held) and (self.offsets > 0 or not any(h.unknown for h in held))

    @property
    def word(self) -> State | None:
        """The worst status word of the topic partitions."""
        words = [held.word for held in self.topic_partitions.values() if held.word is not None]
        return worst(words) if self.known else None

    @property
    def arrival_rate(self) -> float | None:
        """Offsets a second that arrive in all topic partitions with a backlog."""
        rates = [held.arrival_rate for held in self.topic_partitions.values() if held.arrival_rate is not None]
        return sum(rates) if rates else None

    @property
    def time_to_loss_seconds(self) -> float | None:
        """Time until retention deletes the next message; infinite if it never does, ``None`` if unknown."""
        times = [h.time_to_loss_seconds for h in self.topic_partitions.values() if h.time_to_loss_seconds is not None]
        return min(times, default=None)

    def loss_near(self, limit_seconds: float) -> float | None:
        """The time to loss if retention is about to delete messages; ``None`` if it is not, or if that is unknown.

        A loss is near if it is within the limit, and no further away than the message is old. The second condition is
        for short retentions: a topic that keeps messages for less than the limit would always be near a loss.
        """
        times = ((h.time_to_loss_seconds, h.lag_seconds or 0.0) for h in self.topic_partitions.values())
        left = min((left for left, lag in times if left is not None and left <= lag), default=None)
        return left if left is not None and left <= limit_seconds else None

    @property
    def time_to_close_seconds(self) -> float | None:
        """Time until a drain that starts now has caught up; infinite if more arrives than it can drain.

        One time for the stream, because a drain reads all topic partitions in parallel. ``None`` if unknown.
        """
        if not self.offsets:
            return 0.0 if self.known else None
        if self.arrival_rate is None:
            return None
        return self.pace.seconds_to_close(self.offsets, arrival_rate=self.arrival_rate)


def state_of(stream: Stream, backlog: Backlog) -> State:
    """The state of a stream; ``refused`` and ``unreachable`` go before ``paused``."""
    if stream.status == "retired":
        return State.RETIRED
    if backlog.refusal is not None:
        return State.UNREACHABLE if isinstance(backlog.refusal, Transient) else State.REFUSED
    if stream.status == "paused":
        return State.PAUSED
    return backlog.word or State.UNKNOWN
