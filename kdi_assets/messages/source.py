"""The protocol of a source, and what passes it: everything that is drained comes by these methods.

Who calls them knows no client: neither its objects nor its errors pass, only the frozen classes below and ``KdiError``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from kdi_assets.documents.model.stream import OffsetRange, Stream, TopicPartition
from kdi_assets.documents.model.stream_fields import StartPolicy
from kdi_assets.errors import KdiError
from kdi_assets.messages.held import Again, Held, OtherReading, SetBack
from kdi_assets.messages.recorded import RecordedEntry, RecordedState
from kdi_assets.messages.shard_bookmarks import Bookmark, Loss
from kdi_assets.messages.topic_state import AtPosition, LastRead, Retention, TopicReading, TopicState, Waiting

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


def again_by(source: Source, topic: TopicState) -> Again:
    """As ``Source.again``, of a source whose offsets are enough."""
    return Again(topic, source.read, lambda spark, ranges: nullcontext(_read_once(source, spark, ranges)))


def _read_once(source: Source, spark: SparkSession, ranges: Sequence[OffsetRange]) -> OtherReading:
    return OtherReading(source.read(spark, ranges), tuple(ranges))


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


class Watch(Protocol):
    """Looks again and again at topics; what it keeps between two looks saves requests.

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

    def waiting(self, topic: TopicState, ledger: RecordedState) -> Waiting:
        """What waits after the positions, where the offsets of a topic are not known.

        Args:
            topic: With ``as_of``; messages that arrived later do not count.
        """
        ...

    def losses(self, topic: TopicState, ledger: RecordedState) -> Mapping[TopicPartition, Loss]:
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

    def last_messages(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, LastRead]:
        """The last message of each range; absent if the range's last ``LAST_MESSAGE_WITHIN`` offsets have none."""
        ...

    def sampled_bytes(self, positions: Mapping[TopicPartition, int]) -> float | None:
        """The average bytes of key and value of a few messages from these offsets on; ``None`` if none came in time."""
        ...

    def hold(
        self, session: Callable[[], SparkSession], topic: TopicState, ledger: RecordedState, *, most: int
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

    def again(self, topic: TopicState, ranges: Sequence[OffsetRange], entries: Iterable[RecordedEntry]) -> Again:
        """What of ranges below the positions can be read a second time.

        Args:
            ranges: At most one for each topic partition; a part of them may be gone.
            entries: The live ledger entries, newest first; read only as far back as the source needs them.

        Raises:
            KdiError: Messages are there, and nobody knows which offsets they had.
        """
        ...

    def way_back(self, topic: TopicState, entries: Sequence[RecordedEntry]) -> WayBack | None:
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
