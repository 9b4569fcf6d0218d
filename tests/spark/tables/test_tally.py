"""A pass counts its messages, and keeps its dead letters while they are few."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession

from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.coordinates import digest_of
from kdi_assets.streams.ledger.entry import BUCKETS_PER_OCTAVE, HIGHEST_BUCKET, LOWEST_BUCKET
from kdi_assets.streams.rules import tally as tallies
from kdi_assets.streams.rules.judge import judge, letters_of, to_dead_letters
from kdi_assets.streams.rules.records import stream_decoder
from kdi_assets.streams.rules.tally import Counts, PassTally
from tests.judged import stream_of

STREAM = stream_of("id int", date_expression="DATE'2026-03-01'")
MESSAGES = 4_000
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_letters_that_a_pass_kept_are_those_of_a_second_look(spark: SparkSession) -> None:
    messages = _messages(spark, "id % 1000 = 0")
    counts = _judged(messages)

    assert counts.letters is not None
    kept = counts.letters.collect()
    assert [(row.partition, row.offset, row.reason) for row in kept] == [
        (0, 0, "malformed_json"),
        (0, 3000, "malformed_json"),
        (1, 1000, "malformed_json"),
        (2, 2000, "malformed_json"),
    ]
    again = to_dead_letters(messages, stream_decoder(STREAM), now=NOW)
    assert again.schema.simpleString() == counts.letters.schema.simpleString()
    assert sorted(again.collect()) == sorted(kept)


def test_too_many_letters_to_keep_are_looked_for_once_more(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tallies, "LETTERS_BYTES", 100_000)
    messages = _messages(spark, "true")
    counts = _judged(messages)

    assert (counts.dead_letters, counts.letters) == (MESSAGES, None)
    letters = letters_of(messages, stream_decoder(STREAM), counts, now=NOW)
    assert {row.offset for row in letters.select("offset").collect()} == set(range(MESSAGES))


def test_a_tally_is_of_every_message_once(spark: SparkSession) -> None:
    counts = _judged(_messages(spark, "id % 10 = 0").repartition(7))

    assert (counts.messages, counts.became_rows, counts.rows) == (MESSAGES, 3_600, 3_600)
    assert sum(counts.not_rows.values()) == counts.dead_letters == 400
    assert {partition for partition, _ in counts.not_rows} == {0, 1, 2}
    spread = [range(start, MESSAGES, 3) for start in range(3)]
    every = [OffsetRange(TopicPartition("t", p), offset, offset + 1) for p, of in enumerate(spread) for offset in of]
    assert counts.digest == digest_of(every)
    assert counts.message_bytes == 3_600 * len('{"id": 1}') + 400 * len("{")


def test_ages_are_told_in_buckets_and_messages_without_a_time_in_none(spark: SparkSession) -> None:
    seconds = {8: "id = 0", 0.01: "id = 1", 10**12: "id = 2"}
    aged = " ".join(f"WHEN {of} THEN TIMESTAMP_MICROS({_micros(ago)})" for ago, of in seconds.items())
    messages = (
        _messages(spark, "false")
        .where("id < 4")
        .selectExpr(
            *("key", "value", "topic", "partition", "offset"),
            f"CASE {aged.replace('id', 'offset')} ELSE TIMESTAMP_MILLIS(-1) END AS timestamp",
            *("timestampType", "headers"),
        )
    )

    assert _judged(messages).ages == {3 * BUCKETS_PER_OCTAVE: 1, LOWEST_BUCKET: 1, HIGHEST_BUCKET: 1}


def _micros(seconds_ago: float) -> int:
    return max(0, round((NOW.timestamp() - seconds_ago) * 1e6))


def _messages(spark: SparkSession, bad: str) -> DataFrame:
    return spark.range(MESSAGES).selectExpr(
        "CAST(NULL AS BINARY) AS key",
        f"""CAST(CASE WHEN {bad} THEN '{{' ELSE '{{"id": 1}}' END AS BINARY) AS value""",
        "'t' AS topic",
        "CAST(id % 3 AS INT) AS partition",
        "id AS offset",
        "TIMESTAMP'2026-03-01 11:59:00Z' AS timestamp",
        "0 AS timestampType",
        "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
    )


def _judged(messages: DataFrame) -> Counts:
    tally, decoder = PassTally(messages.sparkSession, STREAM, NOW), stream_decoder(STREAM)
    judge(messages, decoder, now=NOW, tally=tally).write.format("noop").mode("overwrite").save()
    return tally.counts(STREAM)
