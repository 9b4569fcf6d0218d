"""Capture: read shards through Spark after their bookmarks, and hold the records on disk until a plan of them is done.

Only the reading gives records their numbers, so it comes before the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.coordinates import bounds_sql
from kdi_assets.messages.held import Marks
from kdi_assets.messages.kinesis.client import LATE_MS, digest_of
from kdi_assets.messages.kinesis.consumers import name_of
from kdi_assets.messages.kinesis.errors import ConsumerGone, ConsumerTaken, SeamOpen
from kdi_assets.messages.kinesis.reader import (
    OF_READING,
    ShardStart,
    checked_rows,
    counted_rows,
    read_shards,
    reader_failures,
    rows_on_disk,
)
from kdi_assets.messages.kinesis.shards import id_of
from kdi_assets.messages.shard_bookmarks import Bookmark, Span, after_record, seen_until

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


_RECORDS = "stop IS NULL"


@dataclass(frozen=True, slots=True)
class ShardRead:
    """What was read of a shard: one record or more.

    Attributes:
        range: The numbers of its records; an aggregate has as many as it has user records.
        bookmark: After the last of them.
        resumed: Where the reader began again by itself: the sequence numbers before and after; the second is empty if
            the shard ended without another record.
    """

    start: ShardStart
    range: OffsetRange
    bookmark: Bookmark
    span: Span
    resumed: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Capture:
    """Shards that were read, and their records on disk.

    Attributes:
        rows: As ``checked_rows`` gives them.
    """

    rows: DataFrame
    shards: Mapping[TopicPartition, ShardRead]

    def read(self, ranges: Sequence[OffsetRange]) -> DataFrame:
        """The messages of ranges, and ``wrong_shard boolean``."""
        return self._records(ranges).drop(*OF_READING)

    def marks(self, ranges: Sequence[OffsetRange]) -> Marks:
        """The marks of a plan's ranges: each begins where the reading of its shard began."""
        found = {r.topic_partition: self.shards[r.topic_partition] for r in ranges}
        found |= self._cut([r for r in ranges if r != found[r.topic_partition].range])
        return Marks({tp: r.bookmark for tp, r in found.items()}, {tp: r.span for tp, r in found.items()})

    def edges(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        """As ``Held.edges``: numbers that no aggregate contains."""
        found = {tp: (at, at) for tp, at in offsets.items()}
        reads = {tp: self.shards[tp].range for tp in offsets if tp in self.shards}
        inside = [OffsetRange(tp, at, at + 1) for tp, r in reads.items() if r.start < (at := offsets[tp]) < r.end]
        if not inside:
            return found
        of_aggregates = self._records(inside).where("subsequence_number > 0")
        by_number = {row["partition"]: row for row in of_aggregates.drop("key", "value").collect()}
        for r in inside:
            if row := by_number.get(r.topic_partition.partition):
                begin = r.start - row["subsequence_number"]
                found[r.topic_partition] = (begin, begin + row["user_records"])
        return found

    def _records(self, ranges: Sequence[OffsetRange]) -> DataFrame:
        return self.rows.where(_RECORDS).where(bounds_sql({r.topic_partition: r for r in ranges}))

    def _cut(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, ShardRead]:
        """What was read, as far as these ranges go."""
        if not ranges:
            return {}
        digests = _digests(self._records(ranges))
        lasts = self._records([replace(r, start=r.end - 1) for r in ranges])
        by_number = {row["partition"]: row for row in lasts.withColumn("arrived", _arrived()).collect()}
        found = {}
        for r in ranges:
            read, last = self.shards[r.topic_partition], by_number[r.topic_partition.partition]
            if last["subsequence_number"] is not None and last["subsequence_number"] + 1 < last["user_records"]:
                # The bookmark would be after the aggregate, and its other user records never read.
                detail = f"{r} ends inside the aggregate {last['sequence_number']}"
                raise SeamOpen(stream=r.topic_partition.topic, shard=id_of(r.topic_partition.partition), detail=detail)
            sequence, digest = last["sequence_number"], last["digest"] or digest_of(last["key"], last["value"])
            mark = after_record(read.start.bookmark, sequence=sequence, arrived=last["arrived"], digest=digest)
            span = Span(read.span.first, sequence, r.offset_count, digests[last["partition"]])
            found[r.topic_partition] = replace(read, range=r, bookmark=mark, span=span)
        return found


@contextmanager
def captured(
    spark: SparkSession,
    access: Sequence[str],
    stream: str,
    starts: Sequence[ShardStart],
    *,
    connection: str,
    until: int,
    most: int,
    consumer: str = "",
) -> Iterator[Capture]:
    """Read the shards, and hold their records on disk until the body ends.

    Args:
        access: The arguments of ``kdi.kinesis.Access``.
        connection: Its name.
        until: Records that arrived later are not read, in milliseconds since 1970.
        most: Records of all shards together, at least one of each, and what shares an aggregate with the last of each.
        consumer: As of ``read_shards``.

    Raises:
        ConsumerTaken, ConsumerGone: The consumer reads no longer.
        SeamOpen: The disks do not hold what the reader says it read; later, by ``failure_of``: any more.
        KinesisUnanswered, KinesisRequestRefused: Kinesis does not answer the reader as it should.
    """
    share = max(1, most // len(starts))
    read = read_shards(spark, access, stream, starts, until=until, most=share, consumer=consumer)
    with rows_on_disk(spark, read) as held:
        with reader_failures(connection):
            shards = _shards_read(counted_rows(spark, held), starts, until, consumer)
        ends = {tp.partition: found.range.end for tp, found in shards.items()}
        digests = {tp.partition: found.span.digest for tp, found in shards.items()}
        yield Capture(checked_rows(spark, held, ends, digests), shards)


_REFUSED = {"taken": ConsumerTaken, "gone": ConsumerGone}
"""Not exceptions of the reader: Spark would run its task again, which would take the shard from the other reader."""


def _shards_read(
    counted: DataFrame, starts: Sequence[ShardStart], until: int, consumer: str
) -> dict[TopicPartition, ShardRead]:
    wholes = {row["partition"]: row for row in counted.withColumn("arrived", _arrived()).drop("key", "value").collect()}
    found = {}
    for start in starts:
        tp = start.topic_partition
        whole = wholes[tp.partition]
        if refused := _REFUSED.get(whole["stop"]):
            raise refused(stream=tp.topic, shard=id_of(tp.partition), consumer=name_of(consumer))
        read = OffsetRange(tp, start.position, whole["offset"])
        if (whole["records"], whole["least"]) != (read.offset_count, read.start):
            on_disk = f"{whole['records']}, from {whole['least']} on" if whole["records"] else "none"
            detail = f"the reader says that it read {read}; on disk are {on_disk}"
            raise SeamOpen(stream=tp.topic, shard=id_of(tp.partition), detail=detail)
        last = {"sequence": whole["sequence_number"], "arrived": whole["arrived"], "digest": whole["digest"]}
        mark = after_record(start.bookmark, **last)
        # Before the end of a closed shard was seen, its children may have records of before that nobody read.
        if whole["stop"] == "ended" or (start.is_open and whole["stop"] != "most"):
            mark = seen_until(mark, until - LATE_MS, ended=whole["stop"] == "ended")
        span = Span(whole["first"], whole["sequence_number"], read.offset_count, whole["records_digest"])
        found[tp] = ShardRead(start, read, mark, span, _pairs(whole["resumed"]))
    return found


def _pairs(resumed: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((before, after) for before, after in (each.split(" ") for each in resumed))


def _arrived() -> Column:
    from pyspark.sql import functions as F

    return F.unix_millis("timestamp")  # a collected timestamp is in local time, where an hour may come twice


def _digests(records: DataFrame) -> dict[int, int]:
    """The digest of ``Span``, by the numbers of shards."""
    from pyspark.sql import functions as F

    each_once = "FILTER (WHERE coalesce(subsequence_number, 0) = 0)"  # an even number of user records would cancel out
    digest = F.expr(f"bit_xor(xxhash64(sequence_number)) {each_once}").alias("digest")
    return {row["partition"]: row["digest"] for row in records.groupBy("partition").agg(digest).collect()}
