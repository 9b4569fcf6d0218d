"""The reader on the executors, ``kdi.kinesis``: one task a shard, by AWS's SDK for Java."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kdi_assets.errors import KdiError
from kdi_assets.ledger.bookmarks import Bookmark
from kdi_assets.runtime.py4j_log import unlogged_by_py4j
from kdi_assets.runtime.spark_failures import SparkFailure, translated
from kdi_assets.runtime.spark_internals import frame_of_internal_rows, jvm_context, jvm_frame, jvm_type, jvm_view
from kdi_assets.sources.kinesis.errors import KinesisReaderMissing, KinesisRequestRefused, KinesisUnanswered
from kdi_assets.sources.kinesis.shards import id_of
from kdi_assets.sources.source import MESSAGES_DDL
from kdi_assets.stream.source_struct import KINESIS
from kdi_assets.stream.stream import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_DDL = (
    f"{MESSAGES_DDL}{KINESIS.more_ddl}, stop string, first string, resumed array<string>, digest string, "
    "user_records int, wrong_shard boolean"
)
"""Of ``kdi.kinesis.ShardRecords``: one row a record, or each user record of an aggregate; and one a shard, which alone
has ``stop``."""
_PASSING = (
    "ProvisionedThroughputExceeded",
    "LimitExceeded",
    "ExpiredIterator",
    "KMSThrottling",
    "Throttling",
    "ExpiredToken",
    "ResourceNotFound",
)
"""Errors after which the next drain may succeed. A shard or stream that is gone: it finds out which of the two."""


@dataclass(frozen=True, slots=True)
class ShardStart:
    """Where the reading of a shard begins.

    Attributes:
        position: The number of the first record.
        hash_keys: First and last of the shard, both inclusive.
        horizon: Begin at the oldest record: that of the bookmark is gone.
    """

    topic_partition: TopicPartition
    position: int
    bookmark: Bookmark
    hash_keys: tuple[int, int]
    horizon: bool = False


def read_shards(
    spark: SparkSession,
    access: Sequence[str],
    stream: str,
    starts: Sequence[ShardStart],
    *,
    until: int,
    most: int,
    consumer: str = "",
) -> DataFrame:
    """The records of shards.

    Args:
        access: The arguments of ``kdi.kinesis.Access``.
        until: Records that arrived later are not read, in milliseconds since 1970.
        most: Records of each shard, and those that share an aggregate with the last of them.
        consumer: The ARN of the consumer that subscribes to the shards; without one they are polled.

    Returns:
        ``ROWS_DDL``. Lazy, and another action may read more: the shards grow.

    Raises:
        KinesisReaderMissing: The session's class path does not have the reader.
    """
    from py4j.java_gateway import JavaPackage

    jvm = jvm_view(spark)
    if isinstance(jvm.kdi.kinesis.ShardReader, JavaPackage):  # what py4j takes for a class that is not there
        raise KinesisReaderMissing(stream=stream)
    ranges = jvm.java.util.ArrayList()
    for start in starts:
        mark, number = start.bookmark, start.topic_partition.partition
        at = -1 if mark.at is None else mark.at
        begin = (id_of(number), number, start.position, mark.sequence, start.horizon, at)
        hash_keys = [jvm.java.math.BigInteger(str(key)) for key in start.hash_keys]
        ranges.add(jvm.kdi.kinesis.ShardRange(*begin, until, most, *hash_keys))
    context = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(jvm_context(spark))
    with unlogged_by_py4j():
        keys = jvm.kdi.kinesis.Access(*access)
    rows = jvm.kdi.kinesis.ShardReader.rows(context, ranges, keys, stream, consumer)
    return frame_of_internal_rows(spark, rows, jvm_type(spark, ROWS_DDL))


@contextmanager
def rows_on_disk(spark: SparkSession, rows: DataFrame) -> Iterator[DataFrame]:
    """The same rows, on the executors' disks until the body ends; the first job that uses them reads them."""
    from py4j.protocol import Py4JError

    executed = jvm_frame(rows).queryExecution()
    held = jvm_view(spark).kdi.kinesis.RowsOnDisk(executed.toRdd(), len(rows.columns))
    try:
        yield frame_of_internal_rows(spark, held.rows(), jvm_type(spark, ROWS_DDL))
    finally:
        with suppress(Py4JError, ConnectionError):  # the JVM has ended, and its disk with it
            held.forget()


def reader_failures(connection: str) -> AbstractContextManager[None]:
    """Translate what Kinesis refuses to the reader, as the second client does; other failures pass unchanged.

    Raises:
        KinesisUnanswered: The same may succeed later.
        KinesisRequestRefused: It will not.
    """

    def error_of(failure: SparkFailure) -> KdiError | None:
        if "Service: Kinesis" not in failure.root:  # the SDK's text of an answer that is an error
            return None
        passes = failure.root.startswith(_PASSING) or "Status Code: 5" in failure.root
        return (KinesisUnanswered if passes else KinesisRequestRefused)(connection=connection, detail=failure.root)

    return translated(error_of)
