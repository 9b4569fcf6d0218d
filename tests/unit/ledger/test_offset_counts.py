"""The audit without Spark: what counts and digests prove, and what is left to Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.coordinates import digest_of
from kdi_assets.streams.audit.audit import AuditReport, audit
from kdi_assets.streams.ledger.entry import LedgerEntry, RangeCounts
from kdi_assets.streams.ledger.entry_json import entry_to_json
from tests.table_by_hand import TOPIC, orders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = orders(coordinates="meta.kafka")
P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
LETTER, TOMBSTONE, SEVERAL = 3, 7, 5
"""Offsets in each topic partition, of ten: of the dead letter, the tombstone, and a message with three rows."""
AT = datetime(2026, 1, 1, tzinfo=UTC)
Rows = list[tuple[int | None, int | None, int | None, int | None]]
"""Partition, offset, and index and count where the message has several rows."""
Letter = tuple[int, int, str, str | None]
"""Partition, offset, attempt id, and the outcome of a letter."""
ROWS: Rows = [
    (partition, offset, *place)
    for partition in (0, 1)
    for offset in range(10)
    if offset not in (LETTER, TOMBSTONE)
    for place in (((0, 3), (1, 3), (2, 3)) if offset == SEVERAL else ((None, None),))
]
LETTERS: list[Letter] = [(0, LETTER, "drain", None), (1, LETTER, "drain", None)]
START = LedgerEntry(0, "start", STREAM.app_id, "start", TOPIC, "topic", "table", {P0: 0, P1: 0})
DRAIN = replace(
    START,
    version=1,
    kind="drain",
    attempt_id="drain",
    positions={P0: 10, P1: 10},
    ranges=tuple(RangeCounts(OffsetRange(tp, 0, 10), 8, 1, 1) for tp in (P0, P1)),
    digest=digest_of([OffsetRange(P0, 0, 10), OffsetRange(P1, 0, 10)]),
    tombstone_digest=digest_of([OffsetRange(tp, TOMBSTONE, TOMBSTONE + 1) for tp in (P0, P1)]),
)
REPLAY = replace(START, version=2, kind="replay", attempt_id="replay-1", positions=DRAIN.positions, returned={P0: 1})
CONDEMNED = replace(REPLAY, version=3, attempt_id="replay-2", returned={P0: -1})


class SparkAsked(Exception):
    """The audit needs Spark."""


def session() -> SparkSession:
    raise SparkAsked


def audited(
    lake: str, rows: Rows, letters: Sequence[Letter] = (), entries: Sequence[LedgerEntry] = (START, DRAIN)
) -> AuditReport:
    """An audit of a table with these rows; the last entries' commits are empty."""
    places = [dict(zip(("partition", "offset", "index", "count"), row, strict=True)) for row in rows]
    kafka = pa.struct({"partition": pa.int32(), "offset": pa.int64(), "index": pa.int32(), "count": pa.int32()})
    table = pa.table({"meta": pa.array([{"kafka": p} for p in places], pa.struct({"kafka": kafka}))})
    for entry in entries:
        told = CommitProperties(custom_metadata={"userMetadata": entry_to_json(entry)})
        added = table if entry is entries[min(1, len(entries) - 1)] else table.slice(0, 0)
        write_deltalake(STREAM.table_uri(lake), added, mode="append", commit_properties=told)
    if letters:
        columns: list[Any] = [list(column) for column in zip(*letters, strict=True)]
        types = {"partition": pa.int32(), "offset": pa.int64(), "attempt_id": pa.string(), "outcome": pa.string()}
        kept = pa.table(dict(zip(types, map(pa.array, columns, types.values()), strict=True)))
        kept = kept.append_column("timestamp", pa.array([AT] * len(letters)))
        kept = kept if kept["outcome"].null_count < len(kept) else kept.drop_columns("outcome")
        write_deltalake(STREAM.dead_letters_uri(lake), kept)
    return audit(STREAM, lake=lake, session=session)


def without(*offsets: int) -> Rows:
    """All rows except these offsets of topic partition 0."""
    return [row for row in ROWS if row[0] != 0 or row[1] not in offsets]


def more(*offsets: int) -> Rows:
    """Rows at these offsets of topic partition 0."""
    return [(0, offset, None, None) for offset in offsets]


def test_a_complete_table_needs_no_spark(lake: str) -> None:
    report = audited(lake, ROWS, [*LETTERS, (0, 8, "a try that never committed", None)])

    assert (report.complete, report.offsets, report.became_rows, report.rows) == (True, 20, 16, 20)
    assert (report.dead_letters, report.tombstones, report.orphaned_dead_letters) == (2, 2, 1)


def test_a_dead_letter_that_became_a_row_or_a_dead_letter_again_needs_no_spark(lake: str) -> None:
    """Procedure: a replay makes a row of a letter; in a second table another one makes a letter of it again."""
    replayed = [*LETTERS, (0, LETTER, "replay-1", "row"), (1, LETTER, "replay-of-nobody", "row")]

    row = audited(f"{lake}/row", [*ROWS, *more(LETTER)], replayed, (START, DRAIN, REPLAY))
    letter = audited(
        f"{lake}/letter", ROWS, [*replayed, (0, LETTER, "replay-2", None)], (START, DRAIN, REPLAY, CONDEMNED)
    )

    assert (row.complete, row.became_rows, row.dead_letters) == (True, 17, 1)
    assert (letter.complete, letter.became_rows, letter.dead_letters) == (True, 16, 2)


def test_rows_from_before_the_takeover_need_no_spark(lake: str) -> None:
    takeover = replace(START, kind="takeover", attempt_id="takeover")
    before: Rows = [(0, -3, None, None), (None, None, None, None)]

    report = audited(lake, [*before, *ROWS], LETTERS, (takeover, DRAIN))

    assert (report.complete, report.rows) == (True, 20)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(without(1), id="one missing"),
        pytest.param([*ROWS, *more(1)], id="one twice"),
        pytest.param([*without(1, 2), *more(4, 4)], id="one three times and two missing"),
        pytest.param([*without(1, 2), *more(4, 6)], id="two twice and two missing"),
        pytest.param([*without(1), (1, 1, None, None)], id="one in another topic partition"),
        pytest.param([*without(0), (0, None, None, None)], id="one without an offset in the place of the first"),
        pytest.param([*ROWS, (None, None, None, None)], id="one without coordinates"),
        pytest.param([*ROWS, (2**31 - 1, 0, None, None)], id="one of a topic partition that there cannot be"),
        pytest.param([*without(SEVERAL), (0, SEVERAL, 0, 3), (0, SEVERAL, 1, 3)], id="one of several rows missing"),
        pytest.param([*without(SEVERAL), *[(0, SEVERAL, 0, 3)] * 3], id="a message's first row in the place of others"),
        pytest.param(
            [*without(SEVERAL), *[(0, SEVERAL, index, 3) for index in (0, 1, 1)]], id="a row in the place of another"
        ),
        pytest.param(more(LETTER), id="nothing of it"),
    ],
)
def test_rows_that_differ_from_the_entries_need_spark(lake: str, rows: Rows) -> None:
    with pytest.raises(SparkAsked):
        audited(lake, rows, LETTERS)


@pytest.mark.parametrize(
    ("letters", "entries"),
    [
        pytest.param([], (START, DRAIN), id="no dead-letter table"),
        pytest.param(LETTERS[:1], (START, DRAIN), id="one missing"),
        pytest.param([*LETTERS[:1], (1, LETTER, "another", None)], (START, DRAIN), id="one of a try that failed"),
        pytest.param([*LETTERS, *LETTERS], (START, DRAIN), id="each twice"),
        pytest.param([*LETTERS, (0, LETTER, "another", "row")], (START, DRAIN, REPLAY), id="a replay that failed"),
        pytest.param(LETTERS, (START, DRAIN, replace(REPLAY, kind="resolve", positions={P0: 4, P1: 10})), id="rewound"),
    ],
)
def test_dead_letters_that_differ_from_the_entries_need_spark(
    lake: str, letters: list[Letter], entries: tuple[LedgerEntry, ...]
) -> None:
    with pytest.raises(SparkAsked):
        audited(lake, ROWS, letters, entries)


def test_a_table_without_the_columns_of_the_coordinates_needs_spark(lake: str) -> None:
    audited(lake, ROWS, LETTERS)

    with pytest.raises(SparkAsked):
        audit(replace(STREAM, coordinates="kafka"), lake=lake, session=session)


def test_a_data_file_that_cannot_be_read_needs_spark(lake: str) -> None:
    audited(lake, ROWS, LETTERS)
    (file,) = Path(STREAM.table_uri(lake)).glob("*.parquet")
    file.write_bytes(file.read_bytes()[:100])

    with pytest.raises(SparkAsked):
        audit(STREAM, lake=lake, session=session)
