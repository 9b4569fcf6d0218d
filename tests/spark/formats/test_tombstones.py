"""`tombstones`: what a message without a value becomes, in every format."""

from __future__ import annotations

import gzip
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.message_format import Bytes, Csv, Text
from kdi_assets.documents.model.message_rules import Expectation
from kdi_assets.documents.model.stream import Stream
from kdi_assets.streams.rules.errors import ShapeMistake
from kdi_assets.streams.rules.shape import analyse
from kdi_assets.streams.rules.verdict import TOMBSTONE
from tests.judged import Message, judged, stream_of

PEOPLE = stream_of(
    "name string, at date",
    date_expression="coalesce(at, current_date())",
    columns={"id": "CAST(kafka.key AS STRING)", "deleted": "kafka.tombstone"},
    tombstones="row",
)
ANN = '{"name": "Ann", "at": "2026-03-01"}'


def test_filter_and_expectations_judge_a_tombstone_that_is_to_be_a_row(spark: SparkSession) -> None:
    expected = {"named": Expectation("name IS NOT NULL OR kafka.tombstone", "dead_letter")}
    people = replace(PEOPLE, filter="kafka.key = 'a'", expectations=expected)

    found = judged(
        spark, people, [Message(None, b"a"), Message(None, b"b"), Message(ANN, b"a"), Message("{}", b"a"), "bad"]
    )

    assert [(row["id"], row["name"], row["deleted"]) for row in found.rows] == [("a", None, True), ("a", "Ann", False)]
    assert [letter["reason"] for letter in found.letters] == ["expectation_not_met", "malformed_json"]


@pytest.mark.parametrize(
    ("fields", "good", "bad"),
    [
        ({"format": Text(), "record_ddl": "name string"}, b"Ann", b"\xff"),
        (
            {"format": Bytes(), "record_ddl": "name binary", "compression": "gzip"},
            gzip.compress(b"Ann", mtime=0),
            b"Ann",
        ),
        ({"format": Csv(), "record_ddl": "name string, n int"}, b"Ann,1", b"Ann"),
    ],
)
def test_tombstones_are_rows_in_every_format(
    spark: SparkSession, fields: dict[str, Any], good: bytes, bad: bytes
) -> None:
    people: Stream = replace(PEOPLE, **{"date_expression": "current_date()", **fields})

    found = judged(spark, people, [None, good, bad])
    skipped = judged(spark, replace(people, tombstones="skip"), [None, good, bad])

    gone, there = found.rows
    assert (gone["name"], gone["id"], gone["deleted"]) == (None, "the key", True)
    assert (there["name"] in ("Ann", b"Ann"), there["deleted"]) == (True, False)
    assert [letter["offset"] for letter in found.letters] == [2]
    assert (found.counts.rows, found.counts.dead_letters) == (2, 1)
    assert (skipped.counts.rows, skipped.counts.not_rows[0, TOMBSTONE]) == (1, 1)


def test_a_tombstone_is_a_dead_letter_whatever_the_filter_says(spark: SparkSession) -> None:
    people = replace(PEOPLE, tombstones="dead_letter", filter="name = 'Ann'")

    found = judged(spark, people, [None, ANN, '{"name": "Bob"}'])

    [letter] = found.letters
    assert (letter["offset"], letter["reason"], letter["key"], letter["value"]) == (0, "tombstone", b"the key", None)
    assert [row["name"] for row in found.rows] == ["Ann"]


def test_a_field_that_must_be_there_goes_with_no_tombstone_as_a_row(spark: SparkSession) -> None:
    with pytest.raises(ShapeMistake, match="a tombstone has no name, and the schema says NOT NULL") as refused:
        analyse(replace(PEOPLE, record_ddl="name string NOT NULL, at date"), spark)
    assert refused.value.field == "tombstones"
