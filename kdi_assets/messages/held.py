"""Messages that a source holds for a plan, or gives a second time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.shard_bookmarks import Bookmark, Span
from kdi_assets.messages.topic_state import TopicState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ReadMessages = Callable[[Sequence[OffsetRange]], "DataFrame"]
"""``Source.read`` of a session, or a cache of the messages."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What a ledger entry keeps of a source whose messages have no offsets of their own; empty for others."""

    bookmarks: Mapping[TopicPartition, Bookmark] = field(default_factory=dict)
    spans: Mapping[TopicPartition, Span] = field(default_factory=dict)


def no_marks(ranges: Sequence[OffsetRange]) -> Marks:
    """The marks of a source whose offsets are enough."""
    return Marks()


def every_offset(offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, tuple[int, int]]:
    """``Held.edges`` of a source whose messages have one offset each."""
    return {tp: (at, at) for tp, at in offsets.items()}


@dataclass(frozen=True, slots=True)
class Held:
    """What a plan is made of.

    Attributes:
        topic: The offsets that can be planned.
        read: Gives the messages of any ranges of them, if they are read already; ``None``: ``Source.read`` does. They
            are refused while they are read, by ``Source.failure``, if others came in the place of those that were held.
        marks: What the entry keeps of the ranges of a plan.
        edges: Of each offset the nearest ones, before and after it or itself, at which a range may end: offsets may
            belong together.
        renewal: Bookmarks to commit if there is nothing to plan: retention would pass them otherwise, and nobody could
            tell whether it passed messages as well.
    """

    topic: TopicState
    read: ReadMessages | None = None
    marks: Callable[[Sequence[OffsetRange]], Marks] = no_marks
    renewal: Mapping[TopicPartition, Bookmark] = field(default_factory=dict)
    edges: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, tuple[int, int]]] = every_offset


@dataclass(frozen=True, slots=True)
class OtherReading:
    """Messages as a client reads them that shares no code with ``Source.hold``, if the source has two of them.

    Attributes:
        messages: ``messages_ddl`` of their stream.
        ranges: All of these offsets were read; retention may have passed others of those that were asked for.
        faults: What no offset can show, in one line each: messages that lie between those that were drained.
    """

    messages: DataFrame
    ranges: tuple[OffsetRange, ...]
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Again:
    """What of the messages below the positions can be read a second time.

    Attributes:
        topic: Their offsets: ``earliest`` is the first one that can be read.
        read: The messages of ranges of them, as ``Source.read``. Lazy.
        audited: The same as ``OtherReading``, for a comparison with the tables; held until the body ends. Of a source
            whose offsets are not enough also without ranges: there may be faults elsewhere.
    """

    topic: TopicState
    read: Callable[[SparkSession, Sequence[OffsetRange]], DataFrame]
    audited: Callable[[SparkSession, Sequence[OffsetRange]], AbstractContextManager[OtherReading]]

    def held(self, ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
        """The part of the ranges that can be read."""
        both = ((r, self.topic.partitions.get(r.topic_partition)) for r in ranges)
        cut = (replace(r, start=max(r.start, o.earliest), end=min(r.end, o.end)) for r, o in both if o)
        return tuple(r for r in cut if r.start < r.end)


@dataclass(frozen=True, slots=True)
class SetBack:
    """Positions that are set back together.

    Attributes:
        positions: At or before the wanted ones; also of topic partitions that must be read after them.
        bookmarks: Of these positions, and of topic partitions that are no longer at their end.
        notes: Why a position is not the wanted one, in words.
        gone: Of positions whose messages are not all held: the offset from which on they are.
    """

    positions: Mapping[TopicPartition, int]
    bookmarks: Mapping[TopicPartition, Bookmark] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    gone: Mapping[TopicPartition, int] = field(default_factory=dict)
