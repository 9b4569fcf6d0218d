"""What the ledger entries stand for, together; and which of the missing offsets never left a trace."""

from __future__ import annotations

from dataclasses import replace

from kdi_assets.ledger.coverage import Coverage, Recorded, coverage
from kdi_assets.ledger.entry import Kind, LedgerEntry, RangeCounts, Untraced
from kdi_assets.ledger.untraced import BY_COUNT, Group, settle
from kdi_assets.stream import OffsetRange, TopicPartition

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


def test_of_a_cleaned_log_the_ledger_speaks_from_where_its_oldest_entry_began() -> None:
    covered = coverage([drained(7, [r(P0, 30, 50)]), drained(8, [r(P0, 50, 60), r(P1, 0, 5)])])

    assert covered.begin == {P0: 30}  # what appeared later begins at 0
    assert covered.bounds() == {P0: r(P0, 30, 60), P1: r(P1, 0, 5)}
    assert covered.torn == ()


def test_a_set_back_position_cuts_what_was_drained_before_and_its_losses() -> None:
    lost = replace(settled(2, "resolve", {P0: 25}), declared_losses=(r(P0, 20, 25),))

    covered = coverage([START, drained(1, [r(P0, 0, 20)], tombstones=3), lost, settled(3, "resolve", {P0: 12})])

    assert (pieces(covered), covered.declared_losses, covered.offsets) == ([(1, 0, 12)], (), 12)
    assert covered.set_back == ("v3 set orders/0 back from 25 to 12",)
    assert (covered.digest, set(covered.untraced)) == (None, {0, 3})


def test_bounds_cut_ranges_and_their_gaps() -> None:
    gapped = replace(drained(1, [r(P0, 0, 20)]), gaps=(r(P0, 4, 8), r(P0, 15, 18)))

    covered = coverage([START, gapped]).within({P0: r(P0, 6, 16)})

    assert (pieces(covered), covered.gaps, covered.offsets) == ([(1, 6, 16)], 3, 10)
    assert list(covered.visible()) == [(1, r(P0, 8, 15))]
    assert coverage([START, gapped]).within({P0: r(P0, 0, 20)}).untraced.keys() == {0, 1}


def test_gaps_of_an_older_topic_are_not_those_of_the_one_made_anew() -> None:
    old = replace(drained(1, [r(P0, 0, 10)]), gaps=(r(P0, 2, 4),))
    renewed = settled(2, "resolve", {P0: 0}, "another")

    covered = coverage([START, old, renewed, drained(3, [r(P0, 0, 10)], topic_id="another")])

    assert covered.renewed
    assert [part for version, part in covered.visible() if version == 3] == [r(P0, 0, 10)]


def test_what_is_missing_is_a_tombstone_where_count_and_digest_say_so() -> None:
    covered = coverage([START, drained(1, [r(P0, 0, 10), r(P1, 0, 10)], tombstones=2, digest=0b0110)])

    proved = settle([Group(1, 0, 2, 0b0100), Group(1, 1, 2, 0b0010)], covered)
    others = settle([Group(1, 0, 2, 0b0100), Group(1, 1, 2, 0b0011)], covered)
    more = settle([Group(1, 0, 3, 0b0101), Group(1, 1, 2, 0b0010)], covered)
    fewer = settle([Group(1, 0, 1, 0b0001), Group(1, 1, 2, 0b0010)], covered)

    assert (proved.untraced, proved.open) == (Untraced(4), frozenset())
    assert (others.untraced, set(others.open)) == (Untraced(), {(1, 0), (1, 1)})  # as many, and not the same
    assert (more.untraced, set(more.open), more.among_suspects) == (Untraced(2), {(1, 0)}, Untraced(2))
    assert len(fewer.at_odds) == 1


def test_tombstones_of_a_cut_range_are_bounded_by_their_count() -> None:
    covered = coverage([START, drained(1, [r(P0, 0, 10)], tombstones=2, digest=1)]).within({P0: r(P0, 0, 5)})

    within, beyond = settle([Group(1, 0, 1, 9)], covered), settle([Group(1, 0, 3, 9)], covered)

    assert (within.untraced, within.notes) == (Untraced(1), (BY_COUNT,))
    assert (beyond.untraced, set(beyond.open)) == (Untraced(), {(1, 0)})


def test_tombstones_and_filtered_messages_are_proved_by_one_digest() -> None:
    covered = coverage([START, with_filtered(drained(1, [r(P0, 0, 10)], tombstones=2, digest=0b0110), 3, 0b1000)])

    proved, others = settle([Group(1, 0, 5, 0b1110)], covered), settle([Group(1, 0, 5, 0b0110)], covered)
    fewer = settle([Group(1, 0, 4, 0b0110)], covered)

    assert proved.untraced == Untraced(tombstones=2, filtered=3)
    assert (others.untraced, set(others.open)) == (Untraced(), {(1, 0)})
    assert fewer.at_odds == (
        "v1 recorded 2 tombstones and 3 filtered messages in orders/0 [0, 10); rows lie where some of them were",
    )


def test_gaps_that_no_entry_lists_are_proved_by_the_same_digest_and_count_as_gaps() -> None:
    entry = drained(1, [r(P0, 0, 10)], tombstones=2, digest=0b0110)
    counts = replace(entry.ranges[0], gaps=4, unlisted_gaps=4)
    gapped = replace(entry, ranges=(counts,), digest=0b0111, gap_digest=0b1001)

    covered = coverage([START, gapped])
    proved, lost = settle([Group(1, 0, 6, 0b1111)], covered), settle([Group(1, 0, 7, 0b1110)], covered)

    assert (covered.digest, covered.gaps, gapped.gap_offsets) == (0b0001, 0, 4)
    assert proved.untraced == Untraced(tombstones=2, gaps=4)
    assert (set(lost.open), str(lost.among_suspects)) == ({(1, 0)}, "2 tombstones and 4 gaps")


def test_what_replays_made_of_messages_is_added_up_below_nothing_too() -> None:
    """Procedure: letters become rows, then more rows become letters; of two topic partitions messages are withdrawn."""
    back = replace(settled(2, "replay", {P0: 20, P1: 9}), returned={P0: 3})
    fallen = replace(
        settled(3, "replay", {P0: 20, P1: 9}),
        returned={P0: -5, P1: -1},
        withdrawn={P0: Untraced(filtered=2), P1: Untraced(tombstones=1)},
        withdrawn_digest=0b0110,
    )

    covered = coverage([START, drained(1, [r(P0, 0, 20), r(P1, 0, 9)], digest=0b0011), back, fallen])

    assert covered.became_rows == {0: 20 - 2 - 2, 1: 9 - 1 - 1}
    assert covered.dead_letters == {0: 2, 1: 1}
    assert covered.withdrawn_by == {3: Recorded(Untraced(tombstones=1, filtered=2), 0b0110)}
    assert covered.digest == 0b0101  # of what is in the tables: of what was read, neither of the two
