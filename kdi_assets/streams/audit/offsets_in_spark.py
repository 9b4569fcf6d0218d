"""Offsets in Spark: those in the tables, those that entries cover, and the difference."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import OffsetRange, Stream, TopicPartition
from kdi_assets.messages.coordinates import DIGEST_SQL, coordinates_at
from kdi_assets.streams.audit.coverage import Coverage
from kdi_assets.streams.audit.report import SHOWN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUCKET_BITS = 17
"""Offsets are compared in buckets of 131,072; only in buckets that differ, one by one."""
COUNTS = {
    "became_rows": "count(*) FILTER (WHERE is_row AND index = 0)",
    "rows": "coalesce(sum(CASE WHEN is_row THEN rows END), 0)",
    "expected_rows": "coalesce(sum(CASE WHEN is_row AND index = 0 THEN count END), 0)",
    "letters": "count(*) FILTER (WHERE counts AND NOT is_row)",
    "orphaned": "count(*) FILTER (WHERE NOT counts)",
}
"""The counts of ``OffsetCounts``, in SQL for both Spark and delta-rs."""
_CHUNK = "partition int, start bigint, end bigint, version bigint, bucket bigint"


@dataclass(frozen=True, slots=True)
class OffsetCounts:
    """What the tables hold of one topic partition.

    Attributes:
        became_rows: Messages that are rows.
        rows: Their rows.
        expected_rows: How many rows the messages must have, as the first row of each records it.
        letters: Dead letters that count.
        orphaned: Dead letters that do not count.
        digest: Of the messages that are rows, and of the dead letters that count.
        links: Digest of the links from each row of a message to the next one, and from the last to the first: 0 if each
            row is there as often as the others.
    """

    became_rows: int
    rows: int
    expected_rows: int
    letters: int
    orphaned: int
    digest: int
    links: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether each message has all its rows, and each row once."""
        return self.rows == self.expected_rows and not self.links

    @property
    def has_one_each(self) -> bool:
        """Whether each message has exactly one row."""
        return self.rows == self.expected_rows == self.became_rows


def merge_rows_of_messages(rows: DataFrame) -> DataFrame:
    """Merge the rows of each message into one, repeated as often as the message is there.

    A message that lacks one of its rows is left out. If its rows are there in different numbers, the highest counts.

    Args:
        rows: As ``count_offsets`` takes them.

    Returns:
        The same columns; ``rows`` is the number of the message's rows, and 0 in its repetitions.
    """
    from pyspark.sql import functions as F

    message = ["partition", "offset", "timestamp", "is_row", "counts"]
    by_index = rows.groupBy(*message, "index").agg(F.max("count").alias("count"), F.count("*").alias("n"))
    by_message = by_index.groupBy(*message).agg(
        F.expr("CASE WHEN count(*) >= max(count) THEN max(n) ELSE 0L END").alias("times"), F.expr("sum(n)").alias("n")
    )
    each = by_message.where("times > 0").withColumn("time", F.expr("explode(sequence(1L, times))"))
    return each.selectExpr(*message, "0 AS index", "1 AS count", "CASE WHEN time = 1 THEN n ELSE 0L END AS rows")


def highest_offsets(spark: SparkSession, stream: Stream, uri: str) -> dict[TopicPartition, int]:
    """The highest offset in the rows of each topic partition."""
    from pyspark.sql import functions as F

    newest = TableLog.existing(uri).version
    rows = coordinates_at(spark, stream, uri, version=newest)
    highest = rows.groupBy("partition").agg(F.max("offset").alias("offset"))
    return {TopicPartition(stream.topic, r["partition"]): r["offset"] for r in highest.collect()}


def covered_sql(begin: Mapping[TopicPartition, int]) -> str:
    """Spark SQL: whether the ledger can account for an offset; not for rows from before the first position."""
    parts = (f"(partition = {tp.partition} AND offset < {at})" for tp, at in sorted(begin.items()))
    return f"NOT ({' OR '.join(parts) or 'false'})"


def count_offsets(found: DataFrame) -> dict[int, OffsetCounts]:
    """Count by topic partition.

    Args:
        found: ``coordinates``, ``is_row``, ``counts``, and ``rows``: how many rows of the table this row stands for.
    """
    from pyspark.sql import functions as F

    one = "xxhash64(partition, offset)"
    # A link has two ends: if all rows of a message are there, each end occurs twice and cancels out.
    link = "xxhash64(partition, offset, index) ^ xxhash64(partition, offset, (index + 1) % count)"
    counts = found.groupBy("partition").agg(
        *(F.expr(sql).alias(name) for name, sql in COUNTS.items()),
        F.expr(f"coalesce(bit_xor(CASE WHEN counts AND index = 0 THEN {one} END), 0L)").alias("digest"),
        F.expr(f"coalesce(bit_xor(CASE WHEN count > 1 THEN {link} END), 0L)").alias("links"),
    )
    return {r["partition"]: OffsetCounts(**{f.name: r[f.name] for f in fields(OffsetCounts)}) for r in counts.collect()}


def messages_by_partition(offsets: DataFrame, topic: str) -> tuple[dict[TopicPartition, int], int]:
    """How many offsets of each topic partition, and the digest of all.

    Args:
        offsets: ``partition: int, offset: bigint``, each once.
    """
    from pyspark.sql import functions as F

    groups = offsets.groupBy("partition").agg(F.count("*").alias("n"), F.expr(DIGEST_SQL).alias("digest"))
    counts, digest = {}, 0
    for r in sorted(groups.collect()):
        counts[TopicPartition(topic, r["partition"])] = r["n"]
        digest ^= r["digest"]
    return counts, digest


def differing_offsets(spark: SparkSession, found: DataFrame, coverage: Coverage) -> DataFrame:
    """The offsets that are in the tables more or less often than entries cover them.

    Returns:
        ``partition: int, offset: bigint, expected: bigint, present: bigint, version: bigint``; the version is that of
        the newest entry that covers the offset, null where none does.
    """
    from pyspark.sql import functions as F

    chunks, there = list(_chunks(coverage.visible())), found
    if coverage.offsets > 1 << BUCKET_BITS:
        wrong = _differing_buckets(spark, found, chunks)
        # Collected: a thousand million offsets have only some thousands of buckets.
        buckets = spark.createDataFrame(sorted(wrong), "partition int, bucket bigint")
        there = _bucketed(found).join(F.broadcast(buckets), ["partition", "bucket"], "left_semi")
        chunks = [c for c in chunks if (c[0], c[4]) in wrong]
    wanted = _exploded(spark, chunks)
    both = wanted.selectExpr("partition", "offset", "1L AS n", "version").unionByName(
        there.selectExpr("partition", "offset", "0L AS n", "CAST(NULL AS bigint) AS version")
    )
    return (
        both.groupBy("partition", "offset")
        .agg(
            F.sum("n").alias("expected"),
            F.expr("count(*) - sum(n)").alias("present"),
            F.max("version").alias("version"),
        )
        .where("expected <> present")
    )


def draining_commits(spark: SparkSession, offsets: DataFrame, drained: Iterator[tuple[int, OffsetRange]]) -> DataFrame:
    """Every pair of an offset and a commit that drained it: ``partition, offset, changed_by: bigint``.

    Args:
        drained: Commits with their ranges.
    """
    from pyspark.sql import functions as F

    chunks = spark.createDataFrame(list(_chunks(drained)), _CHUNK)
    return (
        _bucketed(offsets.select("partition", "offset"))
        .join(F.broadcast(chunks), ["partition", "bucket"])
        .where("offset >= start AND offset < end")
        .selectExpr("partition", "offset", "version AS changed_by")
    )


def islands(offsets: DataFrame, by: Collection[str], *, topic: str) -> list[tuple[OffsetRange, Mapping[str, Any]]]:
    """Ranges of consecutive offsets with the same values in ``by``: the first ``SHOWN``, each with these values."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    rank = F.row_number().over(Window.partitionBy("partition", *by).orderBy("offset"))
    found = (
        offsets.select("partition", "offset", *by)
        .withColumn("island", F.col("offset") - rank)
        .groupBy("partition", "island", *by)
        .agg(F.min("offset").alias("start"), (F.max("offset") + 1).alias("end"))
        .orderBy("partition", "start")
        .limit(SHOWN)
    )
    return [
        (
            OffsetRange(TopicPartition(topic, row["partition"]), row["start"], row["end"]),
            {name: row[name] for name in by},
        )
        for row in found.collect()
    ]


_Chunk = tuple[int, int, int, int, int]


def _differing_buckets(spark: SparkSession, found: DataFrame, chunks: Sequence[_Chunk]) -> set[tuple[int, int]]:
    from pyspark.sql import functions as F

    def summed(offsets: DataFrame, side: str) -> DataFrame:
        sums = F.count("*").alias(f"{side}_count"), F.expr(DIGEST_SQL).alias(f"{side}_digest")
        return offsets.groupBy("partition", "bucket").agg(*sums)

    both = summed(_exploded(spark, chunks), "wanted").join(
        summed(_bucketed(found), "found"), ["partition", "bucket"], "full"
    )
    same = "wanted_count <=> found_count AND wanted_digest <=> found_digest"
    return {(r["partition"], r["bucket"]) for r in both.where(f"NOT ({same})").collect()}


def _chunks(ranges: Iterator[tuple[int, OffsetRange]]) -> Iterator[_Chunk]:
    """The ranges, cut where buckets end, so that Spark's arrays of their offsets are at most as long as a bucket."""
    for version, r in ranges:
        for bucket in range(r.start >> BUCKET_BITS, (r.end - 1 >> BUCKET_BITS) + 1):
            start, end = max(r.start, bucket << BUCKET_BITS), min(r.end, bucket + 1 << BUCKET_BITS)
            yield r.topic_partition.partition, start, end, version, bucket


def _exploded(spark: SparkSession, chunks: Sequence[_Chunk]) -> DataFrame:
    from pyspark.sql import functions as F

    offset = F.expr("explode(sequence(start, end - 1))").alias("offset")
    return spark.createDataFrame(list(chunks), _CHUNK).select("partition", offset, "version", "bucket")


def _bucketed(offsets: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return offsets.withColumn("bucket", F.expr(f"shiftright(offset, {BUCKET_BITS})"))
