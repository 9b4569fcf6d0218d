"""Where messages stood: partition and offset of a table's rows, bounds of offsets, and their digest in Spark SQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kdi_assets.stream.stream import OffsetRange, Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


Bounds = Mapping[TopicPartition, OffsetRange]
"""What an audit is restricted to; topic partitions that are absent are left out."""


DIGEST = "bit_xor(xxhash64(partition, offset))"


def rows_at(spark: SparkSession, stream: Stream, uri: str, *, version: int) -> DataFrame:
    """``coordinates`` of every row of the table at a version."""
    table = spark.read.format("delta").option("versionAsOf", version).load(uri)
    return table.select(*coordinates(table, stream))


def coordinates(table: DataFrame, stream: Stream) -> tuple[Column, ...]:
    """Where the messages of a table's rows stood.

    Returns:
        ``partition: int, offset: bigint, index: int, count: int, timestamp: timestamp``: the last three are the row's
        number among those of its message, how many it has, and the message's time, which tells it from one at the same
        offset of a topic that was made anew. Where a message has one row, 0 and 1.
    """
    from pyspark.sql import functions as F

    path = quoted(stream.coordinates)
    kept = {"partition": "{}.partition", "offset": "{}.offset", "index": "0", "count": "1", "timestamp": "{}.timestamp"}
    if explodes(table, stream):
        # A table may have had rows before its stream exploded.
        kept |= {"index": "coalesce({}.index, 0)", "count": "coalesce({}.count, 1)"}
    return tuple(F.expr(sql.format(path)).alias(column) for column, sql in kept.items())


def quoted(path: str) -> str:
    return ".".join(f"`{step}`" for step in path.split("."))


def explodes(table: DataFrame, stream: Stream) -> bool:
    """Whether the table may have several rows of one message: by its columns, not by the stream's document."""
    return "index" in struct_at(table.schema.jsonValue(), stream.coordinates)[1]


def struct_at(schema: Mapping[str, Any], path: str) -> tuple[Sequence[str], Collection[str]]:
    """A struct's path as the table spells it, and the names of its fields; none where there is no such struct.

    Args:
        schema: Of the table, as JSON.
        path: In any case, as Spark takes it.
    """
    steps: list[str] = []
    for step in path.lower().split("."):
        inner = schema.get("fields", ())
        found = next((f for f in inner if f["name"].lower() == step and isinstance(f["type"], dict)), None)
        if found is None:
            return (), ()
        steps, schema = [*steps, found["name"]], found["type"]
    return steps, [f["name"] for f in schema.get("fields", ())]


def inside(bounds: Bounds, *, struct: str = "") -> str:
    """Spark SQL: whether an offset lies within the bounds.

    Args:
        struct: The path of what holds ``partition`` and ``offset``, if they are no columns.
    """
    at = f"{quoted(struct)}." if struct else ""
    parts = (
        f"({at}partition = {tp.partition} AND {at}offset >= {r.start} AND {at}offset < {r.end})"
        for tp, r in sorted(bounds.items())
    )
    return " OR ".join(parts) or "false"
