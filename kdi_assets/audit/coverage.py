"""Coverage: which offsets the live ledger entries account for, and what they recorded about them. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import xor

from kdi_assets.ledger.coordinates import Bounds
from kdi_assets.ledger.entry import LedgerEntry, RangeCounts, Untraced
from kdi_assets.ledger.superseded_offsets import StepBack, positions, steps_back, superseded, without
from kdi_assets.ledger.transaction_ids import RETIRED
from kdi_assets.stream.stream import OffsetRange, TopicPartition

NOTHING_OF_IT = 2**63 - 1


@dataclass(frozen=True, slots=True)
class DrainedRange:
    """A range of a drain, or what is left of it after a cut.

    Attributes:
        version: The commit that drained it.
        counts: As recorded for the whole range.
        gaps: Offsets in it that hold no visible message, in their order, if the entry lists them.
    """

    version: int
    range: OffsetRange
    counts: RangeCounts
    gaps: tuple[OffsetRange, ...] = ()

    @property
    def is_cut(self) -> bool:
        return self.range != self.counts.range


@dataclass(frozen=True, slots=True)
class Recorded:
    """Counts and digest of what an entry took, or took out, and what left no other trace."""

    untraced: Untraced
    digest: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the entries stand for together.

    Attributes:
        begin: Below these offsets the table has rows that the ledger cannot speak of; 0 where absent.
        end: The positions.
        drained: Every range that was ever drained, also those that positions were set back over.
        pieces: The ranges that count.
        untraced: By version, of the entries that nothing was cut from.
        digest: ``bit_xor(xxhash64(partition, offset))`` of all rows and dead letters; ``None`` if something was cut.
        renewed: Whether the topic was made anew: an offset may belong to several entries.
        torn: Where an entry does not begin where the one before it ended.
        set_back: Where a decision set positions back.
        became_rows: By partition, messages that are rows, also those that a replay made or took out.
        dead_letters: By partition, those whose messages are no rows.
        withdrawn_by: Messages whose rows a replay took out, and that leave no trace since, by the commit that did.
    """

    begin: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]
    drained: tuple[DrainedRange, ...]
    pieces: tuple[DrainedRange, ...]
    declared_losses: tuple[OffsetRange, ...]
    untraced: Mapping[int, Recorded]
    digest: int | None
    renewed: bool = False
    torn: tuple[str, ...] = ()
    set_back: tuple[str, ...] = ()
    became_rows: Mapping[int, int] = field(default_factory=dict)
    dead_letters: Mapping[int, int] = field(default_factory=dict)
    withdrawn_by: Mapping[int, Recorded] = field(default_factory=dict)

    @property
    def offsets(self) -> int:
        return offsets_in(p.range for p in self.pieces) + offsets_in(self.declared_losses)

    @property
    def gaps(self) -> int:
        """Offsets in the gaps that entries list."""
        return offsets_in(g for p in self.pieces for g in p.gaps)

    @property
    def has_untraced(self) -> bool:
        return any(p.counts.untraced.count for p in self.pieces)

    @property
    def recorded_untraced(self) -> Untraced:
        """Tombstones and filtered messages of all that was drained, and those that replays made of rows."""
        parts = (*(p.counts.untraced for p in self.pieces), *(r.untraced for r in self.withdrawn_by.values()))
        return sum(parts, Untraced())

    def bounds(self) -> dict[TopicPartition, OffsetRange]:
        """From the first position of every topic partition to its current one."""
        return {
            tp: OffsetRange(tp, min(self._begin(tp), end), end)
            for tp, end in sorted(self.end.items())
            if end != RETIRED
        }

    def _begin(self, tp: TopicPartition) -> int:
        starts = [r.start for r in (*(p.range for p in self.pieces), *self.declared_losses) if r.topic_partition == tp]
        return min(starts, default=NOTHING_OF_IT)

    def within(self, bounds: Bounds) -> Coverage:
        """What lies within bounds; of a range that is cut only its offsets are known, not what became of each."""

        def cut(ranges: Sequence[OffsetRange]) -> tuple[OffsetRange, ...]:
            both = (_common(r, bounds[r.topic_partition]) for r in ranges if r.topic_partition in bounds)
            return tuple(r for r in both if r.offset_count)

        kept = [(p, cut([p.range])) for p in self.pieces]
        cut_up = {p.version for p, left in kept if left != (p.range,)}
        return replace(
            self,
            pieces=tuple(replace(p, range=left[0], gaps=cut(p.gaps)) for p, left in kept if left),
            declared_losses=cut(self.declared_losses),
            untraced={v: recorded for v, recorded in self.untraced.items() if v not in cut_up},
            digest=None,
        )

    def visible(self) -> Iterator[tuple[int, OffsetRange]]:
        """Version and offsets that a message was read at: the pieces without their gaps."""
        for piece in self.pieces:
            for part in _without(piece.range, piece.gaps):
                yield piece.version, part


def coverage(entries: Sequence[LedgerEntry]) -> Coverage:
    """Put the live entries together, the oldest first: what a decision set positions back over counts no more."""
    torn = []
    at: dict[TopicPartition, int] = {}
    for entry in entries:
        for r in (r.range for r in entry.ranges):
            if at.get(r.topic_partition, 0 if at else r.start) != r.start:
                torn.append(f"v{entry.version} begins {r}, and {at.get(r.topic_partition, 0)} was next")
        at = positions(entry)
    standing = list(entries)
    for out in superseded(entries):
        standing = [without(e, out.range) if out.silences(e) else e for e in standing]
    back = list(steps_back(entries))
    whole = {e.version for e, before in zip(standing, entries, strict=True) if e == before}
    recorded = (e.traced_digest ^ e.withdrawn_digest for e in standing)
    rows, letters = Counter[int](), Counter[int]()
    for e in standing:
        for counts in e.ranges:
            rows[counts.range.topic_partition.partition] += counts.became_rows
            letters[counts.range.topic_partition.partition] += counts.dead_letters
        for tp, came_back in e.returned.items():
            rows[tp.partition] += came_back
            letters[tp.partition] -= came_back
        for tp, withdrawn in e.withdrawn.items():
            rows[tp.partition] -= withdrawn.count
    return Coverage(
        begin=_begin(entries, back),
        end=entries[-1].positions,
        drained=tuple(DrainedRange(e.version, r.range, r) for e in entries for r in e.ranges),
        pieces=tuple(_pieces(standing, entries)),
        declared_losses=tuple(r for e in standing for r in e.declared_losses),
        untraced={e.version: Recorded(e.untraced, e.untraced_digest) for e in standing if e.version in whole},
        digest=reduce(xor, recorded, 0) if len(whole) == len(entries) else None,
        renewed=len({e.topic_id for e in standing if e.ranges}) > 1,
        torn=tuple(torn),
        set_back=tuple(f"v{e.version} set {tp} back from {was} to {at}" for e, tp, was, at in back),
        became_rows=+rows,
        dead_letters=+letters,
        withdrawn_by={
            e.version: Recorded(sum(e.withdrawn.values(), Untraced()), e.withdrawn_digest)
            for e in standing
            if e.withdrawn
        },
    )


def _begin(entries: Sequence[LedgerEntry], back: Iterable[StepBack]) -> dict[TopicPartition, int]:
    """Where the oldest entry that can be read began, or what positions were set back to since. Of a stream that we
    began, everything is ours to speak of."""
    first = entries[0]
    if first.kind == "start":
        return {}
    begun = {tp: NOTHING_OF_IT if at == RETIRED else at for tp, at in first.positions.items()}
    begun |= {r.topic_partition: r.start for r in (*first.declared_losses, *(r.range for r in first.ranges))}
    for _, tp, _, at in back:
        begun[tp] = min(at, begun.get(tp, 0))  # a decision took out what others had written from there on
    return begun


def _pieces(standing: Sequence[LedgerEntry], entries: Sequence[LedgerEntry]) -> Iterator[DrainedRange]:
    for entry, before in zip(standing, entries, strict=True):
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
    """What is left of a range when the gaps in it, in their order, are taken out; never empty ranges."""
    start = whole.start
    for gap in gaps:
        if start < gap.start:
            yield OffsetRange(whole.topic_partition, start, gap.start)
        start = gap.end
    if start < whole.end:
        yield OffsetRange(whole.topic_partition, start, whole.end)


def offsets_in(ranges: Iterable[OffsetRange]) -> int:
    """Offsets of all the ranges together."""
    return sum(r.offset_count for r in ranges)
