"""Offsets with a newer ledger entry: a decision set the position back over them, or a drain read them again. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.positions import RETIRED

NO_END = 2**63 - 1


class PositionReset(NamedTuple):
    """A decision that set a position back, and removed the rows from there on."""

    entry: LedgerEntry
    topic_partition: TopicPartition
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Superseded:
    """Offsets for which older entries no longer hold.

    Attributes:
        version: Of the decision that removed their rows, or the drain that read them again.
        topic_id: Entries for another topic with the same name still hold.
    """

    range: OffsetRange
    version: int
    topic_id: str

    def applies_to(self, entry: LedgerEntry) -> bool:
        """Whether the entry is older, and for the same topic."""
        return entry.version < self.version and entry.topic_id == self.topic_id


def superseded_by_decisions(entries: Sequence[LedgerEntry]) -> tuple[Superseded, ...]:
    """The offsets over which decisions set positions back, in the order of the entries.

    Args:
        entries: The live ones, oldest first.
    """
    resets = position_resets(entries)
    return tuple(Superseded(OffsetRange(tp, at, NO_END), e.version, e.topic_id) for e, tp, _, at in resets)


def superseded_by_drains(entries: Sequence[LedgerEntry]) -> tuple[Superseded, ...]:
    """The offsets that drains read although a position had passed them before, in the order of the entries.

    A decision alone does not count: it removes rows, but their messages may never be read again.

    Args:
        entries: The live ones, oldest first.
    """
    passed: dict[tuple[str, TopicPartition], int] = {}
    found: list[Superseded] = []
    for entry in entries:
        for r in (counts.range for counts in entry.ranges):
            found += _read_again(entry, r, passed.get((entry.topic_id, r.topic_partition), r.start))
        for tp, at in positions(entry).items():
            passed[entry.topic_id, tp] = max(at, passed.get((entry.topic_id, tp), 0))
    return tuple(found)


def position_resets(entries: Sequence[LedgerEntry]) -> Iterator[PositionReset]:
    """Every decision that set a position back within its topic."""
    for before, entry in zip(entries, entries[1:], strict=False):
        if entry.kind == "resolve" and entry.topic_id == before.topic_id:
            at = positions(before)
            for tp, position in positions(entry).items():
                if position < at.get(tp, position):
                    yield PositionReset(entry, tp, at[tp], position)


def positions(entry: LedgerEntry) -> dict[TopicPartition, int]:
    """The positions without ``RETIRED`` ones."""
    return {tp: at for tp, at in entry.positions.items() if at != RETIRED}


def without_offsets(entry: LedgerEntry, out: OffsetRange) -> LedgerEntry:
    """The entry without these offsets; a range that they cut in two becomes two, each with the counts of the whole."""
    return replace(
        entry,
        ranges=tuple(replace(r, range=part) for r in entry.ranges for part in _remaining(r.range, out)),
        gaps=tuple(part for gap in entry.gaps for part in _remaining(gap, out)),
        declared_losses=tuple(part for lost in entry.declared_losses for part in _remaining(lost, out)),
    )


def _read_again(entry: LedgerEntry, r: OffsetRange, until: int) -> Iterator[Superseded]:
    """The offsets of a range below ``until`` at which the drain found a message."""
    end = min(r.end, until)
    parts = [OffsetRange(r.topic_partition, r.start, end)] if r.start < end else []
    for gap in entry.gaps:  # the topic is compacted: for a message that is gone, the older entry holds
        parts = [part for whole in parts for part in _remaining(whole, gap)]
    yield from (Superseded(part, entry.version, entry.topic_id) for part in parts)


def _remaining(r: OffsetRange, out: OffsetRange) -> Iterator[OffsetRange]:
    if r.topic_partition != out.topic_partition or out.end <= r.start or r.end <= out.start:
        yield r
        return
    if r.start < out.start:
        yield replace(r, end=out.start)
    if out.end < r.end:
        yield replace(r, start=out.end)
