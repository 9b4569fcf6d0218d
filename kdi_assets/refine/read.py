"""Read the rows of an upstream table: those that were added, those that changed, or all at one version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdi_assets.ledger.table_files import CHANGE, TableAt
from kdi_assets.refine.upstream import UpstreamChanges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FEED_COLUMNS = (CHANGE, "_commit_version", "_commit_timestamp")


def appended_rows(spark: SparkSession, changes: UpstreamChanges) -> DataFrame:
    """The rows that were added, of changes of the kind ``appended``: the table's columns at ``changes.version``."""
    table = TableAt.open(spark, changes.uri, changes.version)
    return table.rows_of(table.from_log(changes.files))


def change_rows(spark: SparkSession, changes: UpstreamChanges) -> DataFrame:
    """The rows of the change feed, of changes that have one (``has_feed``).

    Returns:
        The table's columns, ``_change_type: string`` (insert, delete, update_preimage, update_postimage),
        ``_commit_version: bigint`` and ``_commit_timestamp: timestamp``.
    """
    if changes.since is None:
        raise AssertionError(f"{changes.uri}: nothing was consumed, so there is no feed since")
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    first, last = changes.since + 1, changes.version
    return reader.option("startingVersion", first).option("endingVersion", last).load(changes.uri)


def rows_at(spark: SparkSession, uri: str, version: int) -> DataFrame:
    """All rows of a table at a version."""
    return spark.read.format("delta").option("versionAsOf", version).load(uri)


def kept_at_hand(rows: DataFrame) -> DataFrame:
    """The rows, computed by the first action and kept on the executors for the next ones.

    Not by ``persist``: the accumulator of Spark's cache can end the executor's heartbeat if one is sent while a task is
    being read (``PartitionKeyedAccumulator.isZero``, Spark 4.2.0), and a driver without heartbeats loses its executor.
    """
    return rows.localCheckpoint(eager=False)
