"""Files of a commit: their sizes in a drain, and rows removed with the commit that explains it."""

from __future__ import annotations

import json
import os
from collections import Counter
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from kdi_assets.delta.errors import OvertakenCommit
from kdi_assets.delta.log import TableLog
from kdi_assets.delta.transaction import FileSize, Staged, stage_rows
from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.runtime.spark import changed_settings
from kdi_assets.streams.ledger.commit import commit
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.rewrite import as_deletions, old_rows
from tests.table_by_hand import orders

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
    return old.rewrite_files(as_deletions(old.rows))


def removed(spark: SparkSession, uri: str, staged: Staged, *, behind: int) -> int:
    table_id = TableLog.existing(uri).table_id
    entry = LedgerEntry(-1, "replay", STREAM.app_id, "try", STREAM.topic, "t", table_id, {TP: 0})
    return commit(spark, staged, uri, read_version=behind, entry=entry).version


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


def test_what_a_user_set_for_delta_is_set_after_a_commit_of_ours_too(spark: SparkSession, uri: str) -> None:
    users = {
        "spark.databricks.delta.maxCommitAttempts": "7",
        "spark.databricks.delta.optimizeWrite.binSize": "32MB",
    }

    with changed_settings(spark, users):
        staged = stage_rows(spark, rows(spark, 200, 300), uri, files=FileSize(shuffled_bytes=64 << 20))
        removed(spark, uri, staged, behind=2)
        after = {name: spark.conf.get(name, None) for name in users}

    assert after == users


def test_the_commit_removes_the_rows_and_only_they_are_in_the_change_feed(spark: SparkSession, uri: str) -> None:
    before = TableLog.existing(uri)

    staged = staged_removal(spark, uri, 3, 10, 42, 5000, version=2)
    version = removed(spark, uri, staged, behind=2)

    table = spark.read.format("delta").load(uri)
    assert sorted(r["id"] for r in table.collect()) == [i for i in range(200) if i not in (3, 10, 42)]
    assert staged.removed_by_date == {date(2026, 1, 1): 2, date(2026, 1, 2): 1}
    assert (staged.rows, len(staged.replaces)) == (0, 2)  # the files of the offsets from 100 on stay
    assert len(before.file_uris - TableLog.existing(uri).file_uris) == 2
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version).load(uri)
    assert Counter((r["id"], r["_change_type"]) for r in feed.collect()) == Counter(
        {(3, "delete"): 1, (10, "delete"): 1, (42, "delete"): 1}
    )


def test_a_file_that_another_commit_replaced_is_not_replaced_again(spark: SparkSession, uri: str) -> None:
    """Procedure: one commit appends rows and deletes rows of another file; then one deletes rows of the same file."""
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


ROWS, TASKS = 100_000, 4
MIB = 1 << 20


def requests(spark: SparkSession) -> DataFrame:
    """Rows like those of web requests, over two dates, each task with both."""
    return spark.range(0, ROWS, 1, TASKS).selectExpr(
        "id",
        "uuid() AS session_id",
        "concat('https://www.example.org/', hash(id) & 63, '/page?q=', hash(id * 3)) AS url",
        "date_add(DATE'2026-01-01', CAST(id % 2 AS int)) AS date",
    )


def test_files_of_a_date_are_limited_by_size_and_number_of_rows(spark: SparkSession, lake: str) -> None:
    """Pass: every row is written and counted once, however the files are made; settings are restored."""
    uri, rows = f"{lake}/requests", requests(spark)
    rows.limit(0).write.format("delta").partitionBy("date").save(uri)

    as_it_comes = stage_rows(spark, rows, uri)
    by_two = stage_rows(spark, rows, uri, files=FileSize(shuffled_bytes=2 * MIB))
    together_and_cut = stage_rows(spark, rows, uri, files=FileSize(shuffled_bytes=256 * MIB, max_rows=15_000))

    for staged in (as_it_comes, by_two, together_and_cut):
        assert set(staged.rows_by_date.values()) == {ROWS // 2}
        assert len(staged.rows_by_date) == 2
    assert files_by_date(as_it_comes) == {"2026-01-01": TASKS, "2026-01-02": TASKS}
    assert files_by_date(by_two) == {"2026-01-01": 2, "2026-01-02": 2}
    assert all(size <= 1.1 * MIB for size in sizes(by_two, uri))
    assert sorted(rows_of_files(together_and_cut)) == [5_000, 5_000, *[15_000] * 6]
    assert spark.conf.get("spark.databricks.delta.optimizeWrite.binSize", None) in (None, "512")


def files_by_date(staged: Staged) -> Counter[str]:
    return Counter(Path(file).parts[0].removeprefix("date=") for file in staged.files)


def sizes(staged: Staged, uri: str) -> list[int]:
    return [os.path.getsize(Path(uri) / file) for file in staged.files]


def rows_of_files(staged: Staged) -> list[int]:
    added = [json.loads(staged.actions.apply(i).json()).get("add") for i in range(staged.actions.size())]
    return [json.loads(add["stats"])["numRecords"] for add in added if add]
