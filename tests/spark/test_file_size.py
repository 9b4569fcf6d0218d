"""How large the files are that a drain writes."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from kdi_assets.ledger.delta import FileSize, Staged, stage_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


def test_tasks_bring_their_rows_of_a_date_together_up_to_a_size_and_no_file_has_more_rows_than_allowed(
    spark: SparkSession, lake: str
) -> None:
    """Pass: every row is written and counted once, however the files are made; no setting stays behind."""
    uri, rows = f"{lake}/requests", requests(spark)
    rows.limit(0).write.format("delta").partitionBy("date").save(uri)

    as_it_comes = stage_rows(spark, rows, uri)
    by_two = stage_rows(spark, rows, uri, files=FileSize(together=2 * MIB))
    together_and_cut = stage_rows(spark, rows, uri, files=FileSize(together=256 * MIB, rows=15_000))

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
