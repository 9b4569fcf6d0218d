"""States of dead letters, as an audit counts them and as `kdi dead-letters view` shows them; written by hand."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import Cluster, OffsetRange, Stream, TopicPartition
from kdi_assets.streams.audit.foreign_changes import deleted_letters
from kdi_assets.streams.drain.dead_letters import append_letters
from kdi_assets.streams.ledger.entry import Kind, LedgerEntry, RangeCounts
from kdi_assets.streams.ledger.history import LiveHistory
from kdi_assets.streams.ledger.letters import dead_letters_with_state, letters_without_rows
from kdi_assets.streams.ledger.letters_view import entries_with_dead_letters, select_sql, view_sql
from kdi_assets.streams.replay.dead_letter_filter import DeadLetterGroup, groups

STREAM = Stream("orders", "bronze/orders", "id bigint", "current_date()", Cluster("main", "nowhere:1"))
NOW = datetime(2026, 3, 1, tzinfo=UTC)
TYPES = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_type": pa.int32(),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    "schema_id": pa.int32(),
    "reason": pa.string(),
    "field": pa.string(),
    "attempt_id": pa.string(),
}
LETTER = {"topic": "orders", "partition": 0, "timestamp": NOW, "timestamp_type": 0, "key": b"k", "reason": "bad"}


def entry(version: int, kind: Kind, attempt_id: str) -> LedgerEntry:
    positions = {TopicPartition("orders", 0): 10}
    return LedgerEntry(version, kind, "orders", attempt_id, "orders", "topic", "table", positions)


ENTRIES = (entry(1, "drain", "first"), entry(2, "replay", "again"), entry(3, "drain", "later"))
HISTORY = LiveHistory(3, ENTRIES, 0, ())


def written(lake: str, *letters: Mapping[str, Any], **more: pa.DataType) -> str:
    """Append letters; other columns are empty."""
    uri = STREAM.dead_letters_uri(lake)
    rows = pa.Table.from_pylist([{**LETTER, **letter} for letter in letters], pa.schema({**TYPES, **more}))
    write_deltalake(uri, rows, mode="append", schema_mode="merge")
    return uri


@pytest.fixture
def told(lake: str) -> str:
    """Letters at 5, 6, 7 and 8; those at 5, 6 and 8 became rows, and that at 5 was drained and rejected again."""
    outcome = pa.string()
    letters = ({"offset": offset, "value": b"v", "attempt_id": "first"} for offset in (5, 6, 7, 8))
    again = ({"offset": offset, "attempt_id": "again", "reason": None, "outcome": "row"} for offset in (5, 6, 8))
    ghost = {"offset": 7, "attempt_id": "never committed", "reason": None, "outcome": "row"}
    later = {"offset": 5, "attempt_id": "later", "reason": "worse"}
    return written(lake, *letters, *again, ghost, later, outcome=outcome)


def test_a_row_that_became_a_dead_letter_again_counts_as_one(spark: SparkSession, lake: str, told: str) -> None:
    standing = dead_letters_with_state(spark, STREAM, lake, HISTORY)
    counted = letters_without_rows(spark, told, ENTRIES)

    assert {(r["offset"], r["state"], r["reason"]) for r in standing.collect()} == {
        (5, "open", "worse"),
        (6, "resolved", "bad"),
        (7, "open", "bad"),
        (8, "resolved", "bad"),
    }
    assert sorted((r["offset"], r["counts"]) for r in counted.collect()) == [(5, True), (7, True)]


def test_dead_letters_of_messages_that_were_not_read_again_stay_open(spark: SparkSession, lake: str) -> None:
    """Procedure: a drain of [0, 10) rejects 5 to 9, of which 6 became a row since and 9 was discarded; a decision
    removes rows from 5 on; another one gives [5, 8) up; the next drain reads 8 and 9.
    """
    written(lake, *({"offset": offset, "attempt_id": "first"} for offset in range(5, 10)), outcome=pa.string())
    again = ({"offset": offset, "attempt_id": "again", "reason": None} for offset in (6, 9))
    written(lake, *({**r, "outcome": o} for r, o in zip(again, ("row", "discarded"), strict=True)), outcome=pa.string())
    tp = TopicPartition("orders", 0)
    drained = replace(ENTRIES[0], ranges=(RangeCounts(OffsetRange(tp, 0, 10)),))
    removed = replace(entry(3, "resolve", "removed"), positions={tp: 5})
    given_up = replace(entry(4, "resolve", "given up"), positions={tp: 8})
    rest = replace(entry(5, "drain", "rest"), ranges=(RangeCounts(OffsetRange(tp, 8, 10)),))

    def states(*entries: LedgerEntry) -> list[str]:
        history = LiveHistory(5, (drained, ENTRIES[1], *entries), 0, ())
        found = dead_letters_with_state(spark, STREAM, lake, history)
        return [r["state"] for r in found.orderBy("offset").collect()]

    assert states() == ["open", "resolved", "open", "open", "discarded"]
    assert states(removed) == states(removed, given_up) == ["open", "open", "open", "open", "discarded"]
    assert states(removed, given_up, rest) == ["open", "open", "open", "resolved", "resolved"]


def test_letters_are_counted_by_date_state_and_reason(spark: SparkSession, lake: str, told: str) -> None:
    written(lake, {"offset": 9, "attempt_id": "later", "timestamp": NOW - timedelta(seconds=1), "field": "a.b"})
    letters = dead_letters_with_state(spark, STREAM, lake, HISTORY)

    counted = groups(letters, "orders", "date")

    day, before, at = NOW.date(), NOW.date() - timedelta(days=1), TopicPartition("orders", 0)
    assert set(counted) == {
        DeadLetterGroup("open", "bad", "a.b", 1, before, before, (at, 9)),
        DeadLetterGroup("open", "bad", "", 1, day, day, (at, 7)),
        DeadLetterGroup("open", "worse", "", 1, day, day, (at, 5)),
        DeadLetterGroup("resolved", "bad", "", 2, day, day, (at, 6)),
    }
    assert [g.state for g in counted] == ["open", "open", "open", "resolved"]


def test_letters_are_counted_by_the_days_of_their_timestamps_when_written(spark: SparkSession, lake: str) -> None:
    """In UTC, and only for the requested dates."""
    moments = [NOW, NOW - timedelta(microseconds=1), NOW - timedelta(days=400), NOW - timedelta(days=1)]
    schema = "partition int, offset bigint, timestamp timestamp"
    letters = spark.createDataFrame([(0, n, at) for n, at in enumerate(moments)], schema).repartition(3)

    appended = append_letters(
        letters, f"{lake}/counted", attempt_id="a", between=(date(2026, 1, 1), NOW.date() + timedelta(days=2))
    )

    assert (appended.count, appended.by_date) == (4, {date(2026, 2, 28): 2, date(2026, 3, 1): 1})


def test_few_letters_make_the_same_table_as_many(spark: SparkSession, lake: str) -> None:
    """Purpose: delta-rs creates the table of a drain with few letters, and no reader or later writer sees a difference.
    Procedure: create a table by Spark and one by delta-rs, then append the other way to both.
    Pass: the same columns, properties and protocol; the same letters, counted alike.
    """
    columns = "topic string, partition int not null, offset bigint, timestamp timestamp, key binary, value binary, "
    more = "headers array<struct<key: string, value: binary>>, withheld boolean"
    rows = [("orders", 0, n, NOW, b"k", None, [("h", b"v")] if n else None, False) for n in range(3)]
    letters, uris = spark.createDataFrame(rows, columns + more), {few: f"{lake}/{few}" for few in (True, False)}

    made = {few: append_letters(letters, uri, attempt_id="a", few=few) for few, uri in uris.items()}
    tables = {few: DeltaTable(uri) for few, uri in uris.items()}
    again = {few: append_letters(letters, uri, attempt_id="b", few=not few) for few, uri in uris.items()}

    assert tables[True].schema().to_json() == tables[False].schema().to_json()
    assert tables[True].metadata().configuration == tables[False].metadata().configuration
    assert tables[True].protocol() == tables[False].protocol()
    for appended in (made, again):
        assert (appended[True].count, appended[True].digest) == (appended[False].count, appended[False].digest)
    read = {few: sorted(map(repr, DeltaTable(uri).to_pyarrow_table().to_pylist())) for few, uri in uris.items()}
    assert read[True] == read[False] and len(read[True]) == 6


def test_drains_that_create_the_table_at_once_are_all_in_it(spark: SparkSession, lake: str) -> None:
    letters = spark.createDataFrame([(0, 1, NOW)], "partition int, offset bigint, timestamp timestamp")
    append = partial(append_letters, letters, f"{lake}/at_once", few=True)

    with ThreadPoolExecutor(4) as drains:
        appended = list(drains.map(lambda n: append(attempt_id=f"a{n}"), range(4)))

    found = DeltaTable(f"{lake}/at_once").to_pyarrow_table()["attempt_id"].to_pylist()
    assert sorted(found) == ["a0", "a1", "a2", "a3"] and [one.count for one in appended] == [1, 1, 1, 1]


def test_only_a_deleted_dead_letter_explains_a_missing_one(spark: SparkSession, told: str) -> None:
    """Its row does not: that it is or was there says nothing about the row that it became."""
    DeltaTable(told).delete("offset IN (7, 8)")
    missing = spark.createDataFrame([(0, 6), (0, 7), (0, 8)], "partition int, offset bigint")

    taken = deleted_letters(spark, TableLog.open(told), ENTRIES, missing)

    assert [(r["offset"], r["changed_by"]) for r in taken.collect()] == [(7, 1)]


DRAINED = datetime(2026, 3, 1, 10, 30, 15, 250_000, tzinfo=UTC)
COUNTED = RangeCounts(OffsetRange(TopicPartition("orders", 0), 0, 9), dead_letters=9)
_TIMED = (replace(e, ranges=(COUNTED,), planned_at=DRAINED if e.attempt_id == "first" else NOW) for e in ENTRIES)
TIMED = LiveHistory(3, tuple(_TIMED), 0, ())
GZIPPED = gzip.compress(b'{"id": 1}')
LETTERS = {
    b'{"id": "x", "a": [1, 2.50]}': ('{"id": "x", "a": [1, 2.50]}', None),
    b"null": ("null", None),
    b"1e400": ("1e400", None),
    **{odd: (None, odd) for odd in (b'{"id": 1} and more', b"1, 2", b"1], [2", b'{"id": ', b"\xff\xfe")},
    b'{"id": "\xff"}': (None, b'{"id": "\xff"}'),
    GZIPPED: (None, GZIPPED),
    b"": (None, b""),
}
"""Values, and what they are: unchanged JSON, or other bytes."""


def test_the_view_has_the_four_columns_of_kafka_delta_ingest(spark: SparkSession, lake: str) -> None:
    letters = ({"offset": n, "value": v, "field": "id", "attempt_id": "first"} for n, v in enumerate(LETTERS))
    again = {"offset": 0, "value": b"[]", "reason": "worse", "attempt_id": "later"}
    ghost = {"offset": 20, "value": b"{}", "attempt_id": "never committed"}
    withheld = {"offset": 21, "value": None, "attempt_id": "later"}
    written(lake, *letters, again, ghost, withheld)
    before = spark.sql(select_sql(STREAM, lake, entries_with_dead_letters(TIMED))).collect()
    became_a_row = {"offset": 1, "reason": None, "outcome": "row", "attempt_id": "again"}
    written(lake, became_a_row, outcome=pa.string())

    spark.sql(view_sql("letters", select_sql(STREAM, lake, entries_with_dead_letters(TIMED))))

    seen = spark.sql("SELECT * FROM letters").collect()
    assert sorted(map(str, seen)) == sorted(map(str, before)), "what became of one later is no letter"
    named = [f"{f.name} {f.dataType.simpleString()}" for f in spark.table("letters").schema.fields]
    assert named == ["base64_bytes string", "json_string string", "error string", "timestamp timestamp"]
    found = {(r["json_string"], None if (raw := r["base64_bytes"]) is None else base64.b64decode(raw)) for r in seen}
    assert found == {*list(LETTERS.values())[1:], ("[]", None), (None, None)}
    by_error = {r["error"]: r["timestamp"].astimezone(UTC) for r in seen}
    assert by_error == {"bad in id": DRAINED, "worse": NOW, "bad": NOW}


@pytest.mark.parametrize("history", [LiveHistory(0, (), 0, ()), TIMED], ids=["no drain", "no letters"])
def test_without_dead_letters_the_view_is_empty(spark: SparkSession, lake: str, history: LiveHistory) -> None:
    seen = spark.sql(select_sql(STREAM, lake, entries_with_dead_letters(history)))

    assert (seen.columns, seen.count()) == (["base64_bytes", "json_string", "error", "timestamp"], 0)


def test_a_view_with_a_schema_in_its_name_is_permanent() -> None:
    assert view_sql("a`b", "SELECT 1") == "CREATE OR REPLACE TEMPORARY VIEW `a``b` AS\nSELECT 1"
    assert view_sql("audit.letters", "SELECT 1") == "CREATE OR REPLACE VIEW `audit`.`letters` AS\nSELECT 1"
