"""Kinesis as a source: a record's offset is its number in this table's reading of its shard, so reading comes first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from sys import maxsize
from typing import TYPE_CHECKING, Any, NoReturn

from kdi_assets.documents.model.connections.kinesis import FanOut, KinesisRegion
from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.documents.model.stream_fields import StartPolicy
from kdi_assets.errors import KdiError
from kdi_assets.messages.held import Again, Held, Marks, OtherReading
from kdi_assets.messages.kinesis.capture import Capture, captured
from kdi_assets.messages.kinesis.checkpoints import at_checkpoints
from kdi_assets.messages.kinesis.client import (
    LATE_MS,
    LOOK_ATTEMPTS,
    SeenRecord,
    kinesis_client,
    milliseconds,
    reader_access,
    server_time,
    translated,
)
from kdi_assets.messages.kinesis.consumers import active_consumer, deregister
from kdi_assets.messages.kinesis.errors import KinesisUnanswered, OffsetsUnknown, SeamOpen, SpanDiffers, SpanTrimmed
from kdi_assets.messages.kinesis.held_spans import held_spans, oldest_records
from kdi_assets.messages.kinesis.look_ahead import (
    LEAST_RETENTION_SECONDS,
    RENEWALS,
    Ahead,
    HeldRecords,
    look_ahead,
    of_each,
    oldest_look,
    oldest_record,
    refuse_hole,
    refuse_other_last,
)
from kdi_assets.messages.kinesis.losses import losses
from kdi_assets.messages.kinesis.reader import ShardStart, failure_of
from kdi_assets.messages.kinesis.shards import ListedShard, bookmarks_of, id_of, list_shards, look_at_ready
from kdi_assets.messages.kinesis.span_comparison import other_reading
from kdi_assets.messages.kinesis.spans import after_losses, spans_of
from kdi_assets.messages.kinesis.watch import KinesisWatch
from kdi_assets.messages.kinesis.way_back import SpansBack
from kdi_assets.messages.recorded import RecordedEntry, RecordedState
from kdi_assets.messages.shard_bookmarks import Bookmark, Loss, seen_until
from kdi_assets.messages.source import LEADER_SECONDS, REQUEST_SECONDS, WayBack
from kdi_assets.messages.topic_state import AtPosition, BrokerOffsets, LastRead, Retention, TopicState, Waiting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = 3600
ALL_HASH_KEYS = (0, (1 << 128) - 1)
UNREAD = BrokerOffsets(0, 0, 0)


@dataclass(frozen=True, slots=True)
class _Look:
    """What follows the bookmarks of a stream.

    Attributes:
        bookmarks: Of all shards.
        ahead: Of the shards that may be read.
        shards: These shards as they are listed.
        seen_at: In milliseconds since 1970; of the shards on which nothing follows, all before was read.
    """

    bookmarks: Mapping[TopicPartition, Bookmark]
    ahead: Mapping[TopicPartition, Ahead]
    shards: Mapping[TopicPartition, ListedShard]
    seen_at: int
    held_seconds: float

    def mark(self, tp: TopicPartition) -> Bookmark:
        """The bookmark of a shard, with the retention of now."""
        return replace(self.bookmarks[tp], held_seconds=self.held_seconds)

    @property
    def seen(self) -> dict[TopicPartition, Bookmark]:
        """New bookmarks of the shards on which nothing follows.

        Not of a closed one whose end was not seen: its children may have records of before that nobody read.
        """
        return {
            tp: seen_until(self.mark(tp), self.seen_at, ended=found.ended)
            for tp, found in self.ahead.items()
            if not found.first and (found.ended or self.shards[tp].is_open)
        }

    @property
    def renewal(self) -> dict[TopicPartition, Bookmark]:
        """The same, if one of them was not seen for a part of the retention, or has ended since; else empty.

        An end is committed at once: if the shard expires before, nobody can tell it from one that was not read.
        """
        due, seen = self.seen_at - 1000 * self.held_seconds / RENEWALS, self.seen
        is_due = any(mark.ended or self.bookmarks[tp].complete_until < due for tp, mark in seen.items())
        return seen if is_due else {}


@dataclass(frozen=True, slots=True)
class KinesisSource:
    """The streams of a connection; the methods are those of ``Source``, and a topic is a stream.

    Attributes:
        fan_out: The consumer that reads a stream; ``None``: its shards are polled.
        table: The table whose commands errors name; empty: any one of the stream.
    """

    connection: KinesisRegion
    fan_out: FanOut | None = None
    table: str = ""

    def topic(self, name: str) -> TopicState:
        return self.described(name)[0]

    def described(self, name: str, *, attempts: int = LOOK_ATTEMPTS) -> tuple[TopicState, list[ListedShard]]:
        """The topic, and its shards."""
        client = kinesis_client(self.connection, attempts=attempts)
        with translated(self.connection, name):
            answer = client.describe_stream_summary(StreamName=name)
            shards = list_shards(client, name)
        if not shards:
            raise self.unanswered(f"the stream {name} has no shard: it is not ACTIVE yet")
        # The server tells whole seconds: of the second that has begun, records may have arrived already.
        as_of = server_time(answer) + timedelta(seconds=1)
        unread = {TopicPartition(name, shard.number): UNREAD for shard in shards}
        identity, kept = _identity(answer["StreamDescriptionSummary"]), Retention(_held(answer).seconds, None)
        return TopicState(name, identity, unread, as_of, kept), shards

    def topics(
        self, names: Collection[str], *, leader_seconds: float = LEADER_SECONDS
    ) -> dict[str, TopicState | KdiError]:
        def look(name: str) -> TopicState | KdiError:
            try:
                return self.topic(name)
            except KdiError as refused:
                return refused

        return of_each(sorted(names), look)

    def topic_id(self, name: str) -> str:
        with translated(self.connection, name):
            answer = kinesis_client(self.connection).describe_stream_summary(StreamName=name)
        return _identity(answer["StreamDescriptionSummary"])

    def offsets_at(self, topic: TopicState, moment: datetime) -> dict[TopicPartition, int]:
        return dict.fromkeys(topic.partitions, 0)  # numbers begin where reading begins: `first_bookmarks` says where

    def first_bookmarks(self, topic: TopicState, start: StartPolicy) -> Mapping[TopicPartition, Bookmark]:
        if topic.as_of is None or topic.retention is None or topic.retention.seconds is None:
            raise AssertionError(f"{topic.topic} is not a topic of this source")
        now = topic.as_of - timedelta(seconds=1)
        held = HeldRecords(milliseconds(now), topic.retention.seconds)
        if start == "latest" or (isinstance(start, datetime) and start > now):
            start = now  # Kinesis refuses a time in the future
        # The oldest record; those that retention removes before they can be read are before the start.
        oldest = Bookmark(seen_at=_until(topic) - LATE_MS, held_seconds=held.seconds)
        if isinstance(start, Mapping):
            checkpoints = {str(shard): str(at) for shard, at in start.items()}
            with translated(self.connection, topic.topic):
                return at_checkpoints(kinesis_client(self.connection), topic, checkpoints, oldest)
        if isinstance(start, datetime) and milliseconds(start) >= held.since:
            oldest = Bookmark(at=milliseconds(start), held_seconds=held.seconds)
        return dict.fromkeys(topic.partitions, oldest)

    def bookmarks_at_creation(self, topic: TopicState) -> Mapping[TopicPartition, Bookmark]:
        # A stream is created with the shortest retention; a longer one that it has now brings nothing back.
        _, _, created = topic.topic_id.rpartition("@")
        mark = Bookmark(seen_at=int(created), held_seconds=LEAST_RETENTION_SECONDS)
        return dict.fromkeys(topic.partitions, mark)

    def waiting(self, topic: TopicState, ledger: RecordedState) -> Waiting:
        look = self._look(topic, ledger)
        arrived = {tp: found.first.arrived for tp, found in look.ahead.items() if found.first}
        first_at = {tp: datetime.fromtimestamp(at / 1000, UTC) for tp, at in arrived.items()}
        return Waiting(first_at, renews=None if first_at else oldest_look(look.bookmarks[tp] for tp in look.renewal))

    def losses(self, topic: TopicState, ledger: RecordedState) -> Mapping[TopicPartition, Loss]:
        client = kinesis_client(self.connection)
        with translated(self.connection, topic.topic):
            held = _held(client.describe_stream_summary(StreamName=topic.topic))
            return losses(client, topic, ledger, until=_until(topic), held=held, table=self.table or topic.topic)

    def watch(self) -> KinesisWatch:
        return KinesisWatch(self.connection, self.described)

    def around(
        self,
        positions: Mapping[TopicPartition, int],
        *,
        before: Mapping[TopicPartition, LastRead] | None = None,
        seconds: float = REQUEST_SECONDS,
        committed: bool = True,
    ) -> dict[TopicPartition, AtPosition]:
        return {}  # numbers do not say where a record is; `hold` has looked at the bookmark

    def last_messages(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, LastRead]:
        return {}  # the bookmark has the fingerprint

    def sampled_bytes(self, positions: Mapping[TopicPartition, int]) -> float | None:
        return None

    @contextmanager
    def hold(
        self, session: Callable[[], SparkSession], topic: TopicState, ledger: RecordedState, *, most: int
    ) -> Iterator[Held]:
        client, name, look = kinesis_client(self.connection), topic.topic, self._look(topic, ledger)
        starts = [
            ShardStart(
                tp,
                ledger.positions.get(tp, 0),
                look.mark(tp),
                look.shards[tp].hash_keys,
                found.horizon,
                is_open=look.shards[tp].is_open,
            )
            for tp, found in sorted(look.ahead.items())
            if found.first
        ]
        nothing = topic.without_backlog(ledger.positions)
        consumer = self._consumer(topic, reads=bool(starts))
        if not starts:
            yield Held(nothing, renewal=look.renewal)
            return
        options: dict[str, Any] = {"until": _until(topic), "most": most, "consumer": consumer}
        access, of_connection = reader_access(self.connection), self.connection.name
        with captured(session(), access, name, starts, connection=of_connection, **options) as capture:
            with translated(self.connection, name):
                _refuse_open_seams(client, capture, look.ahead)
            ends = {tp: BrokerOffsets(r.range.start, r.range.end, r.range.end) for tp, r in capture.shards.items()}

            def marks(ranges: Sequence[OffsetRange]) -> Marks:
                of_ranges = capture.marks(ranges)
                return replace(of_ranges, bookmarks={**look.seen, **of_ranges.bookmarks})

            found = replace(nothing, partitions={**nothing.partitions, **ends})
            yield Held(found, capture.read, marks, edges=capture.edges)

    def read(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> NoReturn:
        raise OffsetsUnknown(stream=self.table or ranges[0].topic_partition.topic)

    def again(self, topic: TopicState, ranges: Sequence[OffsetRange], entries: Iterable[RecordedEntry]) -> Again:
        client, known, name = kinesis_client(self.connection), tuple(entries), topic.topic
        spans, bookmarks = spans_of(known, ranges), known[0].bookmarks if known else {}
        left = [after_losses(known, r) for r in ranges]
        with translated(self.connection, name):
            summary = client.describe_stream_summary(StreamName=name)
            shards = _shards(client, name, summary)
            held = held_spans(client, topic, shards, spans, left, bookmarks, table=self.table or name)

        def oldest(shards: Sequence[TopicPartition]) -> Mapping[TopicPartition, SeenRecord | None]:
            with translated(self.connection, name):
                return oldest_records(client, topic, shards)

        bounds, listed = {r.topic_partition: r for r in ranges}, held.hash_keys.keys()

        def audited(spark: SparkSession, ranges: Sequence[OffsetRange]) -> AbstractContextManager[OtherReading]:
            access = reader_access(self.connection)
            return other_reading(spark, access, ranges, bounds, spans, known, listed=listed, oldest=oldest)

        return Again(held.topic(topic), partial(held.read, self.connection), audited)

    def way_back(self, topic: TopicState, entries: Sequence[RecordedEntry]) -> WayBack:
        client = kinesis_client(self.connection)
        with translated(self.connection, topic.topic):
            summary = client.describe_stream_summary(StreamName=topic.topic)
            shards = _shards(client, topic.topic, summary)
        return SpansBack(self.connection, client, topic, shards, _held(summary), entries, self.table)

    def failure(self, root: str) -> KdiError | None:
        found = failure_of(root, self.connection.name, table=self.table)
        if not isinstance(found, SpanDiffers):
            return found
        client = kinesis_client(self.connection)
        with translated(self.connection, found.stream):
            oldest = oldest_record(client, found.stream, found.shard, until=maxsize)
        if oldest and int(oldest.sequence) <= int(found.first):
            return found
        return SpanTrimmed(stream=found.stream, shard=found.shard, start=found.start)

    def can_have_gaps(self, topic: str) -> bool:
        return False  # the reading counts the records that it gets

    def message_in(
        self, ranges: Mapping[TopicPartition, Iterable[OffsetRange]], *, seconds: float = REQUEST_SECONDS
    ) -> tuple[TopicPartition, int] | None:
        return None  # a number that no record has is not a place in a shard

    def first_unreadable(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, int]:
        return {}

    def retention(self, names: Collection[str]) -> dict[str, Retention]:
        client, found = kinesis_client(self.connection), dict[str, Retention]()
        for name in names:
            with translated(self.connection, name):
                found[name] = Retention(_held(client.describe_stream_summary(StreamName=name)).seconds, None)
        return found

    def unanswered(self, detail: str) -> KdiError:
        return KinesisUnanswered(connection=self.connection.name, detail=detail)

    def _consumer(self, topic: TopicState, *, reads: bool) -> str:
        """The ARN of the consumer that reads; empty without one. If nothing is left to read, it may be deregistered."""
        arn, _, _ = topic.topic_id.rpartition("@")
        if self.fan_out and reads:
            return active_consumer(self.connection, arn, self.fan_out, table=self.table)
        if self.fan_out and self.fan_out.deregisters:
            deregister(self.connection, arn, self.fan_out.consumer)
        return ""

    def _look(self, topic: TopicState, ledger: RecordedState) -> _Look:
        client = kinesis_client(self.connection)

        def look(tp: TopicPartition) -> Ahead:
            at = client, topic.topic, id_of(tp.partition), bookmarks[tp]
            is_open = shards[tp].is_open
            return look_ahead(*at, until=_until(topic), held=held, table=self.table, is_open=is_open)

        with translated(self.connection, topic.topic):
            summary = client.describe_stream_summary(StreamName=topic.topic)
            held = _held(summary)
            listed = {TopicPartition(topic.topic, s.number): s for s in _shards(client, topic.topic, summary)}
            shards = {tp: shard for tp, shard in listed.items() if tp in topic.partitions}
            bookmarks = bookmarks_of(ledger, topic, shards, table=self.table or topic.topic)
            ahead = look_at_ready(topic, shards.values(), bookmarks, look)
        looked_at = {tp: shards[tp] for tp in ahead}
        return _Look(bookmarks, ahead, looked_at, _until(topic) - LATE_MS, held.seconds)


def _shards(client: Any, stream: str, summary: Mapping[str, Any]) -> list[ListedShard]:
    """The shards that Kinesis lists, with the hash keys that a record in them may have."""
    shards = list_shards(client, stream)
    if summary["StreamDescriptionSummary"].get("RecordDistributionStrategy") == "AUTO":  # keys do not choose the shard
        return [replace(shard, hash_keys=ALL_HASH_KEYS) for shard in shards]
    return shards


def _held(summary: Mapping[str, Any]) -> HeldRecords:
    hours = summary["StreamDescriptionSummary"]["RetentionPeriodHours"]
    return HeldRecords(milliseconds(server_time(summary)), float(HOUR * hours))


def _identity(summary: Mapping[str, Any]) -> str:
    """A stream that is deleted and created again has the same ARN."""
    return f"{summary['StreamARN']}@{milliseconds(summary['StreamCreationTimestamp'])}"


def _until(topic: TopicState) -> int:
    """The arrival of the last record that counts, in milliseconds since 1970."""
    return milliseconds(topic.as_of) if topic.as_of else 0


def _refuse_open_seams(client: Any, capture: Capture, ahead: Mapping[TopicPartition, Ahead]) -> None:
    """Refuse unless the second client sees edges, ends and new beginnings of each shard as the reader does."""

    def refuse(tp: TopicPartition) -> None:
        read, first, shard = capture.shards[tp], ahead[tp].first, id_of(tp.partition)
        if first is None or read.span.first != first.sequence:
            detail = f"the second client sees {first}, the first record read is {read.span.first}"
            raise SeamOpen(stream=tp.topic, shard=shard, detail=detail)
        refuse_other_last(client, tp.topic, shard, read.bookmark)
        # What is after a wrong end would never be read: a shard is not looked at again once it has ended.
        end = [(read.bookmark.sequence, "")] if read.bookmark.ended else []
        for before, after in dict.fromkeys((*read.resumed, *end)):
            refuse_hole(client, tp.topic, shard, before, after)

    of_each(sorted(capture.shards), refuse)
