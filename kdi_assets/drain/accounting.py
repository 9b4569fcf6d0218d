"""Accounting: what was read must be what was planned, counted twice and in ways that can disagree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kdi_assets.drain.counts import Counts
from kdi_assets.drain.dead_letters import Written
from kdi_assets.drain.plan import Plan
from kdi_assets.drain.refusals import AccountingMismatch, UnexplainedGap
from kdi_assets.drain.verdict import DEAD_LETTER, FILTERED, TOMBSTONE
from kdi_assets.ledger.entry import RangeCounts
from kdi_assets.sources.kafka_config import can_have_gaps
from kdi_assets.sources.kafka_messages import next_visible_offset
from kdi_assets.stream import OffsetRange, Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Account:
    """A plan that adds up: every offset of its ranges is a row, a dead letter, a tombstone, filtered or a gap."""

    ranges: tuple[RangeCounts, ...]
    gaps: tuple[OffsetRange, ...]


def account_for(
    spark: SparkSession,
    plan: Plan,
    stream: Stream,
    counts: Counts,
    *,
    rows_written: int,
    letters: Written,
    messages: DataFrame,
) -> Account:
    """Refuse unless the messages read are the offsets planned, and what was written is what was read.

    Args:
        counts: From the pass that wrote the rows.
        rows_written: From the statistics of the files.
        letters: From the write of the dead letters.
        messages: The planned ranges, to look for the offsets that are missing; not read if none is.

    Raises:
        AccountingMismatch: A number or a digest differs.
        UnexplainedGap: An offset without a message where there must be one, or where a second client sees one.
    """
    for what, written, read in (
        ("rows", rows_written, counts.rows),
        ("dead letters", letters.count, counts.dead_letters),
        ("messages with a verdict", counts.became_rows + sum(counts.others.values()), counts.messages),
    ):
        if written != read:
            raise _mismatch(plan, f"{written:,} {what} against {read:,} that were read")
    if letters.digest != counts.dead_letter_digest:
        raise _mismatch(plan, "the dead letters written are not the messages that became no row")
    gaps = _confirmed_gaps(plan, stream, counts, messages)
    visible = [part for r in plan.ranges for part in without(r, gaps)]
    if sum(r.offset_count for r in visible) != counts.messages:
        raise _mismatch(plan, f"{counts.messages:,} messages read, gaps aside {plan.offset_count:,} offsets planned")
    if (expected := digest_of(spark, visible)) != counts.digest:
        raise _mismatch(plan, f"digest {counts.digest} of the offsets read is not {expected}, that of those planned")
    return Account(tuple(_range_counts(r, counts, gaps) for r in plan.ranges), gaps)


def without(planned: OffsetRange, gaps: Sequence[OffsetRange]) -> list[OffsetRange]:
    """What is left of a range when the gaps in it are taken out; never empty ranges."""
    left, start = [], planned.start
    for gap in sorted(g for g in gaps if g.topic_partition == planned.topic_partition):
        if start < gap.start:
            left.append(OffsetRange(planned.topic_partition, start, gap.start))
        start = gap.end
    return [*left, OffsetRange(planned.topic_partition, start, planned.end)] if start < planned.end else left


def digest_of(spark: SparkSession, ranges: Sequence[OffsetRange]) -> int:
    """``bit_xor(xxhash64(partition, offset))`` of every offset in the ranges; 0 of none."""
    from pyspark.sql import functions as F

    if not ranges:
        return 0
    # One job over the numbers 0 … n: each range owns a part of them, shifted to its first offset.
    partition, shift, first = "", "", 0
    for r in ranges:
        first += r.offset_count
        partition += f" WHEN id < {first} THEN {r.topic_partition.partition}"
        shift += f" WHEN id < {first} THEN {r.end - first}L"
    digest = F.expr(f"bit_xor(xxhash64(CASE{partition} END, id + CASE{shift} END))")  # as ``offsets.DIGEST``
    row = spark.range(0, first, 1, min(4, 1 + first // 250_000)).agg(digest.alias("digest")).first()
    return int(row["digest"]) if row else 0


def _confirmed_gaps(plan: Plan, stream: Stream, counts: Counts, messages: DataFrame) -> tuple[OffsetRange, ...]:
    if counts.messages >= plan.offset_count:
        return ()
    gaps = tuple(_missing(messages, plan.ranges))
    if gaps and not can_have_gaps(stream.cluster, stream.topic):
        detail = "the topic is neither compacted nor written by transactions"
        raise UnexplainedGap(stream=stream.name, gap=gaps[0], detail=detail)
    for gap in gaps:
        seen = next_visible_offset(stream.cluster, gap)
        if seen < gap.end:
            raise UnexplainedGap(stream=stream.name, gap=gap, detail=f"a second client reads a message at {seen}")
    return gaps


def _missing(messages: DataFrame, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """The offsets of the ranges that have no message: found in Spark, returned as ranges."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    topic = ranges[0].topic_partition.topic
    # The offset before each range and the one behind it stand in as neighbours, so that an edge is found like a middle.
    edges = [(r.topic_partition.partition, edge) for r in ranges for edge in (r.start - 1, r.end)]
    spark = messages.sparkSession
    known = messages.select("partition", "offset").union(spark.createDataFrame(edges, "partition int, offset bigint"))
    before = F.lag("offset").over(Window.partitionBy("partition").orderBy("offset"))
    holes = (
        known.where(F.col("partition").isin([r.topic_partition.partition for r in ranges]))
        .withColumn("before", before)
        .where("offset - before > 1")
        .orderBy("partition", "offset")
    )
    return [OffsetRange(TopicPartition(topic, h["partition"]), h["before"] + 1, h["offset"]) for h in holes.collect()]


def _range_counts(r: OffsetRange, counts: Counts, gaps: Sequence[OffsetRange]) -> RangeCounts:
    number = r.topic_partition.partition
    others = (counts.others.get((number, verdict), 0) for verdict in (DEAD_LETTER, TOMBSTONE, FILTERED))
    letters, tombstones, filtered = others
    missing = sum(g.offset_count for g in gaps if g.topic_partition == r.topic_partition)
    # The digest has proved that exactly the offsets of the range were read: what is nothing else became rows.
    became_rows = r.offset_count - letters - tombstones - filtered - missing
    return RangeCounts(r, became_rows, letters, tombstones, missing, filtered)


def _mismatch(plan: Plan, detail: str) -> AccountingMismatch:
    return AccountingMismatch(stream=plan.stream, detail=detail, ranges=plan.ranges)
