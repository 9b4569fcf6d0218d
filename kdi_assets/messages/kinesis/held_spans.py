"""Read again what was drained: from offsets to spans, and whole spans from their first records on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from sys import maxsize
from typing import TYPE_CHECKING, Any

from kdi_assets.documents.model.connections.kinesis import KinesisRegion
from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.coordinates import bounds_sql
from kdi_assets.messages.kinesis.client import SeenRecord, milliseconds, reader_access
from kdi_assets.messages.kinesis.errors import SpanForgotten
from kdi_assets.messages.kinesis.look_ahead import of_each, oldest_record
from kdi_assets.messages.kinesis.reader import OF_READING, ROWS_DDL, read_spans
from kdi_assets.messages.kinesis.shards import ListedShard, id_of
from kdi_assets.messages.kinesis.spans import NumberedSpan
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.messages.topic_state import BrokerOffsets, TopicState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class HeldSpans:
    """The spans of shards whose records are all there still.

    Attributes:
        spans: Oldest first; only of shards that Kinesis lists.
        hash_keys: Of these shards, first and last.
    """

    spans: Mapping[TopicPartition, Sequence[NumberedSpan]]
    hash_keys: Mapping[TopicPartition, tuple[int, int]]

    def topic(self, topic: TopicState) -> TopicState:
        """The topic with the offsets that can be read."""
        ends = ((tp, spans[0].range.start, spans[-1].range.end) for tp, spans in self.spans.items() if spans)
        none = dict.fromkeys(topic.partitions, BrokerOffsets(maxsize, maxsize, maxsize))
        return replace(topic, partitions={**none, **{tp: BrokerOffsets(start, end, end) for tp, start, end in ends}})

    def read(self, connection: KinesisRegion, spark: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        """The records of ranges of ``topic``: whole spans are read, to be compared with what was drained.

        Returns:
            As ``Source.read``.
        """
        runs = [run for r in ranges for run in _runs(self.spans[r.topic_partition], r)]
        if not runs:
            return spark.createDataFrame([], ROWS_DDL).drop(*OF_READING)
        stream = ranges[0].topic_partition.topic
        rows = read_spans(spark, reader_access(connection), stream, runs, self.hash_keys)
        return rows.where(bounds_sql({r.topic_partition: r for r in ranges})).drop(*OF_READING)


def held_spans(
    client: Any,
    topic: TopicState,
    shards: Collection[ListedShard],
    spans: Mapping[TopicPartition, Sequence[NumberedSpan]],
    ranges: Sequence[OffsetRange],
    bookmarks: Mapping[TopicPartition, Bookmark],
    *,
    table: str,
) -> HeldSpans:
    """Those of the spans whose first record is not older than the oldest one of its shard.

    Args:
        shards: Those that Kinesis lists.
        spans: Of the ranges, as ``messages.kinesis.spans`` finds them.
        bookmarks: The newest ones.
        table: For the error.

    Raises:
        SpanForgotten: A range begins before the first known span, and its records may be there.
    """
    hash_keys = {TopicPartition(topic.topic, shard.number): shard.hash_keys for shard in shards}
    listed = sorted(spans.keys() & hash_keys.keys())
    oldest = oldest_records(client, topic, listed)
    asked = {r.topic_partition: r for r in ranges}
    for tp in listed:
        record, known, r = oldest[tp], spans[tp], asked[tp]
        # Of records that nobody has read, no number was ever known.
        read_from = int(known[0].span.first) if known else int(bookmarks.get(tp, Bookmark()).sequence or -1) + 1
        is_known = r.start == r.end or bool(known and known[0].range.start <= r.start)
        if record and int(record.sequence) < read_from and not is_known:
            end = known[0].range.start if known else r.end
            raise SpanForgotten(stream=tp.topic, shard=id_of(tp.partition), start=r.start, end=end, table=table)
    return HeldSpans({tp: held_of(spans[tp], oldest[tp]) for tp in listed}, hash_keys)


def oldest_records(
    client: Any, topic: TopicState, shards: Sequence[TopicPartition]
) -> Mapping[TopicPartition, SeenRecord | None]:
    """The oldest record of each shard, if it arrived before the state of the topic was asked for."""
    until = milliseconds(topic.as_of) if topic.as_of else maxsize
    return of_each(shards, lambda tp: oldest_record(client, topic.topic, id_of(tp.partition), until=until))


def held_of(spans: Sequence[NumberedSpan], oldest: SeenRecord | None) -> list[NumberedSpan]:
    """The spans of a shard that still begin there, by its oldest record."""
    return [each for each in spans if oldest and int(each.span.first) >= int(oldest.sequence)]


def _runs(spans: Sequence[NumberedSpan], r: OffsetRange) -> Iterator[list[NumberedSpan]]:
    """The spans that overlap a range, in runs without a hole: an offset that was given up is in no span."""
    run: list[NumberedSpan] = []
    for each in spans:
        if each.range.end <= r.start or each.range.start >= r.end:
            continue
        if run and run[-1].range.end != each.range.start:
            yield run
            run = []
        run.append(each)
    if run:
        yield run
