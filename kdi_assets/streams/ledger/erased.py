"""Messages that were erased or are kept no longer: their offsets, in ``<table>_erased``. Nothing else is kept there.

Like dead letters, offsets are written before the commit, with its attempt id; they count only if an entry has that id.
An erasure writes single offsets. An expiry writes ranges: whole days of messages leave every day.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kdi_assets.delta.files import rows_at
from kdi_assets.delta.log import TableLog
from kdi_assets.delta.storage import storage_failures
from kdi_assets.delta.transaction import CHECKPOINT_INTERVAL
from kdi_assets.streams.ledger.archive import open_archive
from kdi_assets.streams.ledger.entry import LedgerEntry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AT = ["partition", "offset"]
_RANGES_DDL = (
    "partition int, start bigint, end bigint, topic_id string, erased_by bigint, is_letter boolean, bucket bigint"
)
_BUCKET = "shiftright(offset, 17)"
"""No range reaches over a multiple of 131,072: Spark's arrays of its offsets are short, and joins have an equal key."""


def append_erased(rows: DataFrame, letters: DataFrame, uri: str, *, topic_id: str, attempt_id: str) -> None:
    """Write the offsets of messages that are about to be erased; the arguments are those of ``append_expired``."""
    _append(_marked(rows, letters, topic_id), uri, attempt_id=attempt_id)


def append_expired(rows: DataFrame, letters: DataFrame, uri: str, *, topic_id: str, attempt_id: str) -> None:
    """Write the offsets of messages that are about to leave, as ranges ``[offset, until)``.

    Args:
        rows: The messages that are rows: ``partition: int, offset: bigint``.
        letters: All dead letters that leave, also of messages that became rows: the same columns, and ``topic_id``, by
            which they differ from those of a recreated topic with the same offsets.
        topic_id: Of the entry; it says nothing of the rows, which may be of an earlier topic.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    by = ["partition", "topic_id", "is_letter", "bucket"]
    rank = F.row_number().over(Window.partitionBy(*by).orderBy("offset"))
    placed = _marked(rows, letters, topic_id).withColumn("bucket", F.expr(_BUCKET))
    runs = placed.withColumn("run", F.col("offset") - rank).groupBy(*by, "run")
    ranges = runs.agg(F.min("offset").alias("offset"), (F.max("offset") + 1).alias("until"))
    _append(ranges.select(*_AT, "until", "is_letter", "topic_id"), uri, attempt_id=attempt_id)


def _marked(rows: DataFrame, letters: DataFrame, topic_id: str) -> DataFrame:
    from pyspark.sql import functions as F

    of_rows = rows.select(*_AT).distinct().withColumns({"topic_id": F.lit(topic_id), "is_letter": F.lit(False)})
    return of_rows.unionByName(letters.select(*_AT, "topic_id").distinct().withColumn("is_letter", F.lit(True)))


def _append(offsets: DataFrame, uri: str, *, attempt_id: str) -> None:
    from pyspark.sql import functions as F

    write = offsets.withColumn("attempt_id", F.lit(attempt_id)).write.format("delta").mode("append")
    # Offsets of erasures have no end, and those of older releases do not say what was a dead letter.
    write.option("mergeSchema", "true").options(**CHECKPOINT_INTERVAL).save(uri)


def erased_ranges(
    spark: SparkSession, uri: str, entries: Sequence[LedgerEntry], *, undone: Sequence[LedgerEntry] = ()
) -> DataFrame:
    """The offsets that these entries erased, or that they record as kept no longer.

    Args:
        entries: Those without an erasure are ignored.
        undone: Expiries that a RESTORE undid: it brought the rows back, but not their dead letters, which count.

    Returns:
        ``partition: int, start: bigint, end: bigint, topic_id: string, erased_by: bigint, is_letter: boolean,
        bucket: bigint``: ``[start, end)``, and the version of the entry. ``is_letter`` is null of an erasure by an
        older release.
    """
    from pyspark.sql import functions as F

    attempts = [(e.attempt_id, e.version, restored) for e, restored in _with_erasure(entries, undone)]
    log = TableLog.open(uri) if attempts else None
    if log is None:
        return spark.createDataFrame([], _RANGES_DDL)
    committed = spark.createDataFrame(attempts, "attempt_id string, erased_by bigint, restored boolean")
    stored = rows_at(spark, uri, log.version)
    absent = {"until": F.lit(None).cast("bigint"), "is_letter": F.lit(None).cast("boolean")}
    stored = stored.withColumns({name: value for name, value in absent.items() if name not in stored.columns})
    counting = stored.join(F.broadcast(committed), "attempt_id").where("is_letter OR NOT restored")
    ranges = ("offset AS start", "coalesce(until, offset + 1) AS end")
    return counting.selectExpr("partition", *ranges, "topic_id", "erased_by", "is_letter", f"{_BUCKET} AS bucket")


def _with_erasure(entries: Sequence[LedgerEntry], undone: Sequence[LedgerEntry]) -> list[tuple[LedgerEntry, bool]]:
    return [(e, False) for e in entries if e.erasure] + [(e, True) for e in undone if e.erasure]


def erased_offsets(
    spark: SparkSession, uri: str, entries: Sequence[LedgerEntry], *, undone: Sequence[LedgerEntry] = ()
) -> DataFrame:
    """The same offsets, one by one.

    Returns:
        ``partition: int, offset: bigint, topic_id: string, erased_by: bigint, is_letter: boolean``: the version of the
        newest entry, and whether it is known that a dead letter was there.
    """
    from pyspark.sql import functions as F

    ranges = erased_ranges(spark, uri, entries, undone=undone)
    columns = ("topic_id", "erased_by", "coalesce(is_letter, false) AS is_letter")
    offsets = ranges.selectExpr("partition", "explode(sequence(start, end - 1)) AS offset", *columns)
    newest = F.max("erased_by").alias("erased_by"), F.max("is_letter").alias("is_letter")
    return offsets.groupBy(*_AT, "topic_id").agg(*newest)


def with_erasing_commit(
    spark: SparkSession,
    uri: str,
    offsets: DataFrame,
    entries: Sequence[LedgerEntry],
    *,
    undone: Sequence[LedgerEntry] = (),
) -> DataFrame:
    """Add the commit that erased each offset after it was drained as ``erased_by: bigint``; null for others.

    Args:
        offsets: With ``partition: int, offset: bigint``, and ``version``, the commit that drained it.
        undone: As in ``erased_ranges``.
    """
    from pyspark.sql import functions as F

    if not _with_erasure(entries, undone):
        return offsets.withColumn("erased_by", F.lit(None).cast("bigint"))
    erased = erased_offsets(spark, uri, entries, undone=undone)
    erased = erased.groupBy(*_AT).agg(F.max("erased_by").alias("erased_by"))
    later = F.expr("CASE WHEN version IS NULL OR erased_by > version THEN erased_by END")
    return offsets.join(erased, _AT, "left").withColumn("erased_by", later)


def with_erasing_commits(
    spark: SparkSession,
    uri: str,
    missing: DataFrame,
    entries: Sequence[LedgerEntry],
    *,
    undone: Sequence[LedgerEntry] = (),
) -> DataFrame:
    """Add the commits that erased the messages that are missing at each offset, one for each, the newest first.

    An offset has a message of each topic that was drained, and each may have left by another commit, or all by one. So
    of the draining commits, the newest one goes with the newest erasing commit, and so on; a message that has none left
    goes with the oldest commit after it was drained.

    Args:
        missing: With ``partition: int, offset: bigint, versions: array<bigint>`` of the commits that drained it, and
            ``n: bigint``, how many of these messages are missing.
        undone: As in ``erased_ranges``.

    Returns:
        ``missing`` with ``erased_by: array<bigint>``, at most ``n`` of them.
    """
    from pyspark.sql import functions as F

    ranges = erased_ranges(spark, uri, entries, undone=undone)
    offsets = ranges.selectExpr("partition", "explode(sequence(start, end - 1)) AS offset", "erased_by")
    commits = offsets.groupBy(*_AT).agg(F.sort_array(F.collect_set("erased_by"), asc=False).alias("commits"))
    own = "CASE WHEN get(commits, i) > version THEN get(commits, i) END"
    each = (
        "transform(sort_array(versions, false), "
        f"(version, i) -> coalesce({own}, array_min(filter(commits, c -> c > version))))"
    )
    first = F.expr(f"slice(array_compact({each}), 1, CAST(n AS INT))")
    erased_by = F.coalesce(first, F.expr("CAST(array() AS array<bigint>)")).alias("erased_by")
    return missing.join(commits, _AT, "left").select(*missing.columns, erased_by)


def without_erased(
    spark: SparkSession, uri: str, messages: DataFrame, entries: Sequence[LedgerEntry], *, only: bool = False
) -> DataFrame:
    """Leave out dead letters whose messages these entries erased, or declared to leave, after they were written.

    Args:
        messages: With ``partition: int, offset: bigint, topic_id: string``, and ``version``, the commit that wrote
            them. They are few: the ranges of years are not made single offsets for them.
        only: Leave out the others.
    """
    from pyspark.sql import functions as F

    if not _with_erasure(entries, ()):
        return messages.limit(0) if only else messages
    erased = erased_ranges(spark, uri, entries).where("coalesce(is_letter, true)").alias("erased")
    same = (
        "message.partition = erased.partition AND message.topic_id = erased.topic_id "
        "AND shiftright(message.offset, 17) = erased.bucket "
        "AND message.offset >= erased.start AND message.offset < erased.end AND message.version < erased.erased_by"
    )
    return messages.alias("message").join(erased, F.expr(same), "left_semi" if only else "left_anti")


def highest_erased(uri: str, entries: Sequence[LedgerEntry], *, topic_id: str) -> dict[int, int] | None:
    """By partition, the highest offset of a topic that these entries erased, without those kept no longer. No JVM.

    A drain that reads a message again whose date is kept no longer makes a dead letter of it, and no row.

    Returns:
        ``None`` if entries erased messages, and the table of their offsets is gone.

    Raises:
        StorageFailed: The storage does not answer.
    """
    attempts = [e.attempt_id for e in entries if e.erasure and e.kind != "expire"]
    if not attempts:
        return {}
    table = open_archive(uri)
    if table is None:
        return None
    filters = [("attempt_id", "in", attempts), ("topic_id", "=", topic_id)]
    with storage_failures(uri):
        found = table.to_pyarrow_table(columns=_AT, filters=filters)
    highest = found.group_by("partition").aggregate([("offset", "max")])
    return {r["partition"]: r["offset_max"] for r in highest.to_pylist()}


def count_not_named(uri: str, entries: Sequence[LedgerEntry]) -> int:
    """How many erased offsets are of no attempt that these entries name, without those kept no longer. No JVM.

    Raises:
        StorageFailed: The storage does not answer.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    table = open_archive(uri)
    if table is None:
        return 0
    until = [f.name for f in table.schema().fields if f.name == "until"]
    with storage_failures(uri):
        found = table.to_pyarrow_table(columns=[*_AT, "topic_id", "attempt_id", *until])
    if until:
        found = found.filter(pc.is_null(found["until"]))
    named = pc.is_in(found["attempt_id"], value_set=pa.array([e.attempt_id for e in entries], pa.string()))
    return int(found.filter(pc.invert(named)).group_by([*_AT, "topic_id"]).aggregate([]).num_rows)
