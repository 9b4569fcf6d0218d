"""Offsets in Spark: messages identified by their rows, counted by date, and digests equal to those of arithmetic."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from random import Random

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.coordinates import DIGEST_SQL, digest_of
from kdi_assets.streams.audit.offsets_in_spark import OffsetCounts, count_offsets, merge_rows_of_messages
from kdi_assets.streams.ledger.rewrite import MESSAGE
from kdi_assets.streams.replay.selected_messages import grouped

OLD, NEW = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)
Rows = list[tuple[int, int, int, datetime]]
"""Offset, index, count and time of each."""


def rows(offset: int, *indexes: int, of: int, at: datetime = OLD) -> Rows:
    return [(offset, index, of, at) for index in indexes]


OTHERS = [*rows(1, 0, of=1), *rows(2, 0, 1, of=2), *rows(3, 1, 2, 0, of=3)]
CASES: list[tuple[str, Rows, bool, dict[int, int]]] = [
    ("whole", rows(7, 0, 1, 2, of=3), True, {7: 1}),
    ("not there", [], True, {}),
    ("there twice", rows(7, 0, 0, 1, 1, 2, 2, of=3), True, {7: 2}),
    ("another one in a topic made anew", [*rows(7, 0, 1, of=2), *rows(7, 0, 1, 2, of=3, at=NEW)], True, {7: 2}),
    ("the first lost", rows(7, 1, 2, of=3), False, {}),
    ("one between lost", rows(7, 0, 2, of=3), False, {}),
    ("the last lost", rows(7, 0, 1, of=3), False, {}),
    ("the last of two lost", rows(7, 0, of=2), False, {}),
    ("the first of two lost", rows(7, 1, of=2), False, {}),
    ("one twice", rows(7, 0, 1, 1, 2, of=3), False, {7: 2}),
    ("one of two twice", rows(7, 0, 1, 1, of=2), False, {7: 2}),
    ("one of two three times", rows(7, 0, 1, 1, 1, of=2), False, {7: 3}),
    ("one in the place of another", rows(7, 0, 0, of=2), False, {}),
    ("one lost, one of another message twice", [*rows(7, 0, 1, of=3), *rows(8, 0, 1, 1, of=2)], False, {8: 2}),
]
"""The rows of a topic partition beside the others; whether each message has all its rows; how often each is there."""


@pytest.fixture(scope="module", name="told")
def _told(spark: SparkSession) -> tuple[dict[int, OffsetCounts], dict[int, Counter[int]]]:
    """The cases as topic partitions of one table."""
    all_rows = [(number, *row) for number, case in enumerate(CASES) for row in [*OTHERS, *case[1]]]
    frame = spark.createDataFrame(all_rows, "partition int, offset bigint, index int, count int, timestamp timestamp")
    found = frame.selectExpr("*", "true AS is_row", "true AS counts", "1L AS rows")
    messages: dict[int, Counter[int]] = {number: Counter() for number in range(len(CASES))}
    for message in merge_rows_of_messages(found).collect():
        messages[message["partition"]][message["offset"]] += 1
    return count_offsets(found), messages


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case[0] for case in CASES])
def test_a_message_is_whole_only_if_each_of_its_rows_is_there_as_often_as_the_others(
    told: tuple[dict[int, OffsetCounts], dict[int, Counter[int]]], number: int
) -> None:
    _, case, whole, there = CASES[number]
    found, messages = told[0][number], told[1][number]

    assert found.is_whole == whole
    assert messages == {1: 1, 2: 1, 3: 1, **there}
    assert (found.rows, found.letters, found.orphaned) == (len(OTHERS) + len(case), 0, 0)
    assert found.became_rows == 3 + sum(index == 0 for _, index, _, _ in case)


AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_rows_without_coordinates_are_counted_and_are_no_messages(spark: SparkSession) -> None:
    rows = [(0, 5, AT, 1), (0, 6, AT, 4), (0, 9, AT, 1), (1, 3, AT, 2), (None, None, None, 3), (1, 2, None, 2)]
    letters = [(0, 8, AT, 1), (0, 9, AT, 1)]
    frame = spark.createDataFrame(
        [*((*row, False) for row in rows), *((*letter, True) for letter in letters)],
        "partition int, offset bigint, timestamp timestamp, rows bigint, is_letter boolean",
    )

    found = grouped(frame, placed=" AND ".join(f"{column} IS NOT NULL" for column in MESSAGE)).collect()

    told = {(r["placed"], r["partition"], r["is_letter"]): (r["n"], r["start"], r["end"], r["rows"]) for r in found}
    assert told == {
        (True, 0, False): (3, 5, 10, 6),
        (True, 0, True): (2, 8, 10, 2),
        (True, 1, False): (1, 3, 4, 2),
        (False, None, False): (1, None, None, 3),
        (False, 1, False): (1, 2, 3, 2),
    }


def test_the_digest_of_ranges_is_that_of_the_offsets_in_them(spark: SparkSession) -> None:
    random = Random(7)
    ranges = [OffsetRange(TopicPartition("orders", 3), 0, 1_300_000)]
    starts = [0, 1, 2**31 - 2, 2**40, 2**62, *(random.randrange(2**62) for _ in range(200))]
    ranges += [OffsetRange(TopicPartition("orders", n), at, at + n % 9) for n, at in enumerate(starts, 4)]
    rows = [(r.topic_partition.partition, r.start, r.end) for r in ranges if r.offset_count]

    frame = spark.createDataFrame(rows, "partition int, start bigint, end bigint")
    offsets = frame.selectExpr("partition", "explode(sequence(start, end - 1)) AS offset")
    (answer,) = offsets.selectExpr(f"{DIGEST_SQL} AS digest").collect()

    assert digest_of(ranges) == answer["digest"]
    assert digest_of([]) == 0
