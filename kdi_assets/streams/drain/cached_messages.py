"""A cache on disk for messages that several steps read."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from kdi_assets.documents.model.stream import OffsetRange
from kdi_assets.messages.coordinates import ranges_sql
from kdi_assets.messages.held import ReadMessages
from kdi_assets.messages.source import Source
from kdi_assets.streams.drain.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def cached_messages(spark: SparkSession, source: Source, plans: Collection[Plan]) -> Iterator[ReadMessages]:
    """The messages of the plans' ranges, cached until the body ends; the first use reads them."""
    union = merged([r for plan in plans for r in plan.ranges])
    with cached(source.read(spark, union)) as messages:
        yield lambda ranges: messages.where(ranges_sql(ranges))


@contextmanager
def cached(frame: DataFrame) -> Iterator[DataFrame]:
    """The frame, cached until the body ends; the first use computes it."""
    from py4j.protocol import Py4JError
    from pyspark import StorageLevel

    # On disk: in memory it is no faster, and takes the memory that the write needs.
    persisted = frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield persisted
    finally:
        with suppress(Py4JError, ConnectionError):  # the JVM has ended, and its cache with it
            persisted.unpersist()


def merged(ranges: Collection[OffsetRange]) -> list[OffsetRange]:
    """The same offsets in the fewest ranges, ordered."""
    union: list[OffsetRange] = []
    for r in sorted(ranges):
        if union and union[-1].topic_partition == r.topic_partition and r.start <= union[-1].end:
            union[-1] = OffsetRange(r.topic_partition, union[-1].start, max(union[-1].end, r.end))
        else:
            union.append(r)
    return union
