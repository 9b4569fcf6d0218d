"""What waits for a stream, topic partition by topic partition, and what it means. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from kdi_assets.drain.status_word import StatusWord, worst
from kdi_assets.errors import KdiError
from kdi_assets.ledger.recent import USUAL_PACE, Pace
from kdi_assets.stream import TopicPartition


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
    word: StatusWord | None = None

    @property
    def offsets(self) -> int:
        """The backlog; gaps count."""
        return 0 if self.position is None else max(0, self.end - self.position)

    @property
    def half_lost(self) -> bool:
        """Whether the next message has less time left than it has lived."""
        left = self.time_to_loss_seconds
        return left is not None and left <= (self.lag_seconds or 0.0)


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
    pace: Pace = USUAL_PACE

    @property
    def known(self) -> bool:
        """Whether both the topic's ends and the positions could be read; without either no backlog can be told."""
        return any(held.position is not None for held in self.topic_partitions.values())

    @property
    def word(self) -> StatusWord | None:
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
        near = [h.time_to_loss_seconds for h in self.topic_partitions.values() if h.half_lost]
        left = min((t for t in near if t is not None), default=None)
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
