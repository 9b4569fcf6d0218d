"""What all ledger entries together account for: messages without a trace, and the entry that counts for an offset."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.streams.audit.coverage import Coverage, RowlessRecord, coverage
from kdi_assets.streams.audit.rowless_messages import BY_COUNT, AbsentOffsets, match_rowless
from kdi_assets.streams.ledger.entry import Kind, LedgerEntry, RangeCounts, RowlessCounts
from kdi_assets.streams.ledger.history import LiveHistory
from kdi_assets.streams.ledger.superseded_offsets import NO_END, superseded_by_decisions, superseded_by_drains
from kdi_assets.streams.resolve.rows_past_position import from_positions, of_older_topics

P0, P1 = (TopicPartition("orders", n) for n in range(2))


def r(tp: TopicPartition, start: int, end: int) -> OffsetRange:
    return OffsetRange(tp, start, end)


def settled(version: int, kind: Kind, positions: dict[TopicPartition, int], topic_id: str = "topic") -> LedgerEntry:
    return LedgerEntry(version, kind, "orders", f"v{version}", "orders", topic_id, "table", positions)


def drained(
    version: int, ranges: list[OffsetRange], *, tombstones: int = 0, digest: int = 0, topic_id: str = "topic"
) -> LedgerEntry:
    counts = tuple(RangeCounts(r, became_rows=r.offset_count - tombstones, tombstones=tombstones) for r in ranges)
    entry = settled(version, "drain", {r.topic_partition: r.end for r in ranges}, topic_id)
    return replace(entry, ranges=counts, tombstone_digest=digest)


def with_filtered(entry: LedgerEntry, filtered: int, digest: int) -> LedgerEntry:
    ranges = tuple(replace(r, became_rows=r.became_rows - filtered, filtered=filtered) for r in entry.ranges)
    return replace(entry, ranges=ranges, filtered_digest=digest)


def pieces(covered: Coverage) -> list[tuple[int, int, int]]:
    return [(p.version, p.range.start, p.range.end) for p in covered.pieces]


START = settled(0, "start", {P0: 0})


def test_coverage_of_a_cleaned_log_begins_where_its_oldest_entry_began() -> None:
    covered = coverage([drained(7, [r(P0, 30, 50)]), drained(8, [r(P0, 50, 60), r(P1, 0, 5)])])

    assert covered.begin == {P0: 30}  # a later topic partition begins at 0
    assert covered.bounds() == {P0: r(P0, 30, 60), P1: r(P1, 0, 5)}
    assert covered.discontinuities == ()


def test_a_set_back_position_cuts_what_was_drained_before_and_its_losses() -> None:
    lost = replace(settled(2, "resolve", {P0: 25}), declared_losses=(r(P0, 20, 25),))

    covered = coverage([START, drained(1, [r(P0, 0, 20)], tombstones=3), lost, settled(3, "resolve", {P0: 12})])

    assert (pieces(covered), covered.declared_losses, covered.offsets) == ([(1, 0, 12)], (), 12)
    assert covered.set_back == ("v3 set orders/0 back from 25 to 12",)
    assert (covered.digest, set(covered.rowless)) == (None, {0, 3})


def test_bounds_cut_ranges_and_their_gaps() -> None:
    gapped = replace(drained(1, [r(P0, 0, 20)]), gaps=(r(P0, 4, 8), r(P0, 15, 18)))

    covered = coverage([START, gapped]).within({P0: r(P0, 6, 16)})

    assert (pieces(covered), covered.gaps, covered.offsets) == ([(1, 6, 16)], 3, 10)
    assert list(covered.visible()) == [(1, r(P0, 8, 15))]
    assert coverage([START, gapped]).within({P0: r(P0, 0, 20)}).rowless.keys() == {0, 1}


def test_gaps_of_an_older_topic_are_not_gaps_of_the_recreated_topic() -> None:
    old = replace(drained(1, [r(P0, 0, 10)]), gaps=(r(P0, 2, 4),))
    renewed = settled(2, "resolve", {P0: 0}, "another")

    covered = coverage([START, old, renewed, drained(3, [r(P0, 0, 10)], topic_id="another")])

    assert covered.topic_recreated
    assert [part for version, part in covered.visible() if version == 3] == [r(P0, 0, 10)]


def test_missing_offsets_are_tombstones_if_count_and_digest_match() -> None:
    covered = coverage([START, drained(1, [r(P0, 0, 10), r(P1, 0, 10)], tombstones=2, digest=0b0110)])

    proved = match_rowless([AbsentOffsets(1, 0, 2, 0b0100), AbsentOffsets(1, 1, 2, 0b0010)], covered)
    others = match_rowless([AbsentOffsets(1, 0, 2, 0b0100), AbsentOffsets(1, 1, 2, 0b0011)], covered)
    more = match_rowless([AbsentOffsets(1, 0, 3, 0b0101), AbsentOffsets(1, 1, 2, 0b0010)], covered)
    fewer = match_rowless([AbsentOffsets(1, 0, 1, 0b0001), AbsentOffsets(1, 1, 2, 0b0010)], covered)

    assert (proved.rowless, proved.unmatched) == (RowlessCounts(4), frozenset())
    assert (others.rowless, set(others.unmatched)) == (
        RowlessCounts(),
        {(1, 0), (1, 1)},
    )  # the same number, other offsets
    assert (more.rowless, set(more.unmatched), more.among_unmatched) == (RowlessCounts(2), {(1, 0)}, RowlessCounts(2))
    assert len(fewer.contradictions) == 1


def test_tombstones_of_a_cut_range_are_bounded_by_their_count() -> None:
    covered = coverage([START, drained(1, [r(P0, 0, 10)], tombstones=2, digest=1)]).within({P0: r(P0, 0, 5)})

    within, beyond = (
        match_rowless([AbsentOffsets(1, 0, 1, 9)], covered),
        match_rowless([AbsentOffsets(1, 0, 3, 9)], covered),
    )

    assert (within.rowless, within.notes) == (RowlessCounts(1), (BY_COUNT,))
    assert (beyond.rowless, set(beyond.unmatched)) == (RowlessCounts(), {(1, 0)})


def test_tombstones_and_filtered_messages_are_proved_by_one_digest() -> None:
    covered = coverage([START, with_filtered(drained(1, [r(P0, 0, 10)], tombstones=2, digest=0b0110), 3, 0b1000)])

    proved, others = (
        match_rowless([AbsentOffsets(1, 0, 5, 0b1110)], covered),
        match_rowless([AbsentOffsets(1, 0, 5, 0b0110)], covered),
    )
    fewer = match_rowless([AbsentOffsets(1, 0, 4, 0b0110)], covered)

    assert proved.rowless == RowlessCounts(tombstones=2, filtered=3)
    assert (others.rowless, set(others.unmatched)) == (RowlessCounts(), {(1, 0)})
    assert fewer.contradictions == (
        "v1 recorded 2 tombstones and 3 filtered messages in orders/0 [0, 10); some of these offsets have rows",
    )


def test_gaps_that_no_entry_lists_are_proved_by_the_same_digest_and_count_as_gaps() -> None:
    entry = drained(1, [r(P0, 0, 10)], tombstones=2, digest=0b0110)
    counts = replace(entry.ranges[0], gaps=4, unlisted_gaps=4)
    gapped = replace(entry, ranges=(counts,), digest=0b0111, gap_digest=0b1001)

    covered = coverage([START, gapped])
    proved, lost = (
        match_rowless([AbsentOffsets(1, 0, 6, 0b1111)], covered),
        match_rowless([AbsentOffsets(1, 0, 7, 0b1110)], covered),
    )

    assert (covered.digest, covered.gaps, gapped.gap_offsets) == (0b0001, 0, 4)
    assert proved.rowless == RowlessCounts(tombstones=2, gaps=4)
    assert (set(lost.unmatched), str(lost.among_unmatched)) == ({(1, 0)}, "2 tombstones and 4 gaps")


def test_replays_change_the_counts_of_rows_and_dead_letters() -> None:
    """Procedure: letters become rows, then more rows become letters; messages of two topic partitions are withdrawn."""
    back = replace(settled(2, "replay", {P0: 20, P1: 9}), returned={P0: 3})
    fallen = replace(
        settled(3, "replay", {P0: 20, P1: 9}),
        returned={P0: -5, P1: -1},
        withdrawn={P0: RowlessCounts(filtered=2), P1: RowlessCounts(tombstones=1)},
        withdrawn_digest=0b0110,
    )

    covered = coverage([START, drained(1, [r(P0, 0, 20), r(P1, 0, 9)], digest=0b0011), back, fallen])

    assert covered.became_rows == {0: 20 - 2 - 2, 1: 9 - 1 - 1}
    assert covered.dead_letters == {0: 2, 1: 1}
    assert covered.withdrawn_by == {3: RowlessRecord(RowlessCounts(tombstones=1, filtered=2), 0b0110)}
    assert covered.digest == 0b0101  # of what is in the tables: of what was read, neither of the two


def said(version: int, kind: Kind, at: int, *ranges: OffsetRange, topic_id: str = "topic") -> LedgerEntry:
    entry = settled(version, kind, {P0: at, P1: 5}, topic_id)
    return replace(entry, ranges=tuple(RangeCounts(one, became_rows=one.offset_count) for one in ranges))


def words(*entries: LedgerEntry) -> list[tuple[int, int, int]]:
    """Which entry covers which offsets."""
    return [(start, end, version) for version, start, end in sorted(pieces(coverage(entries)), key=lambda p: p[1])]


BEGUN, FIRST, SECOND = said(0, "start", 0), said(1, "drain", 20, r(P0, 0, 20)), said(2, "drain", 30, r(P0, 20, 30))
BACK, AGAIN = said(3, "resolve", 8), said(4, "drain", 14, r(P0, 8, 14))


def test_offsets_whose_rows_a_decision_removed_are_covered_by_no_entry_until_they_are_drained_again() -> None:
    assert words(BEGUN, FIRST, SECOND, BACK) == [(0, 8, 1)]
    assert words(BEGUN, FIRST, SECOND, BACK, AGAIN) == [(0, 8, 1), (8, 14, 4)]
    assert [s.range for s in superseded_by_decisions([BEGUN, FIRST, SECOND, BACK, AGAIN])] == [r(P0, 8, NO_END)]
    assert superseded_by_decisions([]) == superseded_by_decisions([BEGUN]) == ()


def test_only_a_drain_reads_a_message_again() -> None:
    """Neither does the decision that removed its rows, nor a later one that gave some of it up."""
    given_up = said(4, "resolve", 15)
    drained = replace(said(5, "drain", 40, r(P0, 15, 40)), gaps=(r(P0, 17, 18),))

    def again(*entries: LedgerEntry) -> list[tuple[int, int, int]]:
        return [(s.range.start, s.range.end, s.version) for s in superseded_by_drains([BEGUN, FIRST, SECOND, *entries])]

    assert again(BACK, given_up) == []
    assert again(BACK, given_up, drained) == [(15, 17, 5), (18, 30, 5)]
    assert again(BACK, AGAIN, replace(AGAIN, version=6, topic_id="other")) == [(8, 14, 4)]


def test_each_part_of_a_range_cut_in_two_keeps_its_own_gaps() -> None:
    gapped = replace(FIRST, gaps=(r(P0, 2, 4), r(P0, 10, 11)))

    covered = coverage([BEGUN, gapped, BACK, AGAIN])

    assert [(v, part) for v, part in sorted(covered.visible())] == [
        (1, r(P0, 0, 2)),
        (1, r(P0, 4, 8)),
        (4, r(P0, 8, 14)),
    ]
    assert covered.gaps == 2


def test_offsets_from_0_of_a_recreated_topic_are_not_offsets_drained_again() -> None:
    new = said(3, "resolve", 0, topic_id="other")

    assert (
        superseded_by_decisions([BEGUN, FIRST, SECOND, new, said(4, "drain", 9, r(P0, 0, 9), topic_id="other")]) == ()
    )


def test_rows_of_another_writer_are_covered_from_where_positions_were_set_back_to() -> None:
    took, ours, back = said(7, "takeover", 20), said(8, "drain", 30, r(P0, 20, 30)), said(9, "resolve", 12)

    assert coverage([took, ours]).begin == {P0: 20, P1: 5}
    assert coverage([took, ours, back]).begin == {P0: 12, P1: 5}
    assert coverage([took, ours, said(9, "resolve", 25)]).begin == {P0: 20, P1: 5}


TOOK, OURS = said(7, "takeover", 20), said(8, "drain", 30, r(P0, 20, 30))
OLD, NEW = said(2, "drain", 40, r(P0, 0, 40), topic_id="old"), said(3, "resolve", 0)
WITHIN = from_positions({P0: 5})


@pytest.mark.parametrize(
    ("entries", "since", "end"),
    [
        ((BEGUN, said(1, "drain", 30, r(P0, 0, 30))), 0, None),
        ((BEGUN, OLD, NEW), 0, 40),
        ((TOOK, OURS), 7, None),
        ((OURS,), 8, WITHIN[P0].end),
        ((), 0, None),
    ],
    ids=["ours from the start", "an older topic", "taken over", "cut off", "no ledger"],
)
def test_where_rows_of_an_older_topic_may_lie(entries: tuple[LedgerEntry, ...], since: int, end: int | None) -> None:
    found = of_older_topics(LiveHistory(9, entries, since, ()), "topic", WITHIN)

    assert found == ({P0: r(P0, 5, end)} if end else {})
