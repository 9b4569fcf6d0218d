"""Offsets of which newer entries speak: decisions set positions back over them, or drains read them again. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.transaction_ids import RETIRED
from kdi_assets.stream.stream import OffsetRange, TopicPartition

ENDLESS = 2**63 - 1


class StepBack(NamedTuple):
    """A decision that set a position back, and took out the rows behind it."""

    entry: LedgerEntry
    topic_partition: TopicPartition
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Superseded:
    """Offsets of which older entries say nothing any more.

    Attributes:
        version: Of the decision that took their rows out, or the drain that read them again.
        topic_id: Of the topic that they are of; an entry made for another one of its name keeps its word.
    """

    range: OffsetRange
    version: int
    topic_id: str

    def silences(self, entry: LedgerEntry) -> bool:
        """Whether the entry may have spoken of them."""
        return entry.version < self.version and entry.topic_id == self.topic_id


def superseded(entries: Sequence[LedgerEntry]) -> tuple[Superseded, ...]:
    """What decisions set positions back over, in the order of the entries.

    Args:
        entries: The live ones, the oldest first.
    """
    back = steps_back(entries)
    return tuple(Superseded(OffsetRange(tp, at, ENDLESS), e.version, e.topic_id) for e, tp, _, at in back)


def read_again(entries: Sequence[LedgerEntry]) -> tuple[Superseded, ...]:
    """What drains read that a position had passed before, in the order of the entries.

    A decision alone is none: that rows were taken out does not say that their messages came back.

    Args:
        entries: The live ones, the oldest first.
    """
    passed: dict[tuple[str, TopicPartition], int] = {}
    found: list[Superseded] = []
    for entry in entries:
        for r in (counts.range for counts in entry.ranges):
            found += _read(entry, r, passed.get((entry.topic_id, r.topic_partition), r.start))
        for tp, at in positions(entry).items():
            passed[entry.topic_id, tp] = max(at, passed.get((entry.topic_id, tp), 0))
    return tuple(found)


def steps_back(entries: Sequence[LedgerEntry]) -> Iterator[StepBack]:
    """Every decision that set a position back within its topic."""
    for before, entry in zip(entries, entries[1:], strict=False):
        if entry.kind == "resolve" and entry.topic_id == before.topic_id:
            at = positions(before)
            for tp, position in positions(entry).items():
                if position < at.get(tp, position):
                    yield StepBack(entry, tp, at[tp], position)


def positions(entry: LedgerEntry) -> dict[TopicPartition, int]:
    """Those of topic partitions that are still there."""
    return {tp: at for tp, at in entry.positions.items() if at != RETIRED}


def without(entry: LedgerEntry, silenced: OffsetRange) -> LedgerEntry:
    """The entry without these offsets; a range that they cut in two becomes two, each with the counts of the whole."""
    return replace(
        entry,
        ranges=tuple(replace(r, range=part) for r in entry.ranges for part in _parts(r.range, silenced)),
        gaps=tuple(part for gap in entry.gaps for part in _parts(gap, silenced)),
        declared_losses=tuple(part for lost in entry.declared_losses for part in _parts(lost, silenced)),
    )


def _read(entry: LedgerEntry, r: OffsetRange, until: int) -> Iterator[Superseded]:
    """What a drain read of a range below an offset."""
    end = min(r.end, until)
    parts = [OffsetRange(r.topic_partition, r.start, end)] if r.start < end else []
    for gap in entry.gaps:  # the topic is compacted: of a message that is gone, the older entry is right
        parts = [part for whole in parts for part in _parts(whole, gap)]
    yield from (Superseded(part, entry.version, entry.topic_id) for part in parts)


def _parts(r: OffsetRange, out: OffsetRange) -> Iterator[OffsetRange]:
    if r.topic_partition != out.topic_partition or out.end <= r.start or r.end <= out.start:
        yield r
        return
    if r.start < out.start:
        yield replace(r, end=out.start)
    if out.end < r.end:
        yield replace(r, start=out.end)
