"""A source in memory: what a source is, without a server; a stream reads from it if its connection is ``Memory``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from kdi_assets.documents.model.stream import Cluster, OffsetRange, TopicPartition
from kdi_assets.documents.model.stream_fields import StartPolicy
from kdi_assets.errors import KdiError, Transient
from kdi_assets.messages.held import Again, Held
from kdi_assets.messages.of_stream import source_at
from kdi_assets.messages.recorded import RecordedEntry, RecordedState
from kdi_assets.messages.shard_bookmarks import Bookmark, Loss
from kdi_assets.messages.source import MESSAGES_DDL, Source, again_by
from kdi_assets.messages.topic_state import AtPosition, BrokerOffsets, LastRead, Retention, TopicState, Waiting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class MemoryUnanswered(Transient):
    """The source in memory does not answer."""

    detail: str
    what_happened = "the memory does not answer: {detail}."
    what_is_safe = "everything."
    what_to_run = "the same test"


@dataclass(frozen=True)
class MemoryMessage:
    """A message, at an offset that its topic partition knows."""

    value: str
    at: datetime


@dataclass
class MemorySource:
    """One topic; its methods are those of ``Source``.

    Attributes:
        log: By topic partition the messages by their offsets; an offset below ``end`` without a message is a gap.
        earliest, ends: By topic partition; by default 0, and the offset after the last message.
        gaps_are_normal: As of a topic that is compacted.
        reads_ahead: Hold the messages of a plan before it is made, as a source does that knows no offsets before: the
            ends of its topic are those that it held last.
        skipped: Offsets that ``read`` leaves out, as no source should.
        seconds_kept: Its retention.
        silent: No topic partition answers what is at its position.
        reads: How often ``read`` was called.
        holds: How many plans it holds messages for.
    """

    log: dict[TopicPartition, dict[int, MemoryMessage]]
    earliest: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    topic_name: str = "orders"
    id: str = "topic"
    gaps_are_normal: bool = False
    reads_ahead: bool = False
    skipped: frozenset[int] = frozenset()
    seconds_kept: float | None = None
    silent: bool = False
    reads: int = 0
    holds: int = 0
    held_ends: dict[TopicPartition, int] = field(default_factory=dict)

    def topic(self, name: str) -> TopicState:
        held = {}
        for tp, messages in self.log.items():
            earliest, end = self.earliest.get(tp, 0), self.ends.get(tp, max(messages, default=-1) + 1)
            end = self.held_ends.get(tp, earliest) if self.reads_ahead else end
            held[tp] = BrokerOffsets(earliest, end, end)
        return TopicState(name, self.id, held)

    def topics(self, names: Collection[str], *, leader_seconds: float = 0.0) -> dict[str, TopicState | KdiError]:
        return {name: self.topic(name) for name in names}

    def topic_id(self, name: str) -> str:
        return self.id

    def offsets_at(self, topic: TopicState, moment: datetime) -> dict[TopicPartition, int]:
        return {
            tp: next((o for o, m in sorted(self.log[tp].items()) if m.at >= moment), held.end)
            for tp, held in topic.partitions.items()
        }

    def first_bookmarks(self, topic: TopicState, start: StartPolicy) -> Mapping[TopicPartition, Bookmark]:
        return {}

    def bookmarks_at_creation(self, topic: TopicState) -> Mapping[TopicPartition, Bookmark]:
        return {}

    def waiting(self, topic: TopicState, ledger: RecordedState) -> Waiting:
        return Waiting()

    def losses(self, topic: TopicState, ledger: RecordedState) -> Mapping[TopicPartition, Loss]:
        return {}

    def watch(self) -> None:
        return None

    def around(
        self,
        positions: Mapping[TopicPartition, int],
        *,
        before: Mapping[TopicPartition, LastRead] | None = None,
        seconds: float = 0.0,
        committed: bool = True,
    ) -> dict[TopicPartition, AtPosition]:
        last = {tp: self._last_read(tp, m.offset) for tp, m in (before or {}).items() if m.offset in self.log[tp]}
        following = {
            tp: next((m.at for o, m in sorted(self.log[tp].items()) if o >= at), None) for tp, at in positions.items()
        }
        return {} if self.silent else {tp: AtPosition(last.get(tp), following[tp]) for tp in positions}

    def last_messages(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, LastRead]:
        offsets = {r.topic_partition: max(self._offsets_in(r), default=None) for r in ranges}
        return {tp: self._last_read(tp, o) for tp, o in offsets.items() if o is not None}

    def sampled_bytes(self, positions: Mapping[TopicPartition, int]) -> float | None:
        sizes = [len(m.value) for tp, at in positions.items() for o, m in self.log[tp].items() if o >= at]
        return sum(sizes) / len(sizes) if sizes else None

    @contextmanager
    def hold(
        self, session: Callable[[], SparkSession], topic: TopicState, ledger: RecordedState, *, most: int
    ) -> Iterator[Held]:
        copied = replace(self, log={tp: dict(messages) for tp, messages in self.log.items()}, reads_ahead=False)
        ahead = Held(copied.topic(topic.topic), lambda ranges: copied.read(session(), ranges))
        self.held_ends = {tp: offsets.end for tp, offsets in ahead.topic.partitions.items()}
        self.holds += 1
        try:
            yield ahead if self.reads_ahead else Held(topic)
        finally:
            self.holds -= 1

    def read(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        self.reads += 1
        rows = [
            (None, message.value.encode(), self.topic_name, r.topic_partition.partition, offset, message.at, 0, None)
            for r in ranges
            for offset in sorted(self._offsets_in(r) - self.skipped)
            for message in [self.log[r.topic_partition][offset]]
        ]
        return spark.createDataFrame(rows, MESSAGES_DDL)

    def again(self, topic: TopicState, ranges: Sequence[OffsetRange], entries: Iterable[RecordedEntry]) -> Again:
        return again_by(self, topic)

    def way_back(self, topic: TopicState, entries: Sequence[RecordedEntry]) -> None:
        return None

    def failure(self, root: str) -> None:
        return None

    def can_have_gaps(self, topic: str) -> bool:
        return self.gaps_are_normal

    def message_in(
        self, ranges: Mapping[TopicPartition, Iterable[OffsetRange]], *, seconds: float = 0.0
    ) -> tuple[TopicPartition, int] | None:
        return next(((tp, o) for tp, some in ranges.items() for r in some for o in self._offsets_in(r)), None)

    def first_unreadable(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, int]:
        return {}

    def retention(self, names: Collection[str]) -> dict[str, Retention]:
        return {name: Retention(self.seconds_kept, None) for name in names}

    def unanswered(self, detail: str) -> KdiError:
        return MemoryUnanswered(detail=detail)

    def _offsets_in(self, r: OffsetRange) -> set[int]:
        return {offset for offset in self.log[r.topic_partition] if r.start <= offset < r.end}

    def _last_read(self, tp: TopicPartition, offset: int) -> LastRead:
        message = self.log[tp][offset]
        return LastRead(offset, int(message.at.timestamp() * 1000), message.value)


@dataclass(frozen=True)
class Memory(Cluster):
    """The connection of a document that reads from memory."""

    source: MemorySource = field(default_factory=lambda: MemorySource({}), compare=False)


@source_at.register
def _memory(connection: Memory) -> Source:
    return connection.source
