"""Old rows compared with new ones: the differences of a replay, and the change feed's contents."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from kdi_assets.streams.replay.row_diff import change_counts, change_feed, compare, examples, moved
from tests.table_by_hand import orders

STREAM = orders()
DDL = "id int, at string, kind string, day int, times int"


def rows(spark: SparkSession, *given: tuple[int, str, str, int, int], extra: str = "") -> DataFrame:
    """Rows of offset ``id``, each this many times."""
    many = spark.createDataFrame(list(given), DDL).selectExpr("*", "explode(sequence(1, times)) AS n")
    return many.selectExpr(
        "id",
        "CAST(at AS TIMESTAMP) AS at",
        "map('kind', kind) AS labels",
        "date_add(DATE'2026-01-01', day) AS date",
        "named_struct('partition', 0, 'offset', CAST(id AS BIGINT), 'timestamp', timestamp_seconds(id)) AS kafka",
        *([extra] if extra else []),
    )


def test_rows_are_told_apart_down_to_a_microsecond_and_by_nothing_that_is_not_in_them(spark: SparkSession) -> None:
    """Procedure: rows that stay, change by a microsecond or in a map, move, come, go, and one that is there twice; the
    new ones have their columns in another order and case, and one more that is null.
    """
    noon, later = "2026-01-01 12:00:00", "2026-01-01 12:00:00.000001"
    was = rows(
        spark, (1, noon, "a", 0, 1), (2, noon, "a", 0, 1), (3, noon, "a", 0, 1), (4, noon, "a", 0, 1),
        (5, noon, "a", 0, 1), (7, noon, "a", 0, 2),
    )  # fmt: skip
    now = rows(
        spark, (1, noon, "a", 0, 1), (2, later, "a", 0, 1), (3, noon, "b", 0, 1), (4, noon, "a", 1, 1),
        (6, noon, "a", 0, 1), (7, noon, "a", 0, 1), extra="CAST(NULL AS string) AS new",
    ).selectExpr("kafka", "new", "date AS DATE", "labels", "at", "id")  # fmt: skip

    both = compare(was, now, STREAM)

    assert {r["offset"]: r["change"] for r in both.where("now IS NOT NULL").collect()} == {
        1: "same", 2: "changed", 3: "changed", 4: "moved", 6: "added", 7: "same",
    }  # fmt: skip
    assert change_counts(both) == {"changed": 2, "moved": 1, "added": 1, "gone": 2, "same": 2}
    told = sorted((r["id"], r["_change_type"]) for r in change_feed(both.where("change <> 'same'")).collect())
    assert told == [
        *((2, "delete"), (2, "insert"), (3, "delete"), (3, "insert"), (4, "delete"), (4, "insert")),
        *((5, "delete"), (6, "insert"), (7, "delete")),
    ]
    assert [(m.was.day, m.now.day, m.rows) for m in moved(both)] == [(1, 2, 1)]
    assert {(e.change, e.at[1]) for e in examples(both, STREAM)} == {
        ("changed", 2), ("changed", 3), ("moved", 4), ("added", 6), ("gone", 5), ("gone", 7),
    }  # fmt: skip
