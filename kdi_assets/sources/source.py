"""The protocol of a source, and what passes it: everything that is drained comes by these methods.

Who calls them knows no client: neither its objects nor its errors pass, only the frozen classes below and ``KdiError``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from kdi_assets.errors import KdiError
from kdi_assets.ledger.bookmarks import Bookmark, Loss, Span
from kdi_assets.ledger.entry import LastRead, LedgerEntry
from kdi_assets.ledger.positions import LedgerState
from kdi_assets.stream.fields import StartPolicy
from kdi_assets.stream.stream import OffsetRange, Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REQUEST_SECONDS = 10.0
"""How long a request may take; well below the 60 seconds that Dagster gives a sensor."""
LEADER_SECONDS = 3.0
"""How long to wait for topic partitions that a server cannot answer for at the moment."""
LAST_MESSAGE_WITHIN = 64
"""The last message before an offset is looked for in so many offsets; transactions leave markers after it."""
MESSAGES_DDL = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
"""The columns that messages of every source have."""
OFFSETS_PER_TASK = 100_000
"""A smaller task spends more time on its start than on reading; for more offsets another task pays."""


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
    def numbers_end(self) -> int:
        """The end of its numbers, exclusive: those of shards have holes, and begin anywhere."""
        return 1 + max(tp.partition for tp in self.partitions)

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
        read: Gives the messages of any ranges of them, if they are read already; ``None``: ``Source.read`` does.
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


def again_by(source: Source, topic: TopicState) -> Again:
    """As ``Source.again``, of a source whose offsets are enough."""
    return Again(topic, source.read, lambda spark, ranges: nullcontext(_read_once(source, spark, ranges)))


def _read_once(source: Source, spark: SparkSession, ranges: Sequence[OffsetRange]) -> OtherReading:
    return OtherReading(source.read(spark, ranges), tuple(ranges))


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


class WayBack(Protocol):
    """Where positions can be set back to, of a source that cannot begin to read at every offset."""

    def offsets_at(self, moment: datetime, of: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """An offset at or before the first drained message with a timestamp at or after ``moment``.

        Args:
            moment: Not later than ``TopicState.as_of``.

        Returns:
            Absent without such a message; 0 if others of then or later may be gone.
        """
        ...

    def to(self, offsets: Mapping[TopicPartition, int]) -> SetBack:
        """The positions to read messages again from offsets on.

        Args:
            offsets: Below the positions; an offset without a message counts as the next one.

        Raises:
            KdiError: Messages are there, and nobody knows which offsets they had.
        """
        ...


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
    ledger: LedgerState | None
    start: Mapping[TopicPartition, Bookmark] = field(default_factory=dict)


class Watch(Protocol):
    """Looks again and again at topics whose offsets are not known; what it keeps between two looks saves requests.

    A look that has no time for everything, or that the source refuses as one too many, leaves the rest to the next one.
    """

    def topics(self, names: Collection[str], *, leader_seconds: float) -> Mapping[str, TopicState | KdiError]:
        """As ``Source.topics``, at most some minutes old; absent: not asked yet.

        Args:
            leader_seconds: Of the first look at topic partitions; 0: there will be a next look, which has the others.
        """
        ...

    def anew(self, name: str) -> TopicState:
        """As ``topics``, but not from before: a drain may have found newer topic partitions since.

        Raises:
            KdiError: There is no answer, or no such topic.
        """
        ...

    def waiting(
        self, readings: Mapping[str, TopicReading], *, leader_seconds: float
    ) -> Mapping[str, Waiting | KdiError]:
        """What waits after the positions of each table, or why a drain would be refused.

        Args:
            readings: By the table's name.
            leader_seconds: As in ``topics``.
        """
        ...


class Source(Protocol):
    """What one connection leads to: topics whose messages have offsets that only grow.

    Every method may raise a ``Transient`` if the source does not answer, and a ``Terminal`` if it refuses our
    credentials or a right.
    """

    def topic(self, name: str) -> TopicState:
        """The topic's id and offsets now; raises the source's error if it is missing."""
        ...

    def topics(
        self, names: Collection[str], *, leader_seconds: float = LEADER_SECONDS
    ) -> dict[str, TopicState | KdiError]:
        """Many topics at once, each with its state or its error; an error does not affect the others.

        Args:
            leader_seconds: How long to ask again for topic partitions that cannot be answered for at the moment.
        """
        ...

    def topic_id(self, name: str) -> str:
        """The topic's id once more, just after its messages were read; a server may have died with that read."""
        ...

    def offsets_at(self, topic: TopicState, moment: datetime) -> dict[TopicPartition, int]:
        """The first offset of each topic partition with a timestamp at or after ``moment``; the end without one."""
        ...

    def first_bookmarks(self, topic: TopicState, start: StartPolicy) -> Mapping[TopicPartition, Bookmark]:
        """Where a stream without positions begins, if an offset cannot say it; else empty."""
        ...

    def bookmarks_at_creation(self, topic: TopicState) -> Mapping[TopicPartition, Bookmark]:
        """Before the first message that the topic ever had, if an offset cannot say it; else empty."""
        ...

    def waiting(self, topic: TopicState, ledger: LedgerState) -> Waiting:
        """What waits after the positions, where the offsets of a topic are not known.

        Args:
            topic: With ``as_of``; messages that arrived later do not count.
        """
        ...

    def losses(self, topic: TopicState, ledger: LedgerState) -> Mapping[TopicPartition, Loss]:
        """What a drain refuses because messages are gone, where the offsets of a topic cannot tell; else empty.

        Args:
            topic: With ``as_of``; messages that arrived later do not count.
        """
        ...

    def watch(self) -> Watch | None:
        """A watch of its own for whoever looks again and again; ``None``: each look asks ``topics``."""
        ...

    def around(
        self,
        positions: Mapping[TopicPartition, int],
        *,
        before: Mapping[TopicPartition, LastRead] | None = None,
        seconds: float = REQUEST_SECONDS,
        committed: bool = True,
    ) -> dict[TopicPartition, AtPosition]:
        """The next message of each position, and the message that is now where one was read before it.

        Args:
            before: That message as it was read: below the position, not below the earliest offset; may be absent.
            committed: Read only committed messages; else those of open and aborted transactions too.

        Returns:
            Absent if neither a message nor the end came within ``seconds``.
        """
        ...

    def refuse_others(self, messages: DataFrame, marks: Marks) -> None:
        """Refuse messages that are not those of the marks: what was held may have been lost, and read again since.

        Args:
            messages: Of a plan, as ``Held.read`` gave them.
        """
        ...

    def last_messages(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, LastRead]:
        """The last message of each range; absent if the range's last ``LAST_MESSAGE_WITHIN`` offsets have none."""
        ...

    def sampled_bytes(self, positions: Mapping[TopicPartition, int]) -> float | None:
        """The average bytes of key and value of a few messages from these offsets on; ``None`` if none came in time."""
        ...

    def hold(
        self, session: Callable[[], SparkSession], topic: TopicState, ledger: LedgerState, *, most: int
    ) -> AbstractContextManager[Held]:
        """Hold what the next plan can be made of, until the plan is executed.

        A source that looks up offsets holds nothing: it answers ``topic``. One that has to read before it knows what
        there is reads here: a drain goes up to the ends of the first topic that was held with its messages.

        Args:
            session: Called only if messages are read.
            topic: Of the snapshot; ``as_of`` is that of the drain's first one.
            ledger: Its positions are where the plan begins; a topic partition without one begins at 0.
            most: Messages of the plan.
        """
        ...

    def read(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        """Exactly the messages in ``ranges``; at least one range, none of them empty.

        Returns:
            ``messages_ddl`` of their stream, one row per message; also ``wrong_shard: boolean`` where the source knows
            of messages that belong to another topic partition, which become dead letters. Lazy.
        """
        ...

    def again(self, topic: TopicState, ranges: Sequence[OffsetRange], entries: Iterable[LedgerEntry]) -> Again:
        """What of ranges below the positions can be read a second time.

        Args:
            ranges: At most one for each topic partition; a part of them may be gone.
            entries: The live ledger entries, newest first; read only as far back as the source needs them.

        Raises:
            KdiError: Messages are there, and nobody knows which offsets they had.
        """
        ...

    def way_back(self, topic: TopicState, entries: Sequence[LedgerEntry]) -> WayBack | None:
        """Where positions can be set back to; ``None``: to every offset that the source has.

        Args:
            entries: The live ledger entries, newest first.
        """
        ...

    def failure(self, root: str) -> KdiError | None:
        """The error of a Spark task that failed because of the source; ``None``: the source is not the cause.

        Args:
            root: The text of its root cause.
        """
        ...

    def can_have_gaps(self, topic: str) -> bool:
        """Whether offsets without a message are normal in the topic."""
        ...

    def message_in(
        self, ranges: Mapping[TopicPartition, Iterable[OffsetRange]], *, seconds: float = REQUEST_SECONDS
    ) -> tuple[TopicPartition, int] | None:
        """A message in the ranges, by a client that shares no code with ``read``; ``None`` if there is none.

        Args:
            ranges: At least one for each topic partition, ordered; consumed lazily, there may be millions.
            seconds: How long neither a message nor an end may come.
        """
        ...

    def first_unreadable(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, int]:
        """The first offset of each range whose timestamp ``read`` cannot express; absent without one."""
        ...

    def retention(self, names: Collection[str]) -> dict[str, Retention]:
        """When the messages of many topics are deleted; absent if unknown."""
        ...

    def unanswered(self, detail: str) -> KdiError:
        """The error for one question without an answer, while the source answers others."""
        ...


def messages_ddl(stream: Stream) -> str:
    """The columns of a stream's messages as ``Source.read`` gives them."""
    return MESSAGES_DDL + stream.source_struct.more_ddl


def oldest_timestamps(
    source: Source,
    positions: Mapping[TopicPartition, int],
    *,
    seconds: float = REQUEST_SECONDS,
    committed: bool = True,
) -> dict[TopicPartition, datetime]:
    """The timestamp of the first message at or after each position; absent if none came within ``seconds``."""
    found = source.around(positions, seconds=seconds, committed=committed)
    return {tp: at.next_at for tp, at in found.items() if at.next_at is not None}
