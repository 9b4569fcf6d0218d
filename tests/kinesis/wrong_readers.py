"""Readers of shards with one mistake each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.kinesis.reader import ShardStart, read_shards


def beginning_after(shard: TopicPartition, sequence: str) -> Callable[..., DataFrame]:
    """A reader that goes on after a record that nobody has read."""

    def late(start: ShardStart) -> ShardStart:
        mark = replace(start.bookmark, sequence=sequence)
        return replace(start, bookmark=mark) if start.topic_partition == shard else start

    def read(session: Any, access: Any, stream: str, starts: Any, **options: Any) -> DataFrame:
        return read_shards(session, access, stream, [late(start) for start in starts], **options)

    return read


def skipping(sequence: str) -> Callable[..., DataFrame]:
    """A reader that does not give a record, and does not count it."""

    def read(*args: Any, **options: Any) -> DataFrame:
        later = f"IF(partition = 0 AND (stop IS NOT NULL OR sequence_number > '{sequence}'), 1, 0)"
        rows = read_shards(*args, **options).where(f"stop IS NOT NULL OR sequence_number <> '{sequence}'")
        return rows.withColumn("offset", F.expr(f"offset - {later}"))

    return read
