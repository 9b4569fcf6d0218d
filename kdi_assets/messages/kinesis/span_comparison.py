"""Compare spans with all that their shards still hold, as the second client reads it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, replace
from typing import TYPE_CHECKING

from kdi_assets.documents.model.source_struct import KINESIS
from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.coordinates import bounds_sql
from kdi_assets.messages.held import OtherReading
from kdi_assets.messages.kinesis import aggregates, held_records
from kdi_assets.messages.kinesis.client import LATE_MS, SeenRecord
from kdi_assets.messages.kinesis.held_records import RECORDS_DDL, SHARDS_DDL, HeldReading, HeldShard
from kdi_assets.messages.kinesis.held_spans import held_of
from kdi_assets.messages.kinesis.shards import id_of
from kdi_assets.messages.kinesis.spans import NumberedSpan, bookmark_at
from kdi_assets.messages.recorded import RecordedEntry
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.messages.source import MESSAGES_DDL
from kdi_assets.runtime.py4j_log import unlogged_by_py4j
from kdi_assets.runtime.worker_code import send_by_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG_APPEND_TIME = 1
"""Of Kafka: the timestamp is the server's."""
_EACH_ONCE = "FILTER (WHERE coalesce(subsequence_number, 0) = 0)"
"""Of the user records of an aggregate, the first: a span's digest, and a fault, count records of Kinesis."""


@contextmanager
def other_reading(
    spark: SparkSession,
    access: Sequence[str],
    ranges: Sequence[OffsetRange],
    bounds: Mapping[TopicPartition, OffsetRange],
    spans: Mapping[TopicPartition, Sequence[NumberedSpan]],
    entries: Sequence[RecordedEntry],
    *,
    listed: Collection[TopicPartition],
    oldest: Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, SeenRecord | None]],
) -> Iterator[OtherReading]:
    """The records of whole spans in ranges; and the spans that differ, and the records in none, as faults.

    Args:
        access: As of ``reader_access``.
        bounds: At least one; the ranges lie within, and all records within are read, also those in no span.
        spans: All of each shard, from that of its bounds on; of a shard without spans, no record was read.
        entries: Newest first, as far back as they are known.
        listed: The shards that Kinesis lists.
        oldest: Finds the oldest records of shards; asked once they have been read.
    """
    own = {tp: [each for each in spans[tp] if each.range.start < r.end] for tp, r in bounds.items() if tp in listed}
    stream = next(iter(bounds)).topic
    begins = {tp: begin for tp, of_shard in own.items() if (begin := _begin(tp, of_shard, entries))}
    shards = [_shard(begin, tp, own[tp], spans[tp], entries[0]) for tp, begin in begins.items()]
    rows = _records(spark, HeldReading(stream, access), shards)
    try:
        found = _found(rows)
        # Retention moves on: what it passed before a task came there was drained, and proves nothing any more.
        first, asked = oldest(list(begins)), {r.topic_partition: r for r in ranges if r.topic_partition in begins}
        held = {r: [s for s in held_of(own[tp], first[tp]) if s.range.end > r.start] for tp, r in asked.items()}
        left = tuple(replace(r, start=max(r.start, of[0].range.start)) for r, of in held.items() if of)
        differing = dict(_differing(found, (each for of_range in held.values() for each in of_range)))
        faults = [*differing.values(), *_outside(rows, begins)]
        yield OtherReading(_messages(spark, stream, rows, left, differing.keys()), left, tuple(faults))
    finally:
        rows.unpersist()


def _is_left_out(tp: TopicPartition, entries: Sequence[RecordedEntry]) -> bool:
    """Whether a shard had ended before this table began, or before its oldest commit that is known.

    Another reader has read it, or may have: nobody knows whose end it was.
    """
    begun = [entry for entry in entries if entry.topic_id == entries[0].topic_id][-1]
    return begun.bookmarks.get(tp, Bookmark()).ended


def _begin(tp: TopicPartition, spans: Sequence[NumberedSpan], entries: Sequence[RecordedEntry]) -> Bookmark | None:
    """After which record the reading of the first span began; ``None``: nothing of the shard is compared."""
    newest = entries[0].bookmarks.get(tp, Bookmark())
    if spans:
        found = bookmark_at(entries, tp, spans[0].range.start)
        return found or Bookmark(str(int(spans[0].span.first) - 1))
    # Of a shard that ended without a record, there must be none.
    is_empty = newest.ended and not entries[0].positions.get(tp) and not _is_left_out(tp, entries)
    return bookmark_at(entries, tp, 0) if is_empty else None


def _shard(
    begin: Bookmark,
    tp: TopicPartition,
    own: Sequence[NumberedSpan],
    spans: Sequence[NumberedSpan],
    entry: RecordedEntry,
) -> HeldShard:
    newest = entry.bookmarks.get(tp, Bookmark())
    last = own[-1].span.last if len(own) < len(spans) else None if newest.ended else newest.sequence
    return HeldShard(
        number=tp.partition,
        id=id_of(tp.partition),
        spans=[(each.span.first, each.span.last, each.range.start) for each in own],
        after=begin.sequence,
        # Retention may have passed the record, and passes others meanwhile: a time is always a place to begin at.
        since=begin.arrived - LATE_MS if begin.sequence and begin.arrived else begin.at,
        last=last,
        until=max(newest.arrived, newest.seen_at) + LATE_MS,
    )


def _records(spark: SparkSession, reading: HeldReading, shards: Sequence[HeldShard]) -> DataFrame:
    """The records of the shards, a task for each; read by the first action and kept on disk until ``unpersist``."""
    from pyspark import StorageLevel

    send_by_value(aggregates, held_records)
    # As rows: what is in the function itself passes a plain file if there is much of it, and the keys are in it.
    numbers = spark.createDataFrame([astuple(shard) for shard in shards], SHARDS_DDL).repartition(max(1, len(shards)))
    with unlogged_by_py4j():
        rows = numbers.mapInArrow(reading.batches, RECORDS_DDL)
    return rows.persist(StorageLevel.DISK_ONLY)


def _found(rows: DataFrame) -> Mapping[tuple[int, int], tuple[int, int]]:
    """How many records were read of each span, and their digest; by shard, and the number of its first record."""
    from pyspark.sql import functions as F

    digest = F.expr(f"bit_xor(xxhash64(sequence_number)) {_EACH_ONCE}").alias("digest")
    in_spans = rows.where("span IS NOT NULL").groupBy("partition", "span")
    counted = in_spans.agg(F.count("*").alias("records"), digest).collect()
    return {(row["partition"], row["span"]): (row["records"], row["digest"]) for row in counted}


def _differing(
    found: Mapping[tuple[int, int], tuple[int, int]], spans: Iterable[NumberedSpan]
) -> Iterator[tuple[OffsetRange, str]]:
    """The spans whose records are others, and what differs."""
    for numbered in spans:
        span, at = numbered.span, numbered.range
        records, digest = found.get((at.topic_partition.partition, at.start), (0, 0))
        if (records, digest) != (span.records, span.digest):
            held = f"{records:,} are" if records != span.records else "others are"
            yield at, f"{at}: v{numbered.version} read {span.records:,} records, and {held} between its first and last"


def _outside(rows: DataFrame, begins: Mapping[TopicPartition, Bookmark]) -> Iterator[str]:
    """The records that no drain read although it read later ones, or the end of the shard; a line for each shard."""
    from pyspark.sql import functions as F

    ordered = F.struct(F.length("sequence_number").alias("length"), F.col("sequence_number"))
    for tp, begin in sorted(begins.items()):
        outside = rows.where(f"span IS NULL AND partition = {tp.partition}").where(_after(begin))
        records, first = outside.agg(F.expr(f"count(*) {_EACH_ONCE}"), F.min(ordered)).collect()[0]
        if records:
            yield f"{tp}: no drain read {records:,} records that are there; the first is {first.sequence_number}"


def _after(begin: Bookmark) -> str:
    """Spark SQL: whether a record lies after a bookmark."""
    if begin.sequence:
        length = len(begin.sequence)  # up to 129 digits: too long for a number
        same = f"length(sequence_number) = {length} AND sequence_number > '{begin.sequence}'"
        return f"length(sequence_number) > {length} OR ({same})"
    return "true" if begin.at is None else f"unix_millis(timestamp) >= {begin.at}"


def _messages(
    spark: SparkSession, stream: str, rows: DataFrame, ranges: Sequence[OffsetRange], wrong: Iterable[OffsetRange]
) -> DataFrame:
    """The messages of the ranges, as ``OtherReading`` has them, without those of spans whose numbers are wrong."""
    from pyspark.sql import functions as F

    left_out = " OR ".join(f"(partition = {r.topic_partition.partition} AND span = {r.start})" for r in wrong)
    own = rows.where(bounds_sql({r.topic_partition: r for r in ranges})).where(f"NOT ({left_out or 'false'})")
    like = spark.createDataFrame([], f"{MESSAGES_DDL}{KINESIS.more_ddl}")
    headers = F.lit(None).cast(like.schema["headers"].dataType)
    added = {"topic": F.lit(stream), "timestampType": F.lit(LOG_APPEND_TIME)}
    return own.withColumns({**added, "headers": headers}).select(*like.columns)
