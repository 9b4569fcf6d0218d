"""Refined tables whose upstream tables lose or change history: the rows stay those of a full recomputation."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kdi_assets.follow.refine.errors import UpstreamMissing
from tests.refined import COPY, D1, FIRST, MORE, STATE, SUMS, Lakeside


def _cleaned_log(lakeside: Lakeside) -> None:
    """The log of the upstream table from its newest version on, as a clean-up leaves it."""

    lakeside.append([(6, "b", 2, "i", D1)])  # the commit before this one goes too, and was not consumed
    DeltaTable(lakeside.uri("bronze/events")).create_checkpoint()
    for commit in sorted(Path(lakeside.uri("bronze/events"), "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()


def _without_feed(lakeside: Lakeside) -> None:
    lakeside.sql("UPDATE {t} SET bytes = bytes + 1 WHERE id = 1")
    shutil.rmtree(Path(lakeside.uri("bronze/events"), "_change_data"))


def _replaced(lakeside: Lakeside) -> None:
    shutil.rmtree(lakeside.uri("bronze/events"))
    lakeside.append(MORE)


def _overwritten(lakeside: Lakeside) -> None:
    frame = lakeside.spark.read.format("delta").load(lakeside.uri("bronze/events")).where("id <> 1")
    frame.write.format("delta").mode("overwrite").save(lakeside.uri("bronze/events"))


def _other_type(lakeside: Lakeside) -> None:
    from pyspark.sql import functions as F

    frame = lakeside.spark.read.format("delta").load(lakeside.uri("bronze/events"))
    wider = frame.withColumn("bytes", F.col("bytes").cast("decimal(20,0)"))
    writer = wider.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer.partitionBy("date").save(lakeside.uri("bronze/events"))


HISTORY: dict[str, tuple[Callable[[Lakeside], None], str]] = {
    "log cleaned": (_cleaned_log, "no longer in its log"),
    "change feed gone": (_without_feed, "without a change feed"),
    "replaced": (_replaced, "nothing of it was consumed before"),
    "overwritten": (_overwritten, ""),
    "gained a column": (Lakeside.gain_column, ""),
    "other type": (_other_type, "changed its type"),
}


@pytest.mark.parametrize("history", HISTORY)
def test_history_that_is_lost_or_changed_upstream_is_said_and_leaves_no_gap(lakeside: Lakeside, history: str) -> None:
    happens, said = HISTORY[history]
    for table in (COPY, SUMS):
        lakeside.append(FIRST) if table is COPY else None
        lakeside.refine(table)
    lakeside.append(MORE)
    happens(lakeside)

    lines: list[str] = []
    reports = [lakeside.refine(table, report=lines.append) for table in (COPY, SUMS)]

    assert all(report.version > 0 for report in reports)
    assert all(said in report.why for report in reports), [report.why for report in reports]
    for table in (COPY, SUMS):
        lakeside.assert_as_computed_at_once(table)


def _column_undone(lakeside: Lakeside) -> None:
    before = lakeside.version("bronze/events")
    lakeside.gain_column()
    lakeside.sql("RESTORE {t} TO VERSION AS OF " + str(before))


def _feed_off_and_on(lakeside: Lakeside) -> None:
    for on in ("false", "true"):
        lakeside.sql("ALTER TABLE {t} SET TBLPROPERTIES (delta.enableChangeDataFeed = " + on + ")")
        lakeside.sql("UPDATE {t} SET bytes = bytes + 1 WHERE id = 1")


@pytest.mark.parametrize("happens", [_column_undone, _feed_off_and_on])
def test_what_is_undone_upstream_before_the_next_run_leaves_no_gap(
    lakeside: Lakeside, happens: Callable[[Lakeside], None]
) -> None:
    """Purpose: Delta refuses to read a feed over commits that had other columns, or none of the feed.
    Procedure: rows; a column and its RESTORE, or the feed off and on; and a DELETE, all in one stretch.
    Pass: each mode is as computed at once, and so is what the next rows make of it.
    """
    tables = (COPY, SUMS, STATE)
    lakeside.append(FIRST)
    for table in tables:
        lakeside.refine(table)
    lakeside.append(MORE)
    happens(lakeside)
    lakeside.sql("DELETE FROM {t} WHERE id = 2")

    for _ in range(2):
        for table in tables:
            lakeside.refine(table)
            lakeside.assert_as_computed_at_once(table)
        lakeside.append([(6, "b", 2, "i", D1)])


def test_an_upstream_table_that_does_not_exist_yet_is_waited_for(lakeside: Lakeside) -> None:
    with pytest.raises(UpstreamMissing):
        lakeside.refine(COPY)

    lakeside.append(FIRST)
    lakeside.refine(COPY)

    lakeside.assert_as_computed_at_once(COPY)
