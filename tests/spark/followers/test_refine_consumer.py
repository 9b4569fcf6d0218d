"""What hand-written assets commit: rows that fit their table, and the bookmark, in one version."""

from __future__ import annotations

from datetime import date
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import pytest

from kdi_assets.delta.log import TableLog
from kdi_assets.delta.markers import topic_txn_id
from kdi_assets.follow.refine import consumer
from kdi_assets.follow.refine.consumer import NewRows, new_rows
from kdi_assets.follow.refine.consumer_errors import (
    NotPartitionedByDate,
    OtherColumns,
    RowsAppendedAgain,
    RowsOfOtherConsumer,
    RowsOfOtherDates,
)
from kdi_assets.follow.refine.errors import RefiningFailed, UpstreamGone, UpstreamMissing
from kdi_assets.follow.refine.topics import TopicsOfRows, read_topics, topics_id
from kdi_assets.follow.upstream import changes_since
from tests.refined import Lakeside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

D1, D2 = date(2026, 1, 1), date(2026, 1, 2)
FIRST = [(1, "a", 10, "i", D1), (2, "b", 20, "i", D2)]
LATE = [(3, "c", 30, "i", D1)]
MADE = "silver/made"


@pytest.fixture
def lakeside(spark: SparkSession, lake: str) -> Lakeside:
    side = Lakeside(spark, lake)
    side.append(FIRST)
    return side


def new_in(lakeside: Lakeside, table: str = MADE) -> NewRows:
    upstream = lakeside.uri("bronze/events")
    found = new_rows(lakeside.spark, upstream=upstream, output=lakeside.uri(table), consumer="made")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (["CAST(id AS string) AS id", "date"], "id bigint would be string"),
        (["id", "date", "1 AS one"], "one int is new"),
        (["date", "date AS at"], "id bigint would be gone"),
    ],
)
def test_rows_of_other_columns_than_the_table_are_refused(lakeside: Lakeside, columns: list[str], said: str) -> None:
    """Purpose: files of another type under the table's columns make it unreadable.
    Procedure: commit two columns; append rows of others, replace dates by them; then in another order; replace all.
    Pass: both are refused and nothing is committed; the order makes no difference; the last one changes the columns.
    """
    new_in(lakeside).append(new_in(lakeside).rows.select("id", "date"))
    lakeside.append(LATE)
    before = lakeside.rows(MADE)

    new = new_in(lakeside)
    with pytest.raises(OtherColumns, match=said):
        new.append(new.rows.selectExpr(*columns))
    with pytest.raises(OtherColumns, match=said):
        new.replace_dates(new.rows.selectExpr(*columns), [D1])
    assert lakeside.rows(MADE) == before
    new.append(new.rows.select("date", "id"))
    assert lakeside.rows(MADE).total() == 3

    lakeside.append(LATE)
    new_in(lakeside).replace_everything(new.rows.selectExpr(*columns))
    assert lakeside.rows(MADE).total() == 1


def test_an_upstream_table_that_is_gone_is_told_from_one_that_is_not_there_yet(lakeside: Lakeside) -> None:
    uri, never = lakeside.uri("bronze/events"), lakeside.uri("bronze/never")

    with pytest.raises(UpstreamMissing):
        new_rows(lakeside.spark, upstream=never, output=lakeside.uri(MADE), consumer="made")
    new_in(lakeside).append(new_in(lakeside).rows)
    rmtree(uri)
    with pytest.raises(UpstreamGone) as gone:
        new_rows(lakeside.spark, upstream=uri, output=lakeside.uri(MADE), consumer="made")

    assert gone.value.message_parts()[2].startswith("dagster asset materialize ")


def test_dates_are_replaced_only_by_their_own_rows(lakeside: Lakeside) -> None:
    """Purpose: a row on another date is added, and added again by each repetition.
    Procedure: replace the first date by all rows, by rows without a date; then each by its own.
    Pass: the first two are refused and nothing is committed, not even a table's rows.
    """
    new = new_in(lakeside)
    for rows in (new.rows, new.rows.selectExpr("id", "host", "bytes", "op", "CAST(NULL AS date) AS date")):
        with pytest.raises(RowsOfOtherDates, match="2 rows"):
            new_in(lakeside).replace_dates(rows.where("id = 2").union(rows.where("id = 2")), [D1])
    new_in(lakeside).replace_dates(new.rows, [D1, D2])
    lakeside.append(LATE)
    everything = lakeside.spark.read.format("delta").load(lakeside.uri("bronze/events"))
    new_in(lakeside).replace_dates(everything.where(f"date = '{D1}'"), [D1])

    assert lakeside.rows(MADE) == lakeside.rows("bronze/events")


def test_dates_of_a_table_without_them_are_not_replaced(lakeside: Lakeside) -> None:
    undated = new_in(lakeside).rows.withColumnRenamed("date", "at")
    new_in(lakeside).append(undated)
    lakeside.append(LATE)

    with pytest.raises(NotPartitionedByDate, match="made"):
        new_in(lakeside).replace_dates(undated, [D1])
    lakeside.sql("CREATE TABLE {t} (id bigint, date date) USING delta", "silver/plain")
    new = new_in(lakeside, "silver/plain")
    with pytest.raises(NotPartitionedByDate):
        new.replace_dates(new.rows.select("id", "date"), [D1, D2])

    assert not lakeside.rows("silver/plain")


def test_all_rows_may_be_replaced_by_rows_without_a_date(lakeside: Lakeside) -> None:
    new_in(lakeside).append(new_in(lakeside).rows)
    lakeside.append(LATE)

    new_in(lakeside).replace_everything(new_in(lakeside).rows.select("id"))

    assert lakeside.rows(MADE) == {(("id", 3),): 1}
    assert lakeside.partitions(MADE) == []


def test_dates_are_those_of_the_rows_and_unknown_for_all_rows(lakeside: Lakeside) -> None:
    """Procedure: the first time; rows are added; then rows are removed without a change feed."""
    found = [new_in(lakeside)]
    found[0].append(found[0].rows)
    lakeside.append(LATE)
    found.append(new_in(lakeside))
    lakeside.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')")
    lakeside.sql("DELETE FROM {t} WHERE id = 3")
    found.append(new_in(lakeside))

    said = [(new.kind, new.dates) for new in found]
    assert said == [("everything", None), ("appended", frozenset({D1})), ("everything", None)]


def test_a_failure_of_spark_is_an_error_of_ours(lakeside: Lakeside, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        jvm: Any = lakeside.spark._jvm
        jvm.java.io.File.createTempFile("no", "place", jvm.java.io.File("/nowhere"))

    new = new_in(lakeside)
    with monkeypatch.context() as patch:
        patch.setattr(consumer, "commit_behind", fails)
        with pytest.raises(RefiningFailed, match="made: "):
            new.append(new.rows)
    new_in(lakeside).append(new.rows)

    assert lakeside.rows(MADE) == lakeside.rows("bronze/events")


def test_all_rows_are_not_appended_to_those_that_are_there(lakeside: Lakeside) -> None:
    """Procedure: append; the upstream table loses its history; append what is new, which is everything."""
    first = new_in(lakeside)
    first.append(first.rows)
    lakeside.sql("CREATE OR REPLACE TABLE {t} USING delta AS SELECT * FROM {t}")
    new = new_in(lakeside)
    before = lakeside.rows(MADE)

    assert new.kind == "everything"
    with pytest.raises(RowsAppendedAgain):
        new.append(new.rows)
    assert lakeside.rows(MADE) == before
    new.replace_everything(new.rows)

    assert lakeside.rows(MADE) == lakeside.rows("bronze/events")


def test_a_consumer_does_not_replace_the_rows_of_another(lakeside: Lakeside) -> None:
    """Purpose: the other one would go on from its bookmark, without its rows."""
    lakeside.append([(9, "z", 90, "i", D1)], "bronze/others")
    first = new_in(lakeside)
    first.append(first.rows)

    def second() -> NewRows:
        found = new_rows(
            lakeside.spark, upstream=lakeside.uri("bronze/others"), output=lakeside.uri(MADE), consumer="of others"
        )
        assert found is not None
        return found

    with pytest.raises(RowsOfOtherConsumer, match="made"):
        second().replace_everything(second().rows)
    with pytest.raises(RowsOfOtherConsumer, match="made"):
        second().replace_dates(second().rows, [D1])
    second().append(second().rows)

    assert lakeside.rows(MADE) == lakeside.rows("bronze/events") + lakeside.rows("bronze/others")


def test_a_commit_that_follows_another_consumers_keeps_that_ones_bookmark(lakeside: Lakeside) -> None:
    """Procedure: two assets of one table see the same rows; the one commits none of them, before the other commits."""
    uris = {"upstream": lakeside.uri("bronze/events"), "output": lakeside.uri(MADE)}
    for row in (FIRST, LATE):
        lakeside.append(row)
        made, other = new_in(lakeside), new_rows(lakeside.spark, **uris, consumer="other")
        assert other is not None
        other.append(other.rows.where("false"))
        if row is LATE:
            made.append(made.rows)

    assert new_rows(lakeside.spark, **uris, consumer="other") is None
    assert new_rows(lakeside.spark, **uris, consumer="made") is None


def test_a_refined_table_says_of_how_many_topics_its_rows_are(lakeside: Lakeside) -> None:
    """Purpose: its log still names the topics of rows that were computed again."""
    names = frozenset(topic_txn_id("web", topic) for topic in ("one", "two"))
    for name in names:
        lakeside.append(LATE, txn=name)
    of_stream = changes_since(TableLog.existing(lakeside.uri("bronze/events")), None)
    assert read_topics(lakeside.spark, [of_stream]).most == 2

    lakeside.append(LATE, txn=topics_id("bronze/events"))

    of_refined = changes_since(TableLog.existing(lakeside.uri("bronze/events")), None)
    assert read_topics(lakeside.spark, [of_refined]) == TopicsOfRows(names, 1)
