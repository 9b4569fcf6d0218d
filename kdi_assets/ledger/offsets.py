"""Offsets in Spark: those that lie in the tables, those that entries cover, and where the two differ."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kdi_assets.ledger.coverage import Bounds, Coverage, Piece
from kdi_assets.ledger.log import TableLog
from kdi_assets.stream import OffsetRange, Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BUCKET_BITS = 17
"""Offsets are compared in buckets of 131,072; only in those that differ, one by one."""
DIGEST = "bit_xor(xxhash64(partition, offset))"
_CHUNK = "partition int, start bigint, end bigint, version bigint, bucket bigint"


@dataclass(frozen=True, slots=True)
class Found:
    """What lies in the tables of one topic partition."""

    rows: int
    letters: int
    ghosts: int
    digest: int


def rows_at(spark: SparkSession, stream: Stream, uri: str, *, version: int) -> DataFrame:
    """``partition: int, offset: bigint`` of every row of the table at a version."""
    table = spark.read.format("delta").option("versionAsOf", version).load(uri)
    return table.select(*coordinates(stream))


def coordinates(stream: Stream) -> tuple[Column, Column]:
    """The columns ``partition`` and ``offset`` of the stream's table."""
    from pyspark.sql import functions as F

    steps = ".".join(f"`{step}`" for step in stream.coordinates.split("."))
    return F.expr(f"{steps}.partition").alias("partition"), F.expr(f"{steps}.offset").alias("offset")


def letters_now(spark: SparkSession, uri: str) -> DataFrame:
    """``partition: int, offset: bigint, attempt_id: string`` of every dead letter, whether it counts or not."""
    if TableLog.open(uri) is None:
        return spark.createDataFrame([], "partition int, offset bigint, attempt_id string")
    return spark.read.format("delta").load(uri).select("partition", "offset", "attempt_id")


def highest_offsets(spark: SparkSession, stream: Stream, uri: str) -> dict[TopicPartition, int]:
    """The highest offset in the rows of each topic partition."""
    from pyspark.sql import functions as F

    newest = TableLog.existing(uri).version
    highest = rows_at(spark, stream, uri, version=newest).groupBy("partition").agg(F.max("offset").alias("offset"))
    return {TopicPartition(stream.topic, r["partition"]): r["offset"] for r in highest.collect()}


def inside(bounds: Bounds) -> str:
    """Spark SQL: whether an offset lies within the bounds."""
    parts = (
        f"(partition = {tp.partition} AND offset >= {r.start} AND offset < {r.end})" for tp, r in sorted(bounds.items())
    )
    return " OR ".join(parts) or "false"


def ours(begin: Mapping[TopicPartition, int]) -> str:
    """Spark SQL: whether the ledger can speak of an offset: of a table that had rows before, those behind them."""
    parts = (f"(partition = {tp.partition} AND offset < {at})" for tp, at in sorted(begin.items()))
    return f"NOT ({' OR '.join(parts) or 'false'})"


def count(found: DataFrame) -> dict[int, Found]:
    """Count ``partition, offset, is_row, counts`` by topic partition; the digest is of what counts."""
    from pyspark.sql import functions as F

    counts = found.groupBy("partition").agg(
        F.expr("count_if(is_row)").alias("rows"),
        F.expr("count_if(counts AND NOT is_row)").alias("letters"),
        F.expr("count_if(NOT counts)").alias("ghosts"),
        F.expr("coalesce(bit_xor(CASE WHEN counts THEN xxhash64(partition, offset) END), 0L)").alias("digest"),
    )
    return {r["partition"]: Found(r["rows"], r["letters"], r["ghosts"], r["digest"]) for r in counts.collect()}


def differing(spark: SparkSession, found: DataFrame, coverage: Coverage) -> DataFrame:
    """The offsets that are not there as often as entries cover them.

    Returns:
        ``partition: int, offset: bigint, expected: bigint, present: bigint, version: bigint``; the version is that of
        the newest entry that covers the offset, null where none does.
    """
    from pyspark.sql import functions as F

    chunks, there = list(_chunks(coverage.visible())), found
    if coverage.offsets > 1 << BUCKET_BITS:
        wrong = _differing_buckets(spark, found, chunks)
        # Collected: at one bucket per 131,072 offsets there are some thousands of them for a thousand million.
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


def covering(spark: SparkSession, offsets: DataFrame, drained: Sequence[Piece]) -> DataFrame:
    """Every pair of an offset and an entry that drained it: ``partition, offset, changed_by: bigint``."""
    from pyspark.sql import functions as F

    chunks = _ranges_frame(spark, list(_chunks((p.version, p.range) for p in drained)))
    return (
        _bucketed(offsets.select("partition", "offset"))
        .join(F.broadcast(chunks), ["partition", "bucket"])
        .where("offset >= start AND offset < end")
        .selectExpr("partition", "offset", "version AS changed_by")
    )


def islands(offsets: DataFrame, by: Collection[str], *, limit: int) -> list[dict[str, object]]:
    """Neighbouring offsets with the same values in ``by`` as ranges: the first ``limit`` of them.

    Returns:
        Of each ``partition``, ``start``, ``end`` and the columns of ``by``.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    rank = F.row_number().over(Window.partitionBy("partition", *by).orderBy("offset"))
    found = (
        offsets.select("partition", "offset", *by)
        .withColumn("island", F.col("offset") - rank)
        .groupBy("partition", "island", *by)
        .agg(F.min("offset").alias("start"), (F.max("offset") + 1).alias("end"))
        .orderBy("partition", "start")
        .limit(limit)
    )
    return [row.asDict() for row in found.collect()]


_Chunk = tuple[int, int, int, int, int]


def _differing_buckets(spark: SparkSession, found: DataFrame, chunks: Sequence[_Chunk]) -> set[tuple[int, int]]:
    from pyspark.sql import functions as F

    def summed(offsets: DataFrame, side: str) -> DataFrame:
        sums = F.count("*").alias(f"{side}_count"), F.expr(DIGEST).alias(f"{side}_digest")
        return offsets.groupBy("partition", "bucket").agg(*sums)

    both = summed(_exploded(spark, chunks), "wanted").join(
        summed(_bucketed(found), "found"), ["partition", "bucket"], "full"
    )
    same = "wanted_count <=> found_count AND wanted_digest <=> found_digest"
    return {(r["partition"], r["bucket"]) for r in both.where(f"NOT ({same})").collect()}


def _chunks(ranges: Iterator[tuple[int, OffsetRange]]) -> Iterator[_Chunk]:
    """The ranges, cut where buckets end: no array that Spark makes of one is longer than a bucket."""
    for version, r in ranges:
        for bucket in range(r.start >> BUCKET_BITS, (r.end - 1 >> BUCKET_BITS) + 1):
            start, end = max(r.start, bucket << BUCKET_BITS), min(r.end, bucket + 1 << BUCKET_BITS)
            yield r.topic_partition.partition, start, end, version, bucket


def _exploded(spark: SparkSession, chunks: Sequence[_Chunk]) -> DataFrame:
    from pyspark.sql import functions as F

    offset = F.expr("explode(sequence(start, end - 1))").alias("offset")
    return _ranges_frame(spark, chunks).select("partition", offset, "version", "bucket")


def _ranges_frame(spark: SparkSession, chunks: Sequence[_Chunk]) -> DataFrame:
    return spark.createDataFrame(list(chunks), _CHUNK)


def _bucketed(offsets: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return offsets.withColumn("bucket", F.expr(f"shiftright(offset, {BUCKET_BITS})"))
