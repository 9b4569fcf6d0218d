"""The second look at a drain's messages is for those that were condemned, and misses none of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, Observation, SparkSession

from kdi_assets.drain.judge import condemned, counted, judge, suspects
from kdi_assets.drain.records import stream_decoder
from kdi_assets.drain.verdict import Counts
from tests.judged import stream_of

STREAM = stream_of("id int")
MESSAGES = 40_000


@pytest.mark.parametrize(("every", "most"), [(1000, 60), (1, MESSAGES)])
def test_all_that_were_condemned_are_looked_at_again_and_few_others(spark: SparkSession, every: int, most: int) -> None:
    messages = _messages(spark, f"id % {every} = 0")
    counts = _judged(messages)
    assert counts.dead_letters == MESSAGES // every

    again = suspects(messages, counts)

    assert again.count() <= most
    found = condemned(again, STREAM, stream_decoder(STREAM), now=datetime.now(UTC))
    assert {row.offset for row in found.select("offset").collect()} == set(range(0, MESSAGES, every))


def test_where_nothing_was_condemned_nothing_is_looked_at(spark: SparkSession) -> None:
    messages = _messages(spark, "false")
    assert suspects(messages, _judged(messages)).isEmpty()


def _messages(spark: SparkSession, bad: str) -> DataFrame:
    return spark.range(MESSAGES).selectExpr(
        "CAST(NULL AS BINARY) AS key",
        f"""CAST(CASE WHEN {bad} THEN '{{' ELSE '{{"id": 1}}' END AS BINARY) AS value""",
        "'t' AS topic",
        "CAST(id % 3 AS INT) AS partition",
        "id AS offset",
        "current_timestamp() AS timestamp",
        "0 AS timestampType",
        "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
    )


def _judged(messages: DataFrame) -> Counts:
    seen, decoder, now = Observation(), stream_decoder(STREAM), datetime.now(UTC)
    rows = judge(messages, STREAM, decoder, now=now, topic_partitions=3, counts=seen)
    rows.write.format("noop").mode("overwrite").save()
    return counted(seen, STREAM)
