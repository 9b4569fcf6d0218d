"""Offsets that were drained more than once: whose word on them counts, at every step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kdi_assets.ledger.anew import ENDLESS, anew, read_again
from kdi_assets.ledger.coverage import coverage
from kdi_assets.ledger.entry import FORMAT, Kind, LedgerEntry, RangeCounts, entry_of
from kdi_assets.stream import OffsetRange, TopicPartition

P0, P1 = (TopicPartition("orders", n) for n in range(2))
At = Mapping[TopicPartition, int]


def r(start: int, end: int) -> OffsetRange:
    return OffsetRange(P0, start, end)


def said(
    version: int, kind: Kind, at: int, *ranges: OffsetRange, until: int = 0, topic_id: str = "topic", p1: int = 5
) -> LedgerEntry:
    positions = {P0: at, P1: p1}
    entry = LedgerEntry(version, kind, "orders", f"v{version}", "orders", topic_id, "table", positions)
    counts = tuple(RangeCounts(one, became_rows=one.offset_count) for one in ranges)
    return replace(entry, ranges=counts, rows_until={P0: until} if until else {})


def words(*entries: LedgerEntry) -> list[tuple[int, int, int]]:
    """Which entry speaks of which offsets."""
    return sorted((p.range.start, p.range.end, p.version) for p in coverage(entries).pieces)


START, FIRST, SECOND = said(0, "start", 0), said(1, "drain", 20, r(0, 20)), said(2, "drain", 30, r(20, 30))


def test_what_stays_is_spoken_of_by_who_drained_it_until_a_drain_replaces_it() -> None:
    back = said(3, "resolve", 8, until=30)
    part, beside = said(4, "drain", 14, r(8, 14), until=30), said(5, "replay", 14, until=30)
    rest = said(6, "drain", 40, r(14, 40))

    kept, begun = words(START, FIRST, SECOND, back), words(START, FIRST, SECOND, back, part, beside)
    done = coverage([START, FIRST, SECOND, back, part, beside, rest])

    assert kept == [(0, 20, 1), (20, 30, 2)]
    assert begun == [(0, 8, 1), (8, 14, 4), (14, 20, 1), (20, 30, 2)]
    assert words(START, FIRST, SECOND, back, part, beside, rest) == [(0, 8, 1), (8, 14, 4), (14, 40, 6)]
    assert (done.torn, done.set_back, done.offsets) == ((), ("v3 set orders/0 back from 30 to 8",), 40)
    assert coverage([START, FIRST, SECOND, back]).bounds()[P0] == r(0, 30)  # an audit looks at all that stands
    assert coverage([START, FIRST, SECOND, back]).digest is not None


def test_of_no_entries_nothing_was_drained_again() -> None:
    assert anew([]) == anew([START]) == ()


def test_what_is_taken_out_is_spoken_of_by_nobody_until_it_is_drained_again() -> None:
    back, again = said(3, "resolve", 8), said(4, "drain", 14, r(8, 14))

    assert words(START, FIRST, SECOND, back) == [(0, 8, 1)]
    assert words(START, FIRST, SECOND, back, again) == [(0, 8, 1), (8, 14, 4)]
    assert [a.range for a in anew([START, FIRST, SECOND, back, again])] == [r(8, ENDLESS)]


def test_what_stayed_at_first_can_be_taken_out_later() -> None:
    back, out = said(3, "resolve", 8, until=30), said(4, "resolve", 8)

    assert words(START, FIRST, SECOND, back, out) == [(0, 8, 1)]
    assert words(START, FIRST, SECOND, back, said(4, "routes", 8, until=30)) == [(0, 20, 1), (20, 30, 2)]


def test_only_a_drain_reads_a_message_again() -> None:
    """Not the decision that took its rows out, nor a later one that gave some of it up."""
    taken, given_up = said(3, "resolve", 8), said(4, "resolve", 15)
    drained = replace(said(5, "drain", 40, r(15, 40)), gaps=(r(17, 18),))
    kept, part = said(3, "resolve", 8, until=30), said(4, "drain", 14, r(8, 14), until=30)

    def again(*entries: LedgerEntry) -> list[tuple[int, int, int]]:
        return [(a.range.start, a.range.end, a.version) for a in read_again([START, FIRST, SECOND, *entries])]

    assert again(taken, given_up) == again(kept) == []
    assert again(taken, given_up, drained) == [(15, 17, 5), (18, 30, 5)]
    assert again(kept, part, replace(part, version=6, topic_id="other")) == [(8, 14, 4)]


def test_a_range_cut_in_two_keeps_in_each_part_the_gaps_that_lie_there() -> None:
    gapped = replace(FIRST, gaps=(r(2, 4), r(10, 11), r(16, 18)))
    back, again = said(2, "resolve", 8, until=20), said(3, "drain", 12, r(8, 12), until=20)

    covered = coverage([START, gapped, back, again])

    assert [(v, part) for v, part in sorted(covered.visible())] == [
        (1, r(0, 2)),
        (1, r(4, 8)),
        (1, r(12, 16)),
        (1, r(18, 20)),
        (3, r(8, 12)),
    ]
    assert covered.gaps == 4


def test_of_messages_that_the_topic_no_longer_holds_the_older_entry_is_right() -> None:
    back, compacted = said(2, "resolve", 8, until=20), replace(said(3, "drain", 20, r(8, 20)), gaps=(r(10, 13),))

    covered = coverage([START, FIRST, back, compacted])

    assert sorted(covered.visible()) == [(1, r(0, 8)), (1, r(10, 13)), (3, r(8, 10)), (3, r(13, 20))]


def test_a_loss_declared_within_what_stays_ends_nobodys_word() -> None:
    back, past = said(3, "resolve", 8, until=30), said(4, "resolve", 25, until=30)
    rest = said(5, "drain", 40, r(25, 40))

    assert words(START, FIRST, SECOND, back, past, rest) == [(0, 20, 1), (20, 25, 2), (25, 40, 5)]


def test_a_topic_of_another_id_is_not_drained_again_by_offsets_that_begin_anew() -> None:
    new = said(3, "resolve", 0, topic_id="other")

    assert anew([START, FIRST, SECOND, new, said(4, "drain", 9, r(0, 9), topic_id="other")]) == ()


def test_rows_of_another_writer_are_ours_once_they_were_drained_again() -> None:
    took, ours = said(7, "takeover", 20), said(8, "drain", 30, r(20, 30))
    kept, removed = said(9, "resolve", 5, until=30), said(9, "resolve", 5)
    part, rest = said(10, "drain", 15, r(5, 15), until=30), said(10, "drain", 30, r(5, 30))

    assert coverage([took, ours]).begin[P0] == 20
    assert coverage([took, ours, kept, part]).begin[P0] == 20
    assert coverage([took, ours, kept, rest]).begin[P0] == 5
    assert coverage([took, ours, removed]).begin[P0] == 5


def test_rows_of_another_writer_that_no_drain_replaces_stay_theirs() -> None:
    """Their messages were given up, or taken by compaction."""
    took, ours, kept = said(7, "takeover", 20), said(8, "drain", 30, r(20, 30)), said(9, "resolve", 5, until=30)
    loss, behind_it = said(10, "resolve", 12, until=30), said(11, "drain", 40, r(12, 40))
    compacted = replace(said(10, "drain", 40, r(5, 40)), gaps=(r(9, 10), r(25, 26)))
    adopted, replaced = said(7, "resolve", 8, until=30), replace(said(8, "drain", 40, r(8, 40)), gaps=(r(9, 10),))

    assert coverage([took, ours, kept, loss, behind_it]).begin[P0] == 20
    assert coverage([took, ours, kept, compacted]).begin[P0] == 10
    assert coverage([adopted, replaced]).begin[P0] == 10


def test_rows_of_another_writer_behind_the_first_positions_are_ours_once_they_were_drained() -> None:
    """As of a table that was adopted by a checkpoint that another query had gone past."""
    adopted, part = said(9, "resolve", 8, until=30), said(10, "drain", 14, r(8, 14), until=30)
    rest, skipped = said(11, "drain", 40, r(14, 40)), said(11, "resolve", 20, until=30)

    assert [coverage(entries).begin[P0] for entries in ([adopted], [adopted, part], [adopted, part, rest])] == [
        30,
        30,
        8,
    ]
    assert coverage([adopted, part, skipped, said(12, "drain", 40, r(20, 40))]).begin[P0] == 30
    assert words(adopted, part, rest) == [(8, 14, 10), (14, 40, 11)]


def test_where_rows_stay_is_kept_in_the_log_for_as_long_as_they_do_and_by_no_older_release() -> None:
    open_, closed = said(3, "resolve", 8, until=30), said(4, "drain", 30, r(8, 30), until=30)

    read = entry_of(open_.to_json(), 3, "orders")

    assert read == open_
    assert read is not None
    assert read.standing == {P0: r(8, 30)}
    assert f'"kdi_ledger":{FORMAT}' in open_.to_json()
    assert ("rows_until" in closed.to_json(), '"kdi_ledger":1' in closed.to_json()) == (False, True)
