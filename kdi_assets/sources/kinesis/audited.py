"""Compare spans with all that their shards still hold, as the second client reads it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from sys import maxsize
from typing import TYPE_CHECKING

from kdi_assets.ledger.bookmarks import Bookmark
from kdi_assets.ledger.coordinates import bounds_sql
from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.spans import NumberedSpan, bookmark_at
from kdi_assets.runtime.worker_code import send_by_value
from kdi_assets.sources.kinesis import aggregates, held_records
from kdi_assets.sources.kinesis.client import LATE_MS
from kdi_assets.sources.kinesis.held_records import RECORDS_DDL, HeldReading, HeldShard
from kdi_assets.sources.kinesis.shards import id_of
from kdi_assets.sources.source import MESSAGES_DDL, OtherReading
from kdi_assets.stream.source_struct import KINESIS
from kdi_assets.stream.stream import OffsetRange, TopicPartition

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
    spans: Mapping[TopicPartition, Sequence[NumberedSpan]],
    entries: Sequence[LedgerEntry],
    *,
    listed: Collection[TopicPartition],
) -> Iterator[OtherReading]:
    """The records of whole spans in the ranges; and the spans that differ, and the records in none, as faults.

    Args:
        access: As of ``reader_access``.
        ranges: At least one.
        spans: All of each shard, from that of the range on; of a shard without spans, no record was read.
        entries: Newest first, as far back as they are known.
        listed: The shards that Kinesis lists.
    """
    from pyspark import StorageLevel

    stream, newest = ranges[0].topic_partition.topic, entries[0].bookmarks
    unread = [tp for tp, mark in newest.items() if mark.ended and not entries[0].positions.get(tp)]
    ended = {tp: () for tp in unread if not _is_left_out(tp, entries)}
    known = {tp: of_shard for tp, of_shard in {**ended, **spans}.items() if tp in listed}
    shards = {tp.partition: _shard(tp, of_shard, newest.get(tp, Bookmark())) for tp, of_shard in known.items()}
    send_by_value(aggregates, held_records)
    numbers = spark.createDataFrame([(number,) for number in shards], "partition int").repartition(len(shards))
    reading = HeldReading(stream, access, shards)
    rows = numbers.mapInArrow(reading.batches, RECORDS_DDL).persist(StorageLevel.DISK_ONLY)
    try:
        differing = dict(_differing(rows, spans, ranges))
        faults = [*differing.values(), *_outside(rows, known, entries)]
        yield OtherReading(_messages(spark, rows, ranges, differing.keys()), tuple(faults))
    finally:
        rows.unpersist()


def _is_left_out(tp: TopicPartition, entries: Sequence[LedgerEntry]) -> bool:
    """Whether a shard was ended before this table began: another reader has read it."""
    begun = [entry for entry in entries if entry.topic_id == entries[0].topic_id][-1]
    return begun.kind == "start" and begun.bookmarks.get(tp, Bookmark()).ended


def _shard(tp: TopicPartition, spans: Sequence[NumberedSpan], newest: Bookmark) -> HeldShard:
    edges = [(int(each.span.first), int(each.span.last), each.range.start) for each in spans]
    last = None if newest.ended else int(newest.sequence or -1)
    return HeldShard(id_of(tp.partition), edges, last, max(newest.arrived, newest.seen_at) + LATE_MS)


def _differing(
    rows: DataFrame, spans: Mapping[TopicPartition, Sequence[NumberedSpan]], ranges: Sequence[OffsetRange]
) -> Iterator[tuple[OffsetRange, str]]:
    """The spans in the ranges whose records are others, and what differs."""
    from pyspark.sql import functions as F

    digest = F.expr(f"bit_xor(xxhash64(sequence_number)) {_EACH_ONCE}").alias("digest")
    in_spans = rows.where("span IS NOT NULL").groupBy("partition", "span")
    counted = in_spans.agg(F.count("*").alias("records"), digest).collect()
    found = {(row["partition"], row["span"]): (row["records"], row["digest"]) for row in counted}
    for r in ranges:
        for numbered in spans[r.topic_partition]:
            span, at = numbered.span, numbered.range
            records, digest_found = found.get((at.topic_partition.partition, at.start), (0, 0))
            if at.start < r.end and r.start < at.end and (records, digest_found) != (span.records, span.digest):
                held = f"{records:,} are" if records != span.records else "others are"
                what = f"{at}: v{numbered.version} read {span.records:,} records, and {held} between its first and last"
                yield at, what


def _outside(
    rows: DataFrame, known: Mapping[TopicPartition, Sequence[NumberedSpan]], entries: Sequence[LedgerEntry]
) -> Iterator[str]:
    """The records that no drain read although it read later ones, or the end of the shard; a line for each shard."""
    from pyspark.sql import functions as F

    begins = {tp: _begin(tp, spans, entries) for tp, spans in known.items()}
    ordered = F.struct(F.length("sequence_number").alias("length"), F.col("sequence_number"))
    for tp, begin in sorted(begins.items()):
        outside = rows.where(f"span IS NULL AND partition = {tp.partition}").where(_after(begin))
        records, first = outside.agg(F.expr(f"count(*) {_EACH_ONCE}"), F.min(ordered)).collect()[0]
        if records:
            yield f"{tp}: no drain read {records:,} records that are there; the first is {first.sequence_number}"


def _begin(tp: TopicPartition, spans: Sequence[NumberedSpan], entries: Iterable[LedgerEntry]) -> Bookmark:
    """Where the reading of the first span began."""
    found = bookmark_at(entries, tp, spans[0].range.start if spans else 0)
    return found or Bookmark(str(int(spans[0].span.first) - 1) if spans else "", at=maxsize)


def _after(begin: Bookmark) -> str:
    """Spark SQL: whether a record lies after a bookmark."""
    if begin.sequence:
        length = len(begin.sequence)  # up to 129 digits: too long for a number
        same = f"length(sequence_number) = {length} AND sequence_number > '{begin.sequence}'"
        return f"length(sequence_number) > {length} OR ({same})"
    return "true" if begin.at is None else f"unix_millis(timestamp) >= {begin.at}"


def _messages(
    spark: SparkSession, rows: DataFrame, ranges: Sequence[OffsetRange], wrong: Iterable[OffsetRange]
) -> DataFrame:
    """The messages of the ranges, as ``OtherReading`` has them, without those of spans whose numbers are wrong."""
    from pyspark.sql import functions as F

    left_out = " OR ".join(f"(partition = {r.topic_partition.partition} AND span = {r.start})" for r in wrong)
    own = rows.where(bounds_sql({r.topic_partition: r for r in ranges})).where(f"NOT ({left_out or 'false'})")
    like = spark.createDataFrame([], f"{MESSAGES_DDL}{KINESIS.more_ddl}")
    headers = F.lit(None).cast(like.schema["headers"].dataType)
    added = {"topic": F.lit(ranges[0].topic_partition.topic), "timestampType": F.lit(LOG_APPEND_TIME)}
    return own.withColumns({**added, "headers": headers}).select(*like.columns)
