"""The reading of a ledger of Kinesis must notice what was passed over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.shard_bookmarks import Bookmark, Span
from kdi_assets.streams.ledger.entry import LedgerEntry, RangeCounts
from tests.kinesis_ledger import LedgerReading, PutRecord, read_by_ledger

SHARD = TopicPartition("orders", 0)
PARENT = TopicPartition("orders", 1)
LOG = [PutRecord(0, sequence, f"key {sequence}", b"{}", datetime(2026, 1, 1, tzinfo=UTC)) for sequence in range(10)]


def _entry(kind: Any, position: int, last: int, **fields: Any) -> LedgerEntry:
    marks = {SHARD: Bookmark(str(last) if last >= 0 else "")}
    entry = LedgerEntry(1, kind, "orders", "attempt", "orders", "topic", "table", {SHARD: position}, bookmarks=marks)
    return replace(entry, **fields)


def _drain(start: int, first: int, last: int) -> LedgerEntry:
    """Records by their sequence numbers, of which the first one has the number ``start``."""
    count = last - first + 1
    counts = RangeCounts(OffsetRange(SHARD, start, start + count), became_rows=count)
    span = Span(str(first), str(last), count, digest=0)
    return _entry("drain", start + count, last, ranges=(counts,), spans={SHARD: span})


def _loss(position: int, last: int) -> LedgerEntry:
    lost = (OffsetRange(SHARD, position, position + 1),)
    return _entry("resolve", position + 1, last, declared_losses=lost, lost_between={SHARD: (7, 8)})


def _read(*entries: LedgerEntry, parents: Mapping[tuple[int, int], tuple[int, ...]] | None = None) -> LedgerReading:
    return read_by_ledger(entries, LOG, epochs={"topic": 0}, parents=parents or {})


def test_drains_that_follow_each_other_have_the_records_in_their_order() -> None:
    reading = _read(_entry("start", 0, -1), _drain(0, 0, 3), _drain(4, 4, 6))

    assert reading.numbered[0, 0] == LOG[:7]
    assert reading.unread((0, 0)) == LOG[7:]
    assert reading.lost == []


@pytest.mark.parametrize(
    "wrong",
    [_drain(4, 5, 6), _drain(5, 4, 6), _drain(4, 3, 6), _entry("renewal", 5, 3), _entry("renewal", 4, 4)],
    ids=["a record passed over", "a number passed over", "a record twice", "a position moved", "a bookmark moved"],
)
def test_a_drain_or_a_position_that_does_not_follow_is_noticed(wrong: LedgerEntry) -> None:
    with pytest.raises(AssertionError, match="missing|bookmark"):
        _read(_drain(0, 0, 3), wrong)


def test_only_after_an_accepted_loss_records_are_passed_over_and_they_are_named_with_its_moments() -> None:
    reading = _read(_drain(0, 0, 3), _loss(4, 3), _drain(5, 6, 9))

    assert reading.numbered[0, 0] == [*LOG[:4], None, *LOG[6:]]
    assert reading.lost == [(record, [(7, 8)]) for record in LOG[4:6]]


def test_what_is_read_after_a_loss_and_a_step_back_is_compared_again() -> None:
    back = _entry("resolve", 4, 3)

    reading = _read(_drain(0, 0, 3), _drain(4, 4, 6), back, _drain(4, 4, 9))

    assert reading.numbered[0, 0] == LOG
    with pytest.raises(AssertionError, match="missing"):
        _read(_drain(0, 0, 3), _loss(4, 3), back, _drain(4, 6, 9))


def test_a_child_that_is_read_before_its_parent_has_ended_is_noticed() -> None:
    entry = replace(_drain(0, 0, 3), positions={SHARD: 4, PARENT: 0}, bookmarks={SHARD: Bookmark(), PARENT: Bookmark()})

    with pytest.raises(AssertionError, match="out of order"):
        _read(entry, parents={(0, 0): (1,)})
