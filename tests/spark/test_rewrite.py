"""Rows taken out of a table with the commit that says why."""

from __future__ import annotations

from collections import Counter
from datetime import date
from typing import TYPE_CHECKING

import pytest

from kdi_assets.ledger.commit import OvertakenCommit, commit
from kdi_assets.ledger.delta import Staged
from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.log import TableLog
from kdi_assets.ledger.rewrite import as_changes, old_rows
from kdi_assets.stream import OffsetRange, TopicPartition
from tests.table_by_hand import orders

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM = orders()
TP = TopicPartition(STREAM.topic, 0)
WITHIN = {TP: OffsetRange(TP, 0, 1000)}


def rows(spark: SparkSession, first: int, last: int) -> DataFrame:
    """One row per offset, every tenth of the second date."""
    return spark.range(first, last, 1, 1).selectExpr(
        "id",
        "date_add(DATE'2026-01-01', CAST(id % 10 = 0 AS int)) AS date",
        "named_struct('partition', 0, 'offset', id, 'timestamp', timestamp_seconds(1767225600 + id)) AS kafka",
    )


def messages(spark: SparkSession, *offsets: int) -> DataFrame:
    frame = spark.createDataFrame([(o,) for o in offsets], "offset bigint")
    return frame.selectExpr("0 AS partition", "offset", "timestamp_seconds(1767225600 + offset) AS timestamp")


def staged_removal(spark: SparkSession, uri: str, *offsets: int, version: int) -> Staged:
    old = old_rows(spark, STREAM, uri, messages(spark, *offsets), version=version, within=WITHIN)
    assert old is not None
    return old.exchanged(as_changes(old.rows, "delete"))


def removed(spark: SparkSession, uri: str, staged: Staged, *, behind: int) -> int:
    table_id = TableLog.existing(uri).table_id
    entry = LedgerEntry(-1, "replay", STREAM.app_id, "try", STREAM.topic, "t", table_id, {TP: 0})
    return commit(spark, staged, uri, behind=behind, entry=entry).version


@pytest.fixture(name="uri")
def _uri(spark: SparkSession, lake: str) -> str:
    """Offsets 0 to 99 in one file for each date, 100 to 199 in two more."""
    uri = f"{lake}/bronze/orders"
    spark.sql(
        f"CREATE TABLE delta.`{uri}` (id BIGINT, date DATE, kafka STRUCT<partition: INT, offset: BIGINT, "
        "timestamp: TIMESTAMP>) USING delta PARTITIONED BY (date) "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    for first in (0, 100):
        rows(spark, first, first + 100).write.format("delta").mode("append").save(uri)
    return uri


def test_rows_go_with_the_commit_and_the_change_feed_tells_of_these_alone(spark: SparkSession, uri: str) -> None:
    before = TableLog.existing(uri)

    staged = staged_removal(spark, uri, 3, 10, 42, 5000, version=2)
    version = removed(spark, uri, staged, behind=2)

    table = spark.read.format("delta").load(uri)
    assert sorted(r["id"] for r in table.collect()) == [i for i in range(200) if i not in (3, 10, 42)]
    assert staged.removed_by_date == {date(2026, 1, 1): 2, date(2026, 1, 2): 1}
    assert (staged.rows, len(staged.replaces)) == (0, 2)  # the files of the offsets from 100 on stay
    assert len(before.files - TableLog.existing(uri).files) == 2
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version).load(uri)
    assert Counter((r["id"], r["_change_type"]) for r in feed.collect()) == Counter(
        {(3, "delete"): 1, (10, "delete"): 1, (42, "delete"): 1}
    )


def test_a_file_that_someone_else_exchanged_meanwhile_is_not_exchanged_again(spark: SparkSession, uri: str) -> None:
    """Procedure: rows are appended and rows of another file deleted before one commit; then one of the same file."""
    staged = staged_removal(spark, uri, 3, version=2)
    stale = staged_removal(spark, uri, 5, version=2)
    rows(spark, 200, 210).write.format("delta").mode("append").save(uri)
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE id = 110")

    removed(spark, uri, staged, behind=2)
    with pytest.raises(OvertakenCommit):
        removed(spark, uri, stale, behind=2)

    table = spark.read.format("delta").load(uri)
    assert sorted(r["id"] for r in table.collect()) == [i for i in range(210) if i not in (3, 110)]


def test_rows_that_a_deletion_vector_hides_do_not_come_back(spark: SparkSession, uri: str) -> None:
    spark.sql(f"ALTER TABLE delta.`{uri}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE id = 4")
    version = TableLog.existing(uri).version

    staged = staged_removal(spark, uri, 3, 4, version=version)
    removed(spark, uri, staged, behind=version)

    table = spark.read.format("delta").load(uri)
    assert sorted(r["id"] for r in table.collect()) == [i for i in range(200) if i not in (3, 4)]
    assert staged.removed_by_date == {date(2026, 1, 1): 1}
