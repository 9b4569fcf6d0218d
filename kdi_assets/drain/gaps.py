"""Gaps: offsets without a message, found by Spark and confirmed by a client of our own; there may be millions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from kdi_assets.drain.plan import Plan
from kdi_assets.drain.refusals import AccountingMismatch
from kdi_assets.drain.undrainable import UnexplainedGap
from kdi_assets.ledger.digests import digest_of_columns
from kdi_assets.sources.kafka_config import can_have_gaps
from kdi_assets.sources.kafka_frame import MESSAGE_SECONDS
from kdi_assets.sources.kafka_messages import visible_messages
from kdi_assets.stream import OffsetRange, Stream, TopicPartition

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame


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
        """The gaps of each topic partition that has any."""
        import numpy as np

        found = {}
        for number in np.unique(self.partitions).tolist():
            these = self.partitions == number
            columns = (column[these] for column in (self.partitions, self.starts, self.ends))
            found[TopicPartition(self.topic, number)] = Gaps(self.topic, *columns)
        return found

    @cached_property
    def offset_count(self) -> int:
        """All offsets in them."""
        return int((self.ends - self.starts).sum())

    @cached_property
    def digest(self) -> int:
        """``bit_xor(xxhash64(partition, offset))`` of these."""
        return digest_of_columns(self.partitions, self.starts, self.ends)

    def ranges(self) -> Iterator[OffsetRange]:
        """One by one, made when it is asked for."""
        for number, start, end in zip(self.partitions, self.starts, self.ends, strict=True):
            yield OffsetRange(TopicPartition(self.topic, int(number)), int(start), int(end))


def confirmed_gaps(plan: Plan, stream: Stream, messages: DataFrame) -> Gaps:
    """The offsets of the plan that Spark reads no message at; a second client reads none there either.

    Args:
        messages: The planned ranges.

    Raises:
        UnexplainedGap: The topic is neither compacted nor written by transactions.
        AccountingMismatch: The second client reads a message.
        BrokerUnreachable: It gets no answer.
    """
    gaps = _missing(messages, plan.ranges)
    each = gaps.by_topic_partition
    # That transactions are possible is known of the cluster alone: no client shows control records, or says that there
    # were any once, so nothing tells a marker in a topic from an offset that the brokers lost.
    if each and not can_have_gaps(stream.cluster, stream.topic):
        raise UnexplainedGap(stream=stream.name, offsets=tuple(next(of.ranges()) for of in each.values()))
    ranges = {tp: of.ranges() for tp, of in each.items()}
    for message in visible_messages(stream.cluster, ranges, seconds=MESSAGE_SECONDS):
        seen = f"offset {message.offset()} of {message.topic()}/{message.partition()}"
        raise AccountingMismatch(
            stream=plan.stream, detail=f"Spark read no message at {seen}, and a second client does", ranges=plan.ranges
        )
    return gaps


def _missing(messages: DataFrame, ranges: Sequence[OffsetRange]) -> Gaps:
    """The offsets of the ranges that have no message: found in Spark."""
    import numpy as np
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    # The offset before each range and the one behind it stand in as neighbours, so that an edge is found like a middle.
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
    order = np.lexsort((starts, partitions))  # Spark would read everything once more to sort it
    return Gaps(ranges[0].topic_partition.topic, partitions[order], starts[order], ends[order])
