"""Anew: offsets that were drained more than once, of which only the newest word counts. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.state import RETIRED
from kdi_assets.stream import OffsetRange, TopicPartition

ENDLESS = 2**63 - 1


class StepBack(NamedTuple):
    """A decision that set a position back."""

    entry: LedgerEntry
    topic_partition: TopicPartition
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Anew:
    """Offsets of which older entries say nothing any more.

    Attributes:
        version: Of the entry from which on others speak of them: the drain that read them again, or the decision that
            took their rows out.
        topic_id: Of the topic that they are of; an entry made for another one of its name keeps its word.
    """

    range: OffsetRange
    version: int
    topic_id: str

    def silences(self, entry: LedgerEntry) -> bool:
        """Whether the entry may have spoken of them."""
        return entry.version < self.version and entry.topic_id == self.topic_id


def anew(entries: Sequence[LedgerEntry]) -> tuple[Anew, ...]:
    """What was drained again, or is to be, in the order of the entries.

    Where rows stay behind a position that was set back, their entries speak of them until a drain has replaced them.

    Args:
        entries: The live ones, the oldest first.
    """
    return tuple(found for entry, before in _pairs(entries) for found in _of(entry, before))


def read_again(entries: Sequence[LedgerEntry]) -> tuple[Anew, ...]:
    """What drains read that a position had passed before, in the order of the entries.

    Unlike in ``anew``, a decision alone is none: that rows were taken out does not say that their messages came back.

    Args:
        entries: The live ones, the oldest first.
    """
    passed: dict[tuple[str, TopicPartition], int] = {}
    found: list[Anew] = []
    for entry in entries:
        for r in (counts.range for counts in entry.ranges):
            found += _read(entry, r, passed.get((entry.topic_id, r.topic_partition), r.start))
        for tp, at in positions(entry).items():
            passed[entry.topic_id, tp] = max(at, passed.get((entry.topic_id, tp), 0))
    return tuple(found)


def passed(entries: Sequence[LedgerEntry], topic_id: str) -> dict[TopicPartition, int]:
    """How far positions of a topic have ever been; what lies behind, no entry says that anybody has read."""
    far: dict[TopicPartition, int] = {}
    for entry in entries:
        if entry.topic_id == topic_id:
            far |= {tp: max(at, far.get(tp, 0)) for tp, at in positions(entry).items()}
    return far


def steps_back(entries: Sequence[LedgerEntry]) -> Iterator[StepBack]:
    """Every decision that set a position back within its topic."""
    for entry, before in _pairs(entries):
        if entry.kind == "resolve" and before is not None and entry.topic_id == before.topic_id:
            at = positions(before)
            for tp, position in entry.positions.items():
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


def _pairs(entries: Sequence[LedgerEntry]) -> Iterator[tuple[LedgerEntry, LedgerEntry | None]]:
    return zip(entries, (None, *entries), strict=False)  # the last of these has none behind it


def _of(entry: LedgerEntry, before: LedgerEntry | None) -> Iterator[Anew]:
    until = _until(before, entry)
    if entry.kind == "resolve":
        for _, tp, _, position in steps_back([before, entry] if before else []):
            # What lies behind the rows that stay is not there, or was read by nobody who knew of them.
            start = max(position, entry.rows_until.get(tp, position))
            yield Anew(OffsetRange(tp, start, ENDLESS), entry.version, entry.topic_id)
        for tp, end in until.items():
            # Where it was set back earlier: what stayed there then is taken out now.
            at = entry.positions.get(tp, RETIRED)
            if before and before.positions.get(tp) == at != RETIRED and at < end and tp not in entry.rows_until:
                yield Anew(OffsetRange(tp, at, ENDLESS), entry.version, entry.topic_id)
    for r in (counts.range for counts in entry.ranges):
        yield from _read(entry, r, until.get(r.topic_partition, r.start))


def _read(entry: LedgerEntry, r: OffsetRange, until: int) -> Iterator[Anew]:
    """What a drain read of a range below an offset."""
    end = min(r.end, until)
    parts = [OffsetRange(r.topic_partition, r.start, end)] if r.start < end else []
    for gap in entry.gaps:  # the topic is compacted: of a message that is gone, the older entry is right
        parts = [part for whole in parts for part in _parts(whole, gap)]
    yield from (Anew(part, entry.version, entry.topic_id) for part in parts)


def _until(before: LedgerEntry | None, entry: LedgerEntry) -> Mapping[TopicPartition, int]:
    return before.rows_until if before is not None and before.topic_id == entry.topic_id else {}


def _parts(r: OffsetRange, out: OffsetRange) -> Iterator[OffsetRange]:
    if r.topic_partition != out.topic_partition or out.end <= r.start or r.end <= out.start:
        yield r
        return
    if r.start < out.start:
        yield replace(r, end=out.start)
    if out.end < r.end:
        yield replace(r, start=out.end)
