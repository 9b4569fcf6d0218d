"""From offsets back to records: the spans that count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kdi_assets.ledger.bookmarks import Bookmark, Span
from kdi_assets.ledger.entry import LedgerEntry, RangeCounts
from kdi_assets.ledger.spans import spans_back, spans_of
from kdi_assets.stream.stream import OffsetRange, TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
Ranges = Mapping[TopicPartition, tuple[int, int]]


def entry(version: int, at: Mapping[TopicPartition, int], read: Ranges | None = None, **fields: Any) -> LedgerEntry:
    """An entry that read ranges of shards; its sequence numbers are its numbers."""
    ranges = tuple(RangeCounts(OffsetRange(tp, *numbers)) for tp, numbers in (read or {}).items())
    spans = {r.range.topic_partition: Span(str(r.range.start), str(r.range.end - 1), 1, 0) for r in ranges}
    marks = {tp: Bookmark(str(position - 1) if position else "") for tp, position in at.items()}
    given = {"app_id": "a", "attempt_id": "", "topic": "orders", "topic_id": "t", "table_id": "", **fields}
    return LedgerEntry(version, "drain", positions=at, ranges=ranges, spans=spans, bookmarks=marks, **given)


DRAINED = [
    entry(4, {A: 30, B: 25}, {A: (20, 30), B: (15, 25)}),
    entry(3, {A: 20, B: 15}, {B: (10, 15)}),
    entry(2, {A: 20, B: 10}, {A: (10, 20), B: (0, 10)}),
    entry(1, {A: 10}, {A: (0, 10)}),
    entry(0, {A: 0}),
]


def test_spans_are_found_as_far_back_as_their_offsets_lie() -> None:
    read = iter(DRAINED)

    found = spans_of(read, [OffsetRange(A, 25, 27), OffsetRange(B, 12, 14)])

    assert {tp: [s.range.start for s in spans] for tp, spans in found.items()} == {A: [20], B: [10, 15]}
    assert [e.version for e in read] == [2, 1, 0], "older entries are not read"


def test_spans_that_are_read_once_more_after_a_decision_do_not_count_twice() -> None:
    set_back = [
        entry(6, {A: 18, B: 25}, {A: (10, 18)}),
        entry(5, {A: 10, B: 25}),
        *DRAINED,
        entry(-1, {A: 99}, {A: (0, 99)}, topic_id="an earlier stream of the name"),
    ]

    found = [(s.version, s.range.start) for s in spans_back(set_back) if s.range.topic_partition == A]

    assert found == [(6, 10), (1, 0)]
