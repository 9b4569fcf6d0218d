"""The reader on the executors, ``kdi.kinesis``: one task a shard, by AWS's SDK for Java."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kdi_assets.documents.model.source_struct import KINESIS
from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.errors import KdiError
from kdi_assets.messages.kinesis.client import LATE_MS
from kdi_assets.messages.kinesis.errors import (
    KeysExpired,
    KinesisReaderMissing,
    KinesisRequestRefused,
    KinesisUnanswered,
    SeamOpen,
    SpanDiffers,
)
from kdi_assets.messages.kinesis.shards import id_of
from kdi_assets.messages.kinesis.spans import NumberedSpan
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.messages.source import MESSAGES_DDL
from kdi_assets.runtime.py4j_log import unlogged_by_py4j
from kdi_assets.runtime.spark_failures import translated
from kdi_assets.runtime.spark_internals import frame_of_internal_rows, jvm_context, jvm_frame, jvm_type, jvm_view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_DDL = (
    f"{MESSAGES_DDL}{KINESIS.more_ddl}, stop string, first string, resumed array<string>, digest string, "
    "user_records int, wrong_shard boolean"
)
"""Of ``kdi.kinesis.ShardRecords``: one row a record, or each user record of an aggregate; and one a shard, which alone
has ``stop``."""
COUNTED_DDL = f"{ROWS_DDL}, records bigint, least bigint, records_digest bigint"
"""Of ``kdi.kinesis.RecordCount``: the row of each shard that has ``stop``, and of its records on disk the number, the
least of their offsets, and the digest of ``Span``."""
OF_READING = ("stop", "first", "resumed", "digest", "user_records")
"""The columns that messages do not have."""
_OTHER_RECORDS = "SpanDiffers: "
_OTHERS_ON_DISK = "RecordsDiffer: "
_OF_KINESIS = ("Service: Kinesis", "when calling the GetRecords", "when calling the GetShardIterator")
"""In the texts of the SDK and of boto3 about an answer that is an error."""
_PASSING = (
    "ProvisionedThroughputExceeded",
    "LimitExceeded",
    "ExpiredIterator",
    "KMSThrottling",
    "Throttling",
    "ResourceNotFound",
    "ResourceInUse",
    "InvalidArgument",
)
"""Errors after which the next drain may succeed. What is gone, or retention has passed: it finds out."""
_BROKEN = ("Status Code: 5", "InternalFailure")
_EXPIRED = "ExpiredToken"
_OF_BOTO3 = "botocore.exceptions."


@dataclass(frozen=True, slots=True)
class ShardStart:
    """Where the reading of a shard begins.

    Attributes:
        position: The number of the first record.
        hash_keys: First and last of the shard, both inclusive.
        horizon: Begin at the oldest record: that of the bookmark is gone.
        inclusive: Read the record of the bookmark as well.
        is_open: Kinesis lists the shard as open.
    """

    topic_partition: TopicPartition
    position: int
    bookmark: Bookmark
    hash_keys: tuple[int, int]
    horizon: bool = False
    inclusive: bool = False
    is_open: bool = True


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
    jvm = _jvm(spark, stream)
    ranges = jvm.java.util.ArrayList()
    for start in starts:
        ranges.add(_shard_range(jvm, start, until, most))
    rows = jvm.kdi.kinesis.ShardReader.rows(_context(spark), ranges, _access(jvm, access), stream, consumer)
    return frame_of_internal_rows(spark, rows, jvm_type(spark, ROWS_DDL))


def read_spans(
    spark: SparkSession,
    access: Sequence[str],
    stream: str,
    runs: Sequence[Sequence[NumberedSpan]],
    hash_keys: Mapping[TopicPartition, tuple[int, int]],
) -> DataFrame:
    """The records of spans again, with the same numbers.

    A task fails if its records are not those of the spans: ``SpanDiffers`` by ``failure_of``.

    Args:
        runs: Consecutive spans of a shard each, oldest first; one task reads them, by polling.
        hash_keys: Of their shards, first and last.

    Returns:
        ``ROWS_DDL``. Lazy.

    Raises:
        KinesisReaderMissing: As ``read_shards``.
    """
    jvm = _jvm(spark, stream)
    spans = jvm.java.util.ArrayList()
    for run in runs:
        whole = OffsetRange(run[0].range.topic_partition, run[0].range.start, run[-1].range.end)
        tp, first = whole.topic_partition, Bookmark(run[0].span.first)
        start = ShardStart(tp, whole.start, first, hash_keys[tp], inclusive=True)
        ends, digests = _numbers(s.range.end for s in run), _numbers(s.span.digest for s in run)
        until = max(each.until for each in run) + LATE_MS
        spans.add(jvm.kdi.kinesis.Spans(_shard_range(jvm, start, until, whole.offset_count), ends, digests))
    rows = jvm.kdi.kinesis.ShardReader.again(_context(spark), spans, _access(jvm, access), stream)
    return frame_of_internal_rows(spark, rows, jvm_type(spark, ROWS_DDL))


def _numbers(numbers: Iterable[int]) -> str:
    return " ".join(map(str, numbers))


def _jvm(spark: SparkSession, stream: str) -> Any:
    from py4j.java_gateway import JavaPackage

    jvm = jvm_view(spark)
    if isinstance(jvm.kdi.kinesis.ShardReader, JavaPackage):  # what py4j takes for a class that is not there
        raise KinesisReaderMissing(stream=stream)
    return jvm


def _context(spark: SparkSession) -> Any:
    return jvm_view(spark).org.apache.spark.api.java.JavaSparkContext.fromSparkContext(jvm_context(spark))


def _access(jvm: Any, access: Sequence[str]) -> Any:
    with unlogged_by_py4j():
        return jvm.kdi.kinesis.Access(*access)


def _shard_range(jvm: Any, start: ShardStart, until: int, most: int) -> Any:
    mark, number = start.bookmark, start.topic_partition.partition
    begin = (id_of(number), number, start.position, mark.sequence, start.inclusive, start.horizon)
    hash_keys = [jvm.java.math.BigInteger(str(key)) for key in start.hash_keys]
    return jvm.kdi.kinesis.ShardRange(*begin, -1 if mark.at is None else mark.at, until, most, *hash_keys)


@contextmanager
def rows_on_disk(spark: SparkSession, rows: DataFrame) -> Iterator[Any]:
    """Rows of ``read_shards``, on the executors' disks until the body ends: ``kdi.kinesis.RowsOnDisk``.

    The first job that uses them reads them.
    """
    from py4j.protocol import Py4JError

    executed = jvm_frame(rows).queryExecution()
    held = jvm_view(spark).kdi.kinesis.RowsOnDisk(executed.toRdd(), len(rows.columns))
    try:
        yield held
    finally:
        with suppress(Py4JError, ConnectionError):  # the JVM has ended, and its disk with it
            held.forget()


def counted_rows(spark: SparkSession, held: Any) -> DataFrame:
    """What was read of each shard, and what is on disk of it: ``COUNTED_DDL``."""
    return frame_of_internal_rows(spark, held.counted(), jvm_type(spark, COUNTED_DDL))


def checked_rows(spark: SparkSession, held: Any, ends: Mapping[int, int], digests: Mapping[int, int]) -> DataFrame:
    """The rows: ``ROWS_DDL``. A task fails if the records of its shard are others: ``SeamOpen`` by ``failure_of``.

    Spark may have lost rows, and others were read in their place. Their numbers would be the same: they count what is
    read, from wherever the reading begins.

    Args:
        ends: Of each shard the number after its last record; after it there may be more when it is read again.
        digests: Of their records, as of ``Span``.
    """
    rows = held.rows(_numbers(ends), _numbers(ends.values()), _numbers(digests[shard] for shard in ends))
    return frame_of_internal_rows(spark, rows, jvm_type(spark, ROWS_DDL))


def reader_failures(connection: str) -> AbstractContextManager[None]:
    """Translate what Kinesis refuses to the reader, as the second client does; other failures pass unchanged.

    Raises:
        KdiError: As ``failure_of``.
    """
    return translated(lambda failure: failure_of(failure.root, connection))


def failure_of(root: str, connection: str, *, table: str = "") -> KdiError | None:
    """The error of a task that read; ``None`` if Kinesis is not the cause.

    Args:
        root: The text of the root cause.
        table: For the commands of the error; empty: any one of the stream.

    Returns:
        ``KinesisUnanswered``: the same may succeed later; ``KinesisRequestRefused``: it will not; ``SpanDiffers``;
        ``SeamOpen``: Spark lost records that were read.
    """
    if root.startswith(_OTHERS_ON_DISK):
        stream, number = root.removeprefix(_OTHERS_ON_DISK).split(" ")
        detail = "a part of the records on disk was lost, and others were read in their place"
        return SeamOpen(stream=stream, shard=id_of(int(number)), detail=detail)
    if root.startswith(_OTHER_RECORDS):
        stream, shard, start, first, detail = root.removeprefix(_OTHER_RECORDS).split(" ", 4)
        return SpanDiffers(
            stream=stream, shard=shard, start=int(start), first=first, detail=detail, table=table or stream
        )
    if _without_answer(root):
        return KinesisUnanswered(connection=connection, detail=root)
    if not any(text in root for text in _OF_KINESIS):
        return None
    if _EXPIRED in root:
        return KeysExpired(connection=connection, detail=root)
    code = root.removeprefix("KinesisException: ")  # of errors that have no class of their own
    told = code.startswith(_PASSING) or any(f"({passing}" in root for passing in _PASSING)  # by the SDK, by boto3
    passes = told or any(text in root for text in _BROKEN)
    return (KinesisUnanswered if passes else KinesisRequestRefused)(connection=connection, detail=root)


def _without_answer(root: str) -> bool:
    """Whether boto3 got no answer at all: the text names no operation then."""
    if not root.startswith(_OF_BOTO3):
        return False
    from botocore import exceptions

    kind = getattr(exceptions, root.removeprefix(_OF_BOTO3).partition(":")[0], Exception)
    return issubclass(kind, exceptions.ConnectionError | exceptions.HTTPClientError)
