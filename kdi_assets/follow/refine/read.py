"""Read the rows of an upstream table: those that were added, those that changed, or all at one version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from typing import TYPE_CHECKING

from kdi_assets.delta.files import CHANGE, TableAt
from kdi_assets.follow.upstream import UpstreamChanges
from kdi_assets.runtime.spark import changed_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OF_FEW_ROWS: Mapping[str, str] = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # Without adaptive execution, estimates alone decide: rows of a large table must never be shuffled to one task.
    "spark.sql.autoBroadcastJoinThreshold": "256MB",
}
DAY = "TRY_CAST(date AS DATE)"
"""Of a row, whose column may be of text, as another system made it; null where text is not a day."""
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
    rows = reader.option("startingVersion", first).option("endingVersion", last).load(changes.uri)
    return of_kept_dates(rows, changes.kept_from)


def of_kept_dates(rows: DataFrame, first: date | None) -> DataFrame:
    """The rows from a date on, with those that have no date; ``None``: all rows."""
    if first is None or "date" not in rows.columns:
        return rows
    return rows.where(f"{DAY} >= DATE'{first}' OR {DAY} IS NULL")


@contextmanager
def one_task(spark: SparkSession, *, only_if: bool) -> Iterator[None]:
    """Plan for few rows: a shuffle gives one task all of them, and plans stay as they are.

    Adaptive execution plans, optimises and compiles again after each shuffle: more than what few rows cost.
    """
    with changed_settings(spark, _OF_FEW_ROWS if only_if else {}):
        yield


def in_one_task(rows: DataFrame) -> DataFrame:
    """The rows in one partition: what groups or orders them needs no shuffle, which is a stage of tasks of its own."""
    return rows.coalesce(1)


def computed_once(rows: DataFrame) -> DataFrame:
    """The rows, computed by the first action and kept on the executors for the next ones.

    Not by ``persist``: the accumulator of Spark's cache can end the executor's heartbeat if one is sent while a task is
    being read (``PartitionKeyedAccumulator.isZero``, Spark 4.2.0), and a driver without heartbeats loses its executor.
    """
    return rows.localCheckpoint(eager=False)


def with_keys(rows: DataFrame, keys: DataFrame, by: tuple[str, ...], *, others: bool = False) -> DataFrame:
    """The rows with some keys, or all others; null equals null.

    Args:
        keys: Has the columns of ``by``; each combination once.
    """
    from pyspark.sql import functions as F

    named = keys.select(*(F.col(f"`{column}`").alias(f"_kdi_key_{i}") for i, column in enumerate(by)))
    same = " AND ".join(f"`{column}` <=> _kdi_key_{i}" for i, column in enumerate(by))
    return rows.join(named, F.expr(same), "left_anti" if others else "left_semi")
