"""Coverage: the offsets that the live ledger entries account for, and what the entries recorded about them. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import xor

from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.coordinates import Bounds
from kdi_assets.streams.ledger.entry import LedgerEntry, RangeCounts, RowlessCounts
from kdi_assets.streams.ledger.positions import RETIRED
from kdi_assets.streams.ledger.superseded_offsets import (
    NO_END,
    PositionReset,
    position_resets,
    positions,
    superseded_by_decisions,
    without_offsets,
)


@dataclass(frozen=True, slots=True)
class DrainedRange:
    """A range of a drain, or a part of one.

    Attributes:
        version: The commit of the drain.
        counts: As recorded for the whole range.
        gaps: Offsets in it without a visible message, in order, if the entry lists them.
    """

    version: int
    range: OffsetRange
    counts: RangeCounts
    gaps: tuple[OffsetRange, ...] = ()

    @property
    def is_cut(self) -> bool:
        return self.range != self.counts.range


@dataclass(frozen=True, slots=True)
class RowlessRecord:
    """Counts and digest of the rowless messages that an entry recorded."""

    counts: RowlessCounts
    digest: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the entries cover together.

    Attributes:
        begin: Below these offsets the ledger cannot account for rows; 0 where absent.
        end: The positions.
        drained: Every range that was ever drained, also if a position was set back over it.
        pieces: The ranges that count.
        rowless: By version, of the entries that count as a whole.
        digest: ``bit_xor(xxhash64(partition, offset))`` of all rows and dead letters; ``None`` if an entry was cut.
        topic_recreated: Whether entries are for several topics, so that an offset may belong to several entries.
        discontinuities: Where an entry does not start where the one before it ended.
        set_back: Where a decision set positions back.
        became_rows: By partition, messages that are rows; replays are counted in.
        dead_letters: By partition, messages that are dead letters and no rows.
        withdrawn_by: Messages whose rows a replay removed without replacement, by its commit.
        erased_by: Messages that a commit erased, or that are kept no longer, count and digest, by the commit.
        expired_by: The commits among these that removed messages which are kept no longer.
    """

    begin: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]
    drained: tuple[DrainedRange, ...]
    pieces: tuple[DrainedRange, ...]
    declared_losses: tuple[OffsetRange, ...]
    rowless: Mapping[int, RowlessRecord]
    digest: int | None
    topic_recreated: bool = False
    discontinuities: tuple[str, ...] = ()
    set_back: tuple[str, ...] = ()
    became_rows: Mapping[int, int] = field(default_factory=dict)
    dead_letters: Mapping[int, int] = field(default_factory=dict)
    withdrawn_by: Mapping[int, RowlessRecord] = field(default_factory=dict)
    erased_by: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    expired_by: frozenset[int] = frozenset()

    @property
    def offsets(self) -> int:
        return offsets_in(p.range for p in self.pieces) + offsets_in(self.declared_losses)

    @property
    def gaps(self) -> int:
        """Offsets in the gaps that entries list."""
        return offsets_in(g for p in self.pieces for g in p.gaps)

    @property
    def erased(self) -> int:
        """All messages that entries recorded as erased."""
        return sum(count for version, (count, _) in self.erased_by.items() if version not in self.expired_by)

    @property
    def kept_no_longer(self) -> int:
        """All messages that entries recorded as kept no longer."""
        return sum(count for version, (count, _) in self.erased_by.items() if version in self.expired_by)

    @property
    def has_rowless(self) -> bool:
        return any(p.counts.rowless.count for p in self.pieces)

    @property
    def recorded_rowless(self) -> RowlessCounts:
        """All rowless messages that entries recorded, of drains and of replays."""
        parts = (*(p.counts.rowless for p in self.pieces), *(r.counts for r in self.withdrawn_by.values()))
        return sum(parts, RowlessCounts())

    def bounds(self) -> dict[TopicPartition, OffsetRange]:
        """From the first position of every topic partition to its current one."""
        return {
            tp: OffsetRange(tp, min(self._begin(tp), end), end)
            for tp, end in sorted(self.end.items())
            if end != RETIRED
        }

    def _begin(self, tp: TopicPartition) -> int:
        starts = [r.start for r in (*(p.range for p in self.pieces), *self.declared_losses) if r.topic_partition == tp]
        return min(starts, default=NO_END)

    def within(self, bounds: Bounds) -> Coverage:
        """The coverage within bounds; if a range is cut, its counts are known only for the whole range."""

        def cut(ranges: Sequence[OffsetRange]) -> tuple[OffsetRange, ...]:
            both = (_common(r, bounds[r.topic_partition]) for r in ranges if r.topic_partition in bounds)
            return tuple(r for r in both if r.offset_count)

        kept = [(p, cut([p.range])) for p in self.pieces]
        cut_up = {p.version for p, left in kept if left != (p.range,)}
        return replace(
            self,
            pieces=tuple(replace(p, range=left[0], gaps=cut(p.gaps)) for p, left in kept if left),
            declared_losses=cut(self.declared_losses),
            rowless={v: recorded for v, recorded in self.rowless.items() if v not in cut_up},
            digest=None,
        )

    def every_range(self) -> Iterator[tuple[int, OffsetRange]]:
        """Every range that was ever drained, with the version."""
        return ((each.version, each.range) for each in self.drained)

    def visible(self) -> Iterator[tuple[int, OffsetRange]]:
        """The pieces without their gaps: version, and offsets at which a message was read."""
        for piece in self.pieces:
            for part in _without(piece.range, piece.gaps):
                yield piece.version, part


def coverage(entries: Sequence[LedgerEntry]) -> Coverage:
    """Add up the live entries, oldest first; offsets over which a decision set a position back no longer count."""
    live = list(entries)
    for superseded in superseded_by_decisions(entries):
        live = [without_offsets(e, superseded.range) if superseded.applies_to(e) else e for e in live]
    whole = {e.version for e, before in zip(live, entries, strict=True) if e == before}
    digests = (e.stored_digest ^ e.taken_digest for e in live)
    resets = list(position_resets(entries))
    rows, letters = _count_by_partition(live)
    return Coverage(
        begin=_begin(entries, resets),
        end=entries[-1].positions,
        drained=tuple(DrainedRange(e.version, r.range, r) for e in entries for r in e.ranges),
        pieces=tuple(_pieces(live, entries)),
        declared_losses=tuple(r for e in live for r in e.declared_losses),
        rowless={e.version: RowlessRecord(e.rowless, e.rowless_digest) for e in live if e.version in whole},
        digest=reduce(xor, digests, 0) if len(whole) == len(entries) else None,
        topic_recreated=len({e.topic_id for e in live if e.ranges}) > 1,
        discontinuities=tuple(_discontinuities(entries)),
        set_back=tuple(f"v{e.version} set {tp} back from {was} to {at}" for e, tp, was, at in resets),
        became_rows=rows,
        dead_letters=letters,
        withdrawn_by={
            e.version: RowlessRecord(sum(e.withdrawn.values(), RowlessCounts()), e.withdrawn_digest)
            for e in live
            if e.withdrawn
        },
        erased_by={e.version: (e.erasure.count, e.erasure.digest) for e in live if e.erasure},
        expired_by=frozenset(e.version for e in live if e.kind == "expire"),
    )


def _discontinuities(entries: Sequence[LedgerEntry]) -> Iterator[str]:
    at: dict[TopicPartition, int] = {}
    for entry in entries:
        for r in (r.range for r in entry.ranges):
            if at.get(r.topic_partition, 0 if at else r.start) != r.start:
                yield f"v{entry.version} begins {r}, and {at.get(r.topic_partition, 0)} was next"
        at = positions(entry)


def _count_by_partition(entries: Sequence[LedgerEntry]) -> tuple[Counter[int], Counter[int]]:
    """Messages that are rows and messages that are dead letters, by partition."""
    rows, letters = Counter[int](), Counter[int]()
    for e in entries:
        for counts in e.ranges:
            rows[counts.range.topic_partition.partition] += counts.became_rows
            letters[counts.range.topic_partition.partition] += counts.dead_letters
        for tp, returned in e.returned.items():
            rows[tp.partition] += returned
            letters[tp.partition] -= returned
        for tp, withdrawn in e.withdrawn.items():
            rows[tp.partition] -= withdrawn.count
        if e.erasure:
            rows.subtract({tp.partition: n for tp, n in e.erasure.became_rows.items()})
            letters.subtract({tp.partition: n for tp, n in e.erasure.dead_letters.items()})
    return +rows, +letters


def _begin(entries: Sequence[LedgerEntry], resets: Iterable[PositionReset]) -> dict[TopicPartition, int]:
    """Where the oldest readable entry began, or where positions were set back to later; empty for a stream that
    started with an empty table."""
    first = entries[0]
    if first.kind == "start":
        return {}
    begun = {tp: NO_END if at == RETIRED else at for tp, at in first.positions.items()}
    begun |= {r.topic_partition: r.start for r in (*first.declared_losses, *(r.range for r in first.ranges))}
    for _, tp, _, at in resets:
        begun[tp] = min(at, begun.get(tp, 0))  # the decision also removed rows of other writers from there on
    return begun


def _pieces(live: Sequence[LedgerEntry], entries: Sequence[LedgerEntry]) -> Iterator[DrainedRange]:
    for entry, before in zip(live, entries, strict=True):
        whole = {r.range.topic_partition: r for r in before.ranges}
        gaps: dict[TopicPartition, list[OffsetRange]] = {}
        for gap in sorted(entry.gaps):
            gaps.setdefault(gap.topic_partition, []).append(gap)
        for r in entry.ranges:
            tp = r.range.topic_partition
            within = (_common(r.range, gap) for gap in gaps.get(tp, ()))
            yield DrainedRange(entry.version, r.range, whole[tp], tuple(gap for gap in within if gap.offset_count))


def _common(one: OffsetRange, other: OffsetRange) -> OffsetRange:
    start = max(one.start, other.start)
    return OffsetRange(one.topic_partition, start, max(start, min(one.end, other.end)))


def _without(whole: OffsetRange, gaps: Sequence[OffsetRange]) -> Iterator[OffsetRange]:
    """The parts of a range that lie outside its gaps, which are in order; none is empty."""
    start = whole.start
    for gap in gaps:
        if start < gap.start:
            yield OffsetRange(whole.topic_partition, start, gap.start)
        start = gap.end
    if start < whole.end:
        yield OffsetRange(whole.topic_partition, start, whole.end)


def offsets_in(ranges: Iterable[OffsetRange]) -> int:
    """How many offsets the ranges have together."""
    return sum(r.offset_count for r in ranges)
