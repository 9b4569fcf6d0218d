"""Tombstones, filtered messages and unlisted gaps: told from missing offsets by count and digest.

Entries keep both. An offset that is nowhere has no kind: one digest proves all kinds together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import xor
from typing import TYPE_CHECKING

from kdi_assets.audit.coverage import Coverage, DrainedRange, Recorded
from kdi_assets.ledger.entry import Untraced

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BY_COUNT = "tombstones, filtered messages and unlisted gaps of a range that is cut are known by their count alone"
RENEWED = "the topic was made anew: tombstones, filtered messages and unlisted gaps are known by their count alone"
NONE = Untraced()


@dataclass(frozen=True, slots=True)
class AbsentOffsets:
    """Offsets of one entry and topic partition that are nowhere, and that no commit is known to have taken."""

    version: int
    partition: int
    count: int
    digest: int


@dataclass(frozen=True, slots=True)
class Settled:
    """What leaves no trace, told from what is missing.

    Attributes:
        untraced: Offsets that were recorded as leaving no trace.
        open: (version, partition) of entries whose missing offsets are more than those.
        among_suspects: Of those offsets, what leaves no trace, which cannot be told from the others.
        at_odds: What was recorded and is no longer among what is missing.
    """

    untraced: Untraced = NONE
    open: frozenset[tuple[int, int]] = frozenset()
    among_suspects: Untraced = NONE
    notes: tuple[str, ...] = ()
    at_odds: tuple[str, ...] = ()

    def suspects(self, spark: SparkSession, left: DataFrame) -> DataFrame:
        """The offsets that left a trace, or cannot be told from them: ``partition, offset, version, n, taken_by``.

        Args:
            left: The same columns, of all that nobody removed on purpose.
        """
        from pyspark.sql import functions as F

        groups = spark.createDataFrame(sorted(self.open), "version bigint, partition int")
        nobody = left.where("taken_by IS NULL").join(F.broadcast(groups), ["version", "partition"], "left_semi")
        columns = ["partition", "offset", "version", "n", "taken_by"]
        return left.where("taken_by IS NOT NULL").select(*columns).unionByName(nobody.select(*columns))


def settle(groups: Sequence[AbsentOffsets], covered: Coverage) -> Settled:
    """Compare offsets that nobody took with what was recorded as leaving no trace.

    By digest where an entry is whole. Where it is not, by the count of each range: a range that is cut may have had
    fewer than that. Of a topic that was made anew an offset belongs to several entries: by the count of all of them.
    """
    if covered.renewed:
        recorded: defaultdict[int, Untraced] = defaultdict(Untraced)
        for piece in covered.pieces:
            recorded[piece.range.topic_partition.partition] += piece.counts.untraced
        found = {g.partition: [o for o in groups if o.partition == g.partition] for g in groups}
        return _together(_by_count(of_it, recorded[p], (RENEWED,)) for p, of_it in sorted(found.items()))
    missing = {(g.version, g.partition): g for g in groups}
    by_version: defaultdict[int, list[tuple[AbsentOffsets, DrainedRange]]] = defaultdict(list)
    for at, piece in {(p.version, p.range.topic_partition.partition): p for p in covered.pieces}.items():
        # Also of ranges that recorded some, none of which is missing any more.
        if at in missing or (piece.counts.untraced.count and not piece.is_cut):
            by_version[piece.version].append((missing.get(at, AbsentOffsets(*at, count=0, digest=0)), piece))
    return _together(_of_entry(covered.untraced.get(v), ranges) for v, ranges in by_version.items())


def _of_entry(recorded: Recorded | None, ranges: Sequence[tuple[AbsentOffsets, DrainedRange]]) -> Settled:
    groups = [group for group, _ in ranges]
    count, digest = sum(g.count for g in groups), reduce(xor, (g.digest for g in groups), 0)
    if recorded and (count, digest) == (recorded.untraced.count, recorded.digest):
        return Settled(recorded.untraced)
    if recorded and all(group.count == piece.counts.untraced.count for group, piece in ranges):
        # As many as were recorded, and others: rows lie where there were none, and rows are missing.
        return Settled(open=frozenset((g.version, g.partition) for g in groups))
    return _together(_of_range(group, piece) for group, piece in ranges)


def _of_range(group: AbsentOffsets, piece: DrainedRange) -> Settled:
    recorded = piece.counts.untraced
    settled = _by_count([group], recorded, (BY_COUNT,) if piece.is_cut and recorded.count else ())
    if group.count < recorded.count and not piece.is_cut:
        odds = f"v{group.version} recorded {recorded} in {piece.range}; rows lie where some of them were"
        return replace(settled, at_odds=(odds,))
    return settled


def _by_count(groups: Sequence[AbsentOffsets], recorded: Untraced, notes: tuple[str, ...]) -> Settled:
    count = sum(g.count for g in groups)
    if count > recorded.count:
        return Settled(open=frozenset((g.version, g.partition) for g in groups), among_suspects=recorded, notes=notes)
    return Settled(as_recorded(count, recorded), notes=notes)


def as_recorded(count: int, recorded: Untraced) -> Untraced:
    """So many offsets as what was recorded; of a part of several kinds it is not known how many are of which."""
    tombstones = min(count, recorded.tombstones)
    filtered = min(count - tombstones, recorded.filtered)
    return Untraced(tombstones, filtered, count - tombstones - filtered)


def _together(parts: Iterable[Settled]) -> Settled:
    every = list(parts)
    return Settled(
        untraced=sum((s.untraced for s in every), NONE),
        open=frozenset().union(*(s.open for s in every)),
        among_suspects=sum((s.among_suspects for s in every), NONE),
        notes=tuple(dict.fromkeys(note for s in every for note in s.notes)),
        at_odds=tuple(odds for s in every for odds in s.at_odds),
    )
