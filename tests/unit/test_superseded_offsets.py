"""Offsets that were drained more than once: whose word on them counts, at every step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kdi_assets.drain.beyond import from_positions, of_older_topics
from kdi_assets.ledger.coverage import coverage
from kdi_assets.ledger.entry import Kind, LedgerEntry, RangeCounts
from kdi_assets.ledger.history import LiveHistory
from kdi_assets.ledger.superseded_offsets import ENDLESS, read_again, superseded
from kdi_assets.stream import OffsetRange, TopicPartition

P0, P1 = (TopicPartition("orders", n) for n in range(2))
At = Mapping[TopicPartition, int]


def r(start: int, end: int) -> OffsetRange:
    return OffsetRange(P0, start, end)


def said(version: int, kind: Kind, at: int, *ranges: OffsetRange, topic_id: str = "topic", p1: int = 5) -> LedgerEntry:
    positions = {P0: at, P1: p1}
    entry = LedgerEntry(version, kind, "orders", f"v{version}", "orders", topic_id, "table", positions)
    return replace(entry, ranges=tuple(RangeCounts(one, became_rows=one.offset_count) for one in ranges))


def words(*entries: LedgerEntry) -> list[tuple[int, int, int]]:
    """Which entry speaks of which offsets."""
    return sorted((p.range.start, p.range.end, p.version) for p in coverage(entries).pieces)


START, FIRST, SECOND = said(0, "start", 0), said(1, "drain", 20, r(0, 20)), said(2, "drain", 30, r(20, 30))
BACK, AGAIN = said(3, "resolve", 8), said(4, "drain", 14, r(8, 14))


def test_what_is_taken_out_is_spoken_of_by_nobody_until_it_is_drained_again() -> None:
    assert words(START, FIRST, SECOND, BACK) == [(0, 8, 1)]
    assert words(START, FIRST, SECOND, BACK, AGAIN) == [(0, 8, 1), (8, 14, 4)]
    assert [s.range for s in superseded([START, FIRST, SECOND, BACK, AGAIN])] == [r(8, ENDLESS)]
    assert superseded([]) == superseded([START]) == ()


def test_only_a_drain_reads_a_message_again() -> None:
    """Not the decision that took its rows out, nor a later one that gave some of it up."""
    given_up = said(4, "resolve", 15)
    drained = replace(said(5, "drain", 40, r(15, 40)), gaps=(r(17, 18),))

    def again(*entries: LedgerEntry) -> list[tuple[int, int, int]]:
        return [(s.range.start, s.range.end, s.version) for s in read_again([START, FIRST, SECOND, *entries])]

    assert again(BACK, given_up) == []
    assert again(BACK, given_up, drained) == [(15, 17, 5), (18, 30, 5)]
    assert again(BACK, AGAIN, replace(AGAIN, version=6, topic_id="other")) == [(8, 14, 4)]


def test_a_range_cut_in_two_keeps_in_each_part_the_gaps_that_lie_there() -> None:
    gapped = replace(FIRST, gaps=(r(2, 4), r(10, 11)))

    covered = coverage([START, gapped, BACK, AGAIN])

    assert [(v, part) for v, part in sorted(covered.visible())] == [(1, r(0, 2)), (1, r(4, 8)), (4, r(8, 14))]
    assert covered.gaps == 2


def test_a_topic_of_another_id_is_not_drained_again_by_offsets_that_begin_at_0() -> None:
    new = said(3, "resolve", 0, topic_id="other")

    assert superseded([START, FIRST, SECOND, new, said(4, "drain", 9, r(0, 9), topic_id="other")]) == ()


def test_rows_of_another_writer_are_ours_from_where_positions_were_set_back_to() -> None:
    took, ours, back = said(7, "takeover", 20), said(8, "drain", 30, r(20, 30)), said(9, "resolve", 12)

    assert coverage([took, ours]).begin == {P0: 20, P1: 5}
    assert coverage([took, ours, back]).begin == {P0: 12, P1: 5}
    assert coverage([took, ours, said(9, "resolve", 25)]).begin == {P0: 20, P1: 5}


TOOK, OURS = said(7, "takeover", 20), said(8, "drain", 30, r(20, 30))
OLD, NEW = said(2, "drain", 40, r(0, 40), topic_id="old"), said(3, "resolve", 0)
WITHIN = from_positions({P0: 5})


@pytest.mark.parametrize(
    ("entries", "since", "end"),
    [
        ((START, said(1, "drain", 30, r(0, 30))), 0, None),
        ((START, OLD, NEW), 0, 40),
        ((TOOK, OURS), 7, None),
        ((OURS,), 8, WITHIN[P0].end),
        ((), 0, None),
    ],
    ids=["ours from the start", "an older topic", "taken over", "cut off", "no ledger"],
)
def test_rows_of_an_older_topic_may_lie_below_its_positions_and_anywhere_if_entries_are_gone(
    entries: tuple[LedgerEntry, ...], since: int, end: int | None
) -> None:
    found = of_older_topics(LiveHistory(9, entries, since, ()), "topic", WITHIN)

    assert found == ({P0: r(5, end)} if end else {})
