"""What a source says of a topic, and of what waits in it, at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.recorded import RecordedState
from kdi_assets.messages.shard_bookmarks import Bookmark


@dataclass(frozen=True, slots=True)
class BrokerOffsets:
    """The offsets of a topic partition.

    Attributes:
        earliest: First offset that the source still has, inclusive.
        end: Last stable offset, exclusive: a ``read_committed`` reader can read up to it.
        high_watermark: End including open transactions, exclusive; the same without transactions.
    """

    earliest: int
    end: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class LastRead:
    """A fingerprint of the last message read of a topic partition, to notice another message at its offset.

    Attributes:
        timestamp: In milliseconds since the epoch, as the broker has it.
        digest: Of key and value, in hexadecimal.
    """

    offset: int
    timestamp: int
    digest: str


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as the source describes it at one moment; ``topic_id`` changes when a topic is deleted and recreated.

    Attributes:
        as_of: That moment, if the source knows no offsets before it has read: then those here mean nothing, and a
            drain takes what arrived until then. ``None``: the offsets are known.
        retention: When its messages are deleted, if the source tells it with the topic.
    """

    topic: str
    topic_id: str
    partitions: Mapping[TopicPartition, BrokerOffsets]
    as_of: datetime | None = None
    retention: Retention | None = None

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """The end of each topic partition, exclusive."""
        return {tp: offsets.end for tp, offsets in self.partitions.items()}

    @property
    def numbers_end(self) -> int:
        """The end of its numbers, exclusive: those of shards have holes, and begin anywhere."""
        return max((tp.partition + 1 for tp in self.partitions), default=0)

    def without_backlog(self, positions: Mapping[TopicPartition, int]) -> TopicState:
        """The same, as it is known before its messages are read: nothing follows the positions."""
        found = {tp: positions.get(tp, 0) for tp in self.partitions}
        return replace(self, partitions={tp: BrokerOffsets(at, at, at) for tp, at in found.items()})


@dataclass(frozen=True, slots=True)
class AtPosition:
    """The messages around a position.

    Attributes:
        before: The message at the offset of one that was read before it; ``None`` if it is gone.
        next_at: Timestamp of the first message at or after the position; ``None`` if there is none, or none came. An
            invalid or future timestamp counts as now.
    """

    before: LastRead | None = None
    next_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Retention:
    """When a source deletes a topic's messages: by age, and by the bytes of a topic partition; ``None``: never."""

    seconds: float | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """What follows the positions of a topic whose offsets are not known.

    Attributes:
        first_at: When the first message after each position arrived; absent without one.
        renews: Since when nobody looked, in milliseconds since 1970, if nothing waits and a drain commits
            ``Held.renewal``.
        unknown: Those that have not been read to their ends, so that nobody knows whether a message waits.
    """

    first_at: Mapping[TopicPartition, datetime] = field(default_factory=dict)
    renews: int | None = None
    unknown: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class TopicReading:
    """How far a table has read a topic whose offsets are not known.

    Attributes:
        start: The bookmarks of its first commit, if it has not begun; then ``ledger`` does not count.
    """

    topic: TopicState
    ledger: RecordedState | None
    start: Mapping[TopicPartition, Bookmark] = field(default_factory=dict)
