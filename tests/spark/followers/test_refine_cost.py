"""Refining few new rows: how many Spark jobs it takes, and what it reads, does not depend on what is there already."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdi_assets.follow.refine import inputs
from kdi_assets.runtime.spark import changed_settings
from kdi_assets.runtime.spark_internals import jvm_context, jvm_session
from tests.refined import EVENTS, FIRST, Lakeside, refined_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SQL_BY_DATE = (
    "WITH sizes AS (SELECT date, host, bytes FROM events WHERE bytes > 0) "
    "SELECT date, count(*) AS n, count(DISTINCT host) AS hosts FROM sizes GROUP BY date HAVING count(*) > 0"
)
MODES: dict[str, tuple[int, int, dict[str, Any]]] = {
    "append": (1, 1, {}),
    "aggregate": (1, 1, {"mode": {"aggregate": {"by": ["date", "host"], "measures": {"n": "count"}}}}),
    "upsert": (1, 1, {"mode": {"upsert": {"keys": ["id"], "sequence_by": "bytes"}}, "partition_by": None}),
    "deduplicate": (3, 12, {"mode": {"deduplicate": {"keys": ["id"], "order_by": "bytes"}}}),
    "replace_dates": (1, 1, {"mode": "replace_dates", "sql": SQL_BY_DATE}),
}
"""By mode, the most jobs to find what changes and to write it, and the most tasks."""


@pytest.mark.parametrize("mode", MODES)
def test_few_new_rows_take_few_spark_jobs(lakeside: Lakeside, mode: str) -> None:
    """Purpose: each job and each task costs more than few rows, and Delta runs some to list a table's files.
    Procedure: refine rows of one date, then of five more; then new rows of one of them, twice.
    Pass: each of the last two takes no more jobs and tasks than the mode needs.
    """
    most_jobs, most_tasks, fields = MODES[mode]
    table = refined_table(**{"table": "silver/t", "from": "bronze/events", **fields})
    for day in range(1, 7):
        lakeside.append([(day, "a", 10 * day, "i", date(2026, 1, day))])
    lakeside.refine(table)

    for n in (1, 2):
        lakeside.append([(100 + n, "b", n, "i", date(2026, 1, 6))])
        before = jobs(lakeside.spark)
        lakeside.refine(table)
        ran = jobs(lakeside.spark) - before
        assert len(ran) <= most_jobs, [described(lakeside.spark, job) for job in sorted(ran)]
        assert sum(tasks(lakeside.spark, job) for job in ran) <= most_tasks

    lakeside.assert_as_computed_at_once(table)


def test_a_table_of_deletes_is_read_by_as_many_tasks_as_it_is_large(lakeside: Lakeside) -> None:
    """Purpose: one task orders few changes and the rows of few files, but of all deletes ever there may be many.
    Procedure: three refinements that record a delete each; a task reads one file; a new row.
    Pass: a task for each file of the deletes reads them.
    """
    mode = {"upsert": {"keys": ["id"], "sequence_by": "bytes", "apply_as_deletes": "op = 'd'"}}
    table = refined_table(**{"table": "silver/t", "from": "bronze/events", "mode": mode, "partition_by": None})
    for n in range(3):
        lakeside.append([(n, "a", 1, "d", date(2026, 1, 1)), (10 + n, "a", 1, "i", date(2026, 1, 1))])
        lakeside.refine(table)
    deletes = lakeside.files("silver/t_deletes")
    assert len(deletes) > 2

    lakeside.append([(1, "b", 2, "i", date(2026, 1, 1))])
    before = jobs(lakeside.spark)
    with changed_settings(lakeside.spark, {"spark.sql.files.maxPartitionBytes": "64KB"}):
        lakeside.refine(table)

    (writing,) = (
        job for job in jobs(lakeside.spark) - before if described(lakeside.spark, job).startswith("writeFiles")
    )
    assert tasks(lakeside.spark, writing) > len(deletes), "and one that orders"
    lakeside.assert_as_computed_at_once(table)


def test_of_many_small_files_those_without_a_key_stay(lakeside: Lakeside) -> None:
    """Purpose: a table of years by date may be small, and have a file for each date.
    Pass: a change of two rows replaces their files alone, whatever the other files.
    """
    mode = {"upsert": {"keys": ["id"], "sequence_by": "bytes"}}
    table = refined_table(**{"table": "silver/t", "from": "bronze/events", "mode": mode})
    days = [date(2026, 1, 1) + timedelta(days=day) for day in range(inputs.SMALL_BYTES // inputs.FILE_COST)]
    lakeside.append([(n, "a", 1, "i", day) for n, day in enumerate(days)])
    lakeside.refine(table)
    before = lakeside.files("silver/t")

    lakeside.append([(n, "b", 2, "i", days[n]) for n in (3, 4)])
    lakeside.refine(table)

    assert (len(before), len(before - lakeside.files("silver/t"))) == (len(days), 2)
    lakeside.assert_as_computed_at_once(table)


def test_large_groups_are_made_by_as_many_tasks_as_they_need(
    lakeside: Lakeside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: few new rows may touch groups anywhere in a large table.
    Procedure: a table of many groups, not by date; few new rows of two of them; files of 16 KiB are large.
    Pass: several tasks group, and the table is as computed at once.
    """
    monkeypatch.setattr(inputs, "SMALL_BYTES", 16 << 10)
    monkeypatch.setattr(inputs, "FILE_COST", 0)
    mode = {"aggregate": {"by": ["host"], "measures": {"n": "count"}}}
    table = refined_table(**{"table": "gold/t", "from": "bronze/events", "mode": mode, "partition_by": None})
    lakeside.append([(n, f"{n % 8_000} {n * n}", 1, "i", date(2026, 1, 1)) for n in range(9_000)])
    lakeside.refine(table)
    lakeside.append([(9_000 + n, f"{n} {n * n}", 1, "i", date(2026, 1, 2)) for n in (1, 2)])

    before = jobs(lakeside.spark)
    with changed_settings(lakeside.spark, {"spark.sql.adaptive.coalescePartitions.enabled": "false"}):
        lakeside.refine(table)

    assert most_tasks_after_a_shuffle(lakeside.spark, jobs(lakeside.spark) - before) > 1
    lakeside.assert_as_computed_at_once(table)


@pytest.mark.parametrize(
    ("properties", "change", "small_bytes"),
    [
        ("", "DELETE FROM {t} WHERE date = '2026-01-02'", inputs.SMALL_BYTES),
        (", delta.enableDeletionVectors = true", "DELETE FROM {t} WHERE id = 2", inputs.SMALL_BYTES),
        (", delta.columnMapping.mode = 'name'", "UPDATE {t} SET host = 'a' WHERE id = 2", inputs.SMALL_BYTES),
        ("", "UPDATE {t} SET host = 'a' WHERE id = 2", 0),
    ],
    ids=["a date loses all rows", "deletion vectors", "column mapping", "many bytes"],
)
def test_dates_are_computed_of_their_files_whatever_is_in_these(
    lakeside: Lakeside, monkeypatch: pytest.MonkeyPatch, properties: str, change: str, small_bytes: int
) -> None:
    """Procedure: refine groups by date; change the upstream table; without the way that reads all dates, refine again.
    Pass: the table is as computed at once.
    """
    fields = {"mode": "replace_dates", "sql": SQL_BY_DATE}
    table = refined_table(**{"table": "gold/t", "from": "bronze/events", **fields})
    with_feed = f"TBLPROPERTIES (delta.enableChangeDataFeed = true{properties})"
    lakeside.sql(f"CREATE TABLE {{t}} ({EVENTS}) USING delta PARTITIONED BY (date) {with_feed}")
    lakeside.append(FIRST)
    lakeside.sql("OPTIMIZE {t}")  # one file of a date: of a file whose rows are all deleted no vector is made
    lakeside.refine(table)
    monkeypatch.setattr(inputs, "SMALL_BYTES", small_bytes)
    monkeypatch.delattr(inputs.Inputs, "rows_of")

    lakeside.sql(change)
    commit = max(Path(lakeside.uri("bronze/events"), "_delta_log").glob("*.json")).read_text()
    assert ('"deletionVector":{' in commit) == ("DeletionVectors" in properties)
    assert lakeside.refine(table).kind == "dates"

    lakeside.assert_as_computed_at_once(table)


def jobs(spark: SparkSession) -> set[int]:
    """The ids of the session's jobs that Spark remembers."""
    tracker = jvm_context(spark).statusTracker()
    tag = str(jvm_session(spark).sessionJobTag())
    return {*tracker.getJobIdsForGroup(None), *tracker.getJobIdsForTag(tag)}


def tasks(spark: SparkSession, job: int) -> int:
    """How many tasks a job had."""
    return int(jvm_context(spark).statusStore().job(job).numTasks())


def described(spark: SparkSession, job: int) -> str:
    """What a job is called."""
    return str(jvm_context(spark).statusStore().job(job).name())


def most_tasks_after_a_shuffle(spark: SparkSession, of: set[int]) -> int:
    """The most tasks that any stage of some jobs has, of those that read what another stage has shuffled."""
    tracker, store = jvm_context(spark).statusTracker(), jvm_context(spark).statusStore()
    stages = {stage for job in of for stage in tracker.getJobInfo(job).get().stageIds()}
    made = [store.lastStageAttempt(stage) for stage in stages if tracker.getStageInfo(stage).isDefined()]
    return max(int(stage.numTasks()) for stage in made if stage.shuffleReadBytes() > 0)
