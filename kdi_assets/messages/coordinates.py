"""Coordinates of messages, topic partition and offset: of a table's rows, as bounds, and their digest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kdi_assets.delta.files import rows_at
from kdi_assets.documents.model.stream import OffsetRange, Stream, TopicPartition

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame, SparkSession


Bounds = Mapping[TopicPartition, OffsetRange]
"""Offsets by topic partition; a topic partition that is absent has none."""

DIGEST_SQL = "bit_xor(xxhash64(partition, offset))"

FEW_OFFSETS = 10_000
"""Up to so many offsets are hashed one by one: numpy's import takes longer."""
_BITS = (1 << 64) - 1
_CHUNK_OFFSETS = 1 << 20
_SEED = 42
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def coordinates_at(spark: SparkSession, stream: Stream, uri: str, *, version: int) -> DataFrame:
    """``coordinates`` of every row of the table at a version."""
    table = rows_at(spark, uri, version)
    return table.select(*coordinates(table, stream))


def coordinates(table: DataFrame, stream: Stream) -> tuple[Column, ...]:
    """The coordinates of the messages of a table's rows.

    Returns:
        ``partition: int, offset: bigint, index: int, count: int, timestamp: timestamp``. ``index`` is the row's number
        among the rows of its message and ``count`` their number: 0 and 1 for a message with one row. ``timestamp`` is
        the message's time; by it, messages with the same offset of a recreated topic differ. It is null in a table of
        another writer that does not keep it.
    """
    from pyspark.sql import functions as F

    expressions = coordinate_sql(table, stream)
    return tuple(F.expr(expression).alias(column) for column, expression in expressions.items())


def coordinate_sql(table: DataFrame, stream: Stream) -> dict[str, str]:
    """The same as Spark SQL, by column."""
    path, schema = quoted_path(stream.coordinates), table.schema.jsonValue()
    # The digest differs between INT and BIGINT.
    sql = {"partition": "CAST({}.partition AS INT)", "offset": "{}.offset", "index": "0", "count": "1"}
    sql["timestamp"] = "{}.timestamp" if keeps_timestamps(schema, stream) else "CAST(NULL AS TIMESTAMP)"
    if struct_at(schema, stream.coordinates)[1].get("timestamp") == "long":  # in microseconds
        sql["timestamp"] = "timestamp_micros({}.timestamp)"
    if explodes(table, stream):
        # A table may have rows from before its stream exploded.
        sql |= {"index": "coalesce({}.index, 0)", "count": "coalesce({}.count, 1)"}
    return {column: expression.format(path) for column, expression in sql.items()}


def quoted_path(path: str) -> str:
    """The path of a nested column, quoted for Spark SQL."""
    return ".".join("`" + step.replace("`", "``") + "`" for step in path.split("."))


def explodes(table: DataFrame, stream: Stream) -> bool:
    """Whether the table may have several rows per message; its columns say so, not the stream's document."""
    return "index" in struct_at(table.schema.jsonValue(), stream.coordinates)[1]


def keeps_timestamps(schema: Mapping[str, Any], stream: Stream) -> bool:
    """Whether the rows of a table have the timestamps of their messages; those of kafka-delta-ingest may not.

    Args:
        schema: Of the table, as JSON.
    """
    fields = struct_at(schema, stream.coordinates)[1]
    return not fields or "timestamp" in fields


def struct_at(schema: Mapping[str, Any], path: str) -> tuple[Sequence[str], Mapping[str, Any]]:
    """The path of a struct as the table spells it, and the types of its fields by name; both empty if there is none.

    Args:
        schema: Of the table, as JSON.
        path: In any case, as Spark takes it.
    """
    steps: list[str] = []
    for step in path.lower().split("."):
        inner = schema.get("fields", ())
        found = next((f for f in inner if f["name"].lower() == step and isinstance(f["type"], dict)), None)
        if found is None:
            return (), {}
        steps, schema = [*steps, found["name"]], found["type"]
    return steps, {f["name"]: f["type"] for f in schema.get("fields", ())}


def bounds_sql(bounds: Bounds, *, struct: str = "") -> str:
    """Spark SQL: whether an offset lies within the bounds.

    Args:
        struct: The path of the struct that holds ``partition`` and ``offset``; empty if they are columns.
    """
    return ranges_sql((r for _, r in sorted(bounds.items())), struct=struct)


def ranges_sql(ranges: Iterable[OffsetRange], *, struct: str = "") -> str:
    """The same of ranges, of which several may be of one topic partition."""
    at = f"{quoted_path(struct)}." if struct else ""
    parts = (
        f"({at}partition = {r.topic_partition.partition} AND {at}offset >= {r.start} AND {at}offset < {r.end})"
        for r in ranges
    )
    return " OR ".join(parts) or "false"


def digest_of(ranges: Sequence[OffsetRange]) -> int:
    """What ``DIGEST_SQL`` answers for every offset in the ranges, computed without Spark; 0 for none."""
    if sum(r.offset_count for r in ranges) <= FEW_OFFSETS:
        return _digest_of_few(ranges)
    import numpy as np

    columns = zip(*((r.topic_partition.partition, r.start, r.end) for r in ranges), strict=True)
    return digest_of_columns(*(np.array(column, np.int64) for column in columns))


def _digest_of_few(ranges: Sequence[OffsetRange]) -> int:
    """The same as ``digest_of_columns``, without numpy."""
    digest = 0
    for r in ranges:
        mixed = (_SEED + _P5 + 4) ^ (r.topic_partition.partition * _P1 & _BITS)
        seed = _avalanche_one(_rotate_one(mixed, 23) * _P2 + _P3) + _P5 + 8 & _BITS
        for offset in range(r.start, r.end):
            mixed = seed ^ (_rotate_one(offset * _P2 & _BITS, 31) * _P1 & _BITS)
            digest ^= _avalanche_one(_rotate_one(mixed, 27) * _P1 + _P4)
    return digest - (1 << 64) if digest >> 63 else digest  # as a signed number, like Java's


def _rotate_one(number: int, bits: int) -> int:
    return (number << bits | number >> 64 - bits) & _BITS


def _avalanche_one(number: int) -> int:
    number &= _BITS
    number = (number ^ number >> 33) * _P2 & _BITS
    number = (number ^ number >> 29) * _P3 & _BITS
    return number ^ number >> 32


def digest_of_columns(partitions: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> int:
    """``digest_of`` for ranges as columns; it expands a million offsets at a time."""
    import numpy as np

    counts = ends - starts
    upto = np.cumsum(counts)
    digest = np.uint64(0)
    for first in range(0, int(upto[-1]) if len(upto) else 0, _CHUNK_OFFSETS):
        numbers = np.arange(first, min(first + _CHUNK_OFFSETS, int(upto[-1])))
        at = np.searchsorted(upto, numbers, side="right")
        offsets = starts[at] + numbers - (upto - counts)[at]
        digest ^= np.bitwise_xor.reduce(xxhash64(partitions[at], offsets))
    return int(digest.astype(np.int64))


def xxhash64(partitions: NDArray[np.int64], *numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Spark's ``xxhash64(INT, BIGINT, …)``: each hash is the seed of the next one.

    Source: Spark, ``XXH64.hashInt`` and ``XXH64.hashLong``. Unsigned numbers wrap around, as Java's do.
    """
    import numpy as np

    p1, p2, p3, p4 = map(np.uint64, (_P1, _P2, _P3, _P4))
    mixed = np.uint64(_SEED + _P5 + 4) ^ partitions.astype(np.uint64) * p1
    hashed = _avalanche(_rotate_left(mixed, 23) * p2 + p3)
    for each in numbers:
        mixed = hashed + np.uint64(_P5 + 8) ^ _rotate_left(each.astype(np.uint64) * p2, 31) * p1
        hashed = _avalanche(_rotate_left(mixed, 27) * p1 + p4)
    return hashed


def _rotate_left(numbers: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    import numpy as np

    return (numbers << np.uint64(bits)) | (numbers >> np.uint64(64 - bits))


def _avalanche(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    import numpy as np

    numbers = (numbers ^ (numbers >> np.uint64(33))) * np.uint64(_P2)
    numbers = (numbers ^ (numbers >> np.uint64(29))) * np.uint64(_P3)
    return numbers ^ (numbers >> np.uint64(32))
