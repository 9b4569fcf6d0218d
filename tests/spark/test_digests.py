"""Digests by arithmetic are those that Spark answers."""

from __future__ import annotations

from random import Random

from pyspark.sql import SparkSession

from kdi_assets.ledger.digests import digest_of
from kdi_assets.ledger.offsets import DIGEST
from kdi_assets.stream import OffsetRange, TopicPartition


def test_the_digest_of_ranges_is_that_of_the_offsets_in_them(spark: SparkSession) -> None:
    random = Random(7)
    ranges = [OffsetRange(TopicPartition("orders", 3), 0, 1_300_000)]
    starts = [0, 1, 2**31 - 2, 2**40, 2**62, *(random.randrange(2**62) for _ in range(200))]
    ranges += [OffsetRange(TopicPartition("orders", n), at, at + n % 9) for n, at in enumerate(starts, 4)]
    rows = [(r.topic_partition.partition, r.start, r.end) for r in ranges if r.offset_count]

    frame = spark.createDataFrame(rows, "partition int, start bigint, end bigint")
    offsets = frame.selectExpr("partition", "explode(sequence(start, end - 1)) AS offset")
    (answer,) = offsets.selectExpr(f"{DIGEST} AS digest").collect()

    assert digest_of(ranges) == answer["digest"]
    assert digest_of([]) == 0
