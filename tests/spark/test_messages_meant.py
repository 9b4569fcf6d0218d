"""The messages of dates, counted in one look: those that are meant, and rows that are of none."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import SparkSession

from kdi_assets.replay.meant import grouped

AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_rows_that_do_not_say_where_their_message_stood_are_counted_and_are_no_messages(spark: SparkSession) -> None:
    rows = [(0, 5, AT, 1), (0, 6, AT, 4), (0, 9, AT, 1), (1, 3, AT, 2), (None, None, None, 3), (1, 2, None, 2)]
    letters = [(0, 8, AT, 1), (0, 9, AT, 1)]
    frame = spark.createDataFrame(
        [*((*row, False) for row in rows), *((*letter, True) for letter in letters)],
        "partition int, offset bigint, timestamp timestamp, rows bigint, is_letter boolean",
    )

    found = grouped(frame).collect()

    told = {(r["placed"], r["partition"], r["is_letter"]): (r["n"], r["start"], r["end"], r["rows"]) for r in found}
    assert told == {
        (True, 0, False): (3, 5, 10, 6),
        (True, 0, True): (2, 8, 10, 2),
        (True, 1, False): (1, 3, 4, 2),
        (False, None, False): (1, None, None, 3),
        (False, 1, False): (1, 2, 3, 2),
    }
