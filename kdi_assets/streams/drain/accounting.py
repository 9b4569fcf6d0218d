"""Accounting: the messages read must be the offsets planned, by two counts that can disagree.

Spark finds the offsets without a message, maybe millions, and a second client confirms them. A drain stops before
offsets that it cannot read or explain, and refuses; ``accept-loss`` gives up exactly these offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from kdi_assets.documents.model.stream import OffsetRange, Stream, TopicPartition
from kdi_assets.messages.coordinates import digest_of, digest_of_columns
from kdi_assets.messages.of_stream import source_of
from kdi_assets.streams.drain.dead_letters import AppendedLetters
from kdi_assets.streams.drain.errors import AccountingMismatch, TimestampTooLarge, UnexplainedGap
from kdi_assets.streams.drain.plan import Plan
from kdi_assets.streams.ledger.entry import RangeCounts
from kdi_assets.streams.rules.tally import Counts
from kdi_assets.streams.rules.verdict import DEAD_LETTER, FILTERED, TOMBSTONE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame


def refuse_large_timestamps(stream: Stream, ranges: Sequence[OffsetRange]) -> None:
    """Refuse messages with timestamps that Spark cannot read; another client finds them in the ranges.

    Raises:
        TimestampTooLarge: It names the first such offset of each topic partition.
        KdiError: The source does not answer.
    """
    if found := source_of(stream).first_unreadable(ranges):
        offsets = tuple(OffsetRange(tp, offset, offset + 1) for tp, offset in sorted(found.items()))
        raise TimestampTooLarge(stream=stream.name, offsets=offsets)


CONFIRM_SECONDS = 60.0
"""How long the second client waits for a message of a gap or its end; a server restarts in less."""
LISTED = 1_000
"""A ledger entry lists at most so many gaps; of more, it has the number and the digest, which prove them."""


@dataclass(frozen=True, slots=True)
class Account:
    """A plan that adds up: every offset of its ranges is a row, a dead letter, a tombstone, filtered or a gap.

    Attributes:
        gaps: All of them, if they are at most ``LISTED``.
        gap_digest: The digest of their offsets, if they are more.
    """

    ranges: tuple[RangeCounts, ...]
    gaps: tuple[OffsetRange, ...] = ()
    gap_digest: int = 0


def account_for(
    plan: Plan,
    stream: Stream,
    counts: Counts,
    *,
    rows_written: int,
    letters: AppendedLetters,
    messages: DataFrame,
) -> Account:
    """Refuse unless the messages read are the offsets planned, and the messages written are those read.

    Args:
        counts: From the pass that wrote the rows.
        rows_written: From the statistics of the files.
        letters: From the write of the dead letters.
        messages: The messages of the plan; read again only if offsets are missing.

    Raises:
        AccountingMismatch: A number or a digest differs, or a second client reads a message that Spark did not read.
        UnexplainedGap: An offset has no message, on a topic where every offset has one.
    """
    for what, written, read in (
        ("rows", rows_written, counts.rows),
        ("dead letters", letters.count, counts.dead_letters),
        ("messages with a verdict", counts.became_rows + sum(counts.not_rows.values()), counts.messages),
    ):
        if written != read:
            raise _mismatch(plan, f"{written:,} {what} against {read:,} that were read")
    if letters.digest != counts.dead_letter_digest:
        raise _mismatch(plan, "the dead letters written are not the messages that became no row")
    gaps = confirmed_gaps(plan, stream, messages) if counts.messages < plan.offset_count else None
    in_gaps, gap_digest = (gaps.offset_count, gaps.digest) if gaps else (0, 0)
    if plan.offset_count - in_gaps != counts.messages:
        raise _mismatch(plan, f"{counts.messages:,} messages read, gaps aside {plan.offset_count:,} offsets planned")
    if (expected := digest_of(plan.ranges) ^ gap_digest) != counts.digest:
        raise _mismatch(plan, f"digest {counts.digest} of the offsets read is not {expected}, that of those planned")
    ranges = tuple(_range_counts(r, counts, gaps) for r in plan.ranges)
    if gaps and len(gaps) > LISTED:
        return Account(ranges, gap_digest=gap_digest)
    return Account(ranges, tuple(gaps.ranges()) if gaps else ())


def _range_counts(r: OffsetRange, counts: Counts, gaps: Gaps | None) -> RangeCounts:
    number = r.topic_partition.partition
    others = (counts.not_rows.get((number, verdict), 0) for verdict in (DEAD_LETTER, TOMBSTONE, FILTERED))
    letters, tombstones, filtered = others
    here = gaps.by_topic_partition.get(r.topic_partition) if gaps else None
    missing = here.offset_count if here else 0
    unlisted = missing if gaps and len(gaps) > LISTED else 0
    # The digest proves that exactly the offsets of the range were read: all others of them became rows.
    became_rows = r.offset_count - letters - tombstones - filtered - missing
    return RangeCounts(r, became_rows, letters, tombstones, missing, filtered, unlisted)


def _mismatch(plan: Plan, detail: str) -> AccountingMismatch:
    return AccountingMismatch(stream=plan.stream, detail=detail, ranges=plan.ranges)


@dataclass(frozen=True)
class Gaps:
    """Ranges of offsets that hold no visible message, in their order.

    Attributes:
        partitions, starts, ends: Columns of the same length; ends are exclusive.
    """

    topic: str
    partitions: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def by_topic_partition(self) -> dict[TopicPartition, Gaps]:
        """The gaps by topic partition."""
        import numpy as np

        found = {}
        for number in np.unique(self.partitions).tolist():
            these = self.partitions == number
            columns = (column[these] for column in (self.partitions, self.starts, self.ends))
            found[TopicPartition(self.topic, number)] = Gaps(self.topic, *columns)
        return found

    @cached_property
    def offset_count(self) -> int:
        """Offsets in all of them."""
        return int((self.ends - self.starts).sum())

    @cached_property
    def digest(self) -> int:
        """``bit_xor(xxhash64(partition, offset))`` of all their offsets."""
        return digest_of_columns(self.partitions, self.starts, self.ends)

    def ranges(self) -> Iterator[OffsetRange]:
        """The gaps one by one; millions would not fit as objects."""
        for number, start, end in zip(self.partitions, self.starts, self.ends, strict=True):
            yield OffsetRange(TopicPartition(self.topic, int(number)), int(start), int(end))


def confirmed_gaps(plan: Plan, stream: Stream, messages: DataFrame) -> Gaps:
    """The offsets of the plan at which neither Spark nor a second client reads a message.

    Raises:
        UnexplainedGap: The topic is neither compacted nor written by transactions.
        AccountingMismatch: The second client reads a message.
        KdiError: The source does not answer it.
    """
    gaps = _missing(messages, plan.ranges)
    each = gaps.by_topic_partition
    source = source_of(stream)
    if each and not source.can_have_gaps(stream.topic):
        raise UnexplainedGap(stream=stream.name, offsets=tuple(next(of.ranges()) for of in each.values()))
    found = source.message_in({tp: of.ranges() for tp, of in each.items()}, seconds=CONFIRM_SECONDS)
    if found:
        seen = f"offset {found[1]} of {found[0]}"
        raise AccountingMismatch(
            stream=plan.stream, detail=f"Spark read no message at {seen}, and a second client does", ranges=plan.ranges
        )
    return gaps


def _missing(messages: DataFrame, ranges: Sequence[OffsetRange]) -> Gaps:
    """The offsets of the ranges without a message, by Spark."""
    import numpy as np
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    # The offsets before and after each range count as read, so that a gap at an edge has two neighbours like any other.
    edges = [(r.topic_partition.partition, edge) for r in ranges for edge in (r.start - 1, r.end)]
    spark = messages.sparkSession
    known = messages.select("partition", "offset").union(spark.createDataFrame(edges, "partition int, offset bigint"))
    before = F.lag("offset").over(Window.partitionBy("partition").orderBy("offset"))
    holes = (
        known.where(F.col("partition").isin([r.topic_partition.partition for r in ranges]))
        .withColumn("before", before)
        .where("offset - before > 1")
        .selectExpr("CAST(partition AS bigint) AS partition", "before + 1 AS start", "offset AS end")
    )
    partitions, starts, ends = (np.asarray(column) for column in holes.toArrow().columns)
    order = np.lexsort((starts, partitions))  # a sort in Spark would read everything again
    return Gaps(ranges[0].topic_partition.topic, partitions[order], starts[order], ends[order])
