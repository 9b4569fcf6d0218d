"""Compare spans with all that their shards still hold, as the second client reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from sys import maxsize
from typing import TYPE_CHECKING

from kdi_assets.ledger.bookmarks import Bookmark
from kdi_assets.ledger.coordinates import bounds_sql
from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.spans import NumberedSpan, bookmark_at
from kdi_assets.runtime.worker_code import send_by_value
from kdi_assets.sources.kinesis import held_records
from kdi_assets.sources.kinesis.client import LATE_MS
from kdi_assets.sources.kinesis.held_records import RECORDS_DDL, HeldReading, Shard
from kdi_assets.sources.kinesis.shards import id_of
from kdi_assets.sources.source import MESSAGES_DDL, OtherReading
from kdi_assets.stream.stream import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG_APPEND_TIME = 1
"""Of Kafka: the timestamp is the server's."""


@contextmanager
def other_reading(
    spark: SparkSession,
    access: Sequence[str],
    ranges: Sequence[OffsetRange],
    spans: Mapping[TopicPartition, Sequence[NumberedSpan]],
    entries: Sequence[LedgerEntry],
) -> Iterator[OtherReading]:
    """The records of whole spans in the ranges; and the spans that differ, and the records in none, as faults.

    Args:
        access: As of ``reader_access``.
        ranges: At least one.
        spans: All of each shard, from that of the range on; of a shard without spans, no record was read.
        entries: Newest first, as far back as they are known.
    """
    from pyspark import StorageLevel

    stream, newest = ranges[0].topic_partition.topic, entries[0].bookmarks
    ended = {tp: () for tp, mark in newest.items() if mark.ended and not entries[0].positions.get(tp)}
    known = {**ended, **spans}
    shards = {tp.partition: _shard(tp, of_shard, newest.get(tp, Bookmark())) for tp, of_shard in known.items()}
    send_by_value(held_records)
    numbers = spark.createDataFrame([(number,) for number in shards], "partition int").repartition(len(shards))
    reading = HeldReading(stream, access, shards)
    rows = numbers.mapInArrow(reading.batches, RECORDS_DDL).persist(StorageLevel.DISK_ONLY)
    try:
        differing = list(_differing(rows, spans, ranges))
        faults = [fault for _, fault in differing] + list(_outside(rows, known, entries))
        wrong = [r for r, _ in differing]
        yield OtherReading(_messages(spark, rows, stream, ranges, wrong), tuple(faults))
    finally:
        rows.unpersist()


def _shard(tp: TopicPartition, spans: Sequence[NumberedSpan], newest: Bookmark) -> Shard:
    edges = [(int(each.span.first), int(each.span.last), each.range.start) for each in spans]
    last = None if newest.ended else int(newest.sequence or -1)
    return Shard(id_of(tp.partition), edges, last, max(newest.arrived, newest.seen_at) + LATE_MS)


def _differing(
    rows: DataFrame, spans: Mapping[TopicPartition, Sequence[NumberedSpan]], ranges: Sequence[OffsetRange]
) -> Iterator[tuple[OffsetRange, str]]:
    """The spans in the ranges whose records are others, and what differs."""
    from pyspark.sql import functions as F

    each = rows.where("span IS NOT NULL").select("partition", "span", "sequence").distinct()
    digest = F.expr("bit_xor(xxhash64(sequence))").alias("digest")
    counted = each.groupBy("partition", "span").agg(F.count("*").alias("records"), digest).collect()
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
    ordered = F.struct(F.length("sequence").alias("length"), F.col("sequence"))
    for tp, begin in sorted(begins.items()):
        outside = rows.where(f"span IS NULL AND partition = {tp.partition}").where(_after(begin))
        records, first = outside.agg(F.count("*"), F.min(ordered)).collect()[0]
        if records:
            yield f"{tp}: no drain read {records:,} records that are there; the first is {first.sequence}"


def _begin(tp: TopicPartition, spans: Sequence[NumberedSpan], entries: Iterable[LedgerEntry]) -> Bookmark:
    """Where the reading of the first span began."""
    found = bookmark_at(entries, tp, spans[0].range.start if spans else 0)
    return found or Bookmark(str(int(spans[0].span.first) - 1) if spans else "", at=maxsize)


def _after(begin: Bookmark) -> str:
    """Spark SQL: whether a record lies after a bookmark."""
    if begin.sequence:
        length = len(begin.sequence)  # up to 129 digits: too long for a number
        return f"length(sequence) > {length} OR (length(sequence) = {length} AND sequence > '{begin.sequence}')"
    return "true" if begin.at is None else f"unix_millis(timestamp) >= {begin.at}"


def _messages(
    spark: SparkSession, rows: DataFrame, stream: str, ranges: Sequence[OffsetRange], wrong: Sequence[OffsetRange]
) -> DataFrame:
    """``MESSAGES_DDL`` of the ranges, without spans whose numbers are wrong."""
    from pyspark.sql import functions as F

    left_out = " OR ".join(f"({bounds_sql({r.topic_partition: r})})" for r in wrong) or "false"
    own = rows.where(bounds_sql({r.topic_partition: r for r in ranges})).where(f"NOT ({left_out})")
    like = spark.createDataFrame([], MESSAGES_DDL)
    headers = F.lit(None).cast(like.schema["headers"].dataType)
    added = {"topic": F.lit(stream), "timestampType": F.lit(LOG_APPEND_TIME), "headers": headers}
    return own.withColumns(added).select(*like.columns)
