"""Erased messages: their offsets, in ``<table>_erased``. Nothing else of a message is kept there.

Like dead letters, offsets are written before the commit, with its attempt id; they count only if an entry has that id.
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
_DDL = "partition int, offset bigint, topic_id string, attempt_id string"


def append_erased(messages: DataFrame, uri: str, *, topic_id: str, attempt_id: str) -> None:
    """Write the offsets of messages that are about to be erased.

    Args:
        messages: With ``partition: int, offset: bigint``.
    """
    from pyspark.sql import functions as F

    of_attempt = {"topic_id": F.lit(topic_id), "attempt_id": F.lit(attempt_id)}
    rows = messages.select(*_AT).distinct().withColumns(of_attempt)
    rows.write.format("delta").mode("append").options(**CHECKPOINT_INTERVAL).save(uri)


def erased_offsets(spark: SparkSession, uri: str, entries: Sequence[LedgerEntry]) -> DataFrame:
    """The offsets that these entries erased.

    Args:
        entries: Those without an erasure are ignored.

    Returns:
        ``partition: int, offset: bigint, topic_id: string, erased_by: bigint``, the version of the newest entry.
    """
    from pyspark.sql import functions as F

    attempts = [(e.attempt_id, e.version) for e in entries if e.erasure]
    log = TableLog.open(uri) if attempts else None
    if log is None:
        return spark.createDataFrame([], f"{_DDL}, erased_by bigint").drop("attempt_id")
    committed = F.broadcast(spark.createDataFrame(attempts, "attempt_id string, erased_by bigint"))
    stored = rows_at(spark, uri, log.version)
    by_offset = stored.join(committed, "attempt_id").groupBy(*_AT, "topic_id")
    return by_offset.agg(F.max("erased_by").alias("erased_by"))


def with_erasing_commit(spark: SparkSession, uri: str, offsets: DataFrame, entries: Sequence[LedgerEntry]) -> DataFrame:
    """Add the commit that erased each offset after it was drained as ``erased_by: bigint``; null for others.

    Args:
        offsets: With ``partition: int, offset: bigint``, and ``version``, the commit that drained it.
    """
    from pyspark.sql import functions as F

    if not any(e.erasure for e in entries):
        return offsets.withColumn("erased_by", F.lit(None).cast("bigint"))
    erased = erased_offsets(spark, uri, entries).groupBy(*_AT).agg(F.max("erased_by").alias("erased_by"))
    later = F.expr("CASE WHEN version IS NULL OR erased_by > version THEN erased_by END")
    return offsets.join(erased, _AT, "left").withColumn("erased_by", later)


def without_erased(spark: SparkSession, uri: str, messages: DataFrame, entries: Sequence[LedgerEntry]) -> DataFrame:
    """Leave out messages that these entries erased.

    Args:
        messages: With ``partition: int, offset: bigint, topic_id: string``.
    """
    if not any(e.erasure for e in entries):
        return messages
    return messages.join(erased_offsets(spark, uri, entries), [*_AT, "topic_id"], "left_anti")


def highest_erased(uri: str, entries: Sequence[LedgerEntry], *, topic_id: str) -> dict[int, int]:
    """By partition, the highest offset that these entries erased of a topic. No JVM.

    Raises:
        StorageFailed: The storage does not answer.
    """
    attempts = [e.attempt_id for e in entries if e.erasure]
    table = open_archive(uri) if attempts else None
    if table is None:
        return {}
    filters = [("attempt_id", "in", attempts), ("topic_id", "=", topic_id)]
    with storage_failures(uri):
        found = table.to_pyarrow_table(columns=_AT, filters=filters)
    highest = found.group_by("partition").aggregate([("offset", "max")])
    return {r["partition"]: r["offset_max"] for r in highest.to_pylist()}
