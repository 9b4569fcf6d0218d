"""Tombstones, filtered messages, unlisted gaps: they leave no trace; count and digest tell them from what is missing.

Entries keep both. An offset that is nowhere has no kind: one digest proves all kinds together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import xor
from typing import TYPE_CHECKING

from kdi_assets.ledger.coverage import Coverage, Piece
from kdi_assets.ledger.entry import Untraced

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BY_COUNT = "tombstones, filtered messages and unlisted gaps of a range that is cut are known by their count alone"
RENEWED = "the topic was made anew: tombstones, filtered messages and unlisted gaps are known by their count alone"
NONE = Untraced()


@dataclass(frozen=True, slots=True)
class Group:
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


def settle(groups: Sequence[Group], covered: Coverage) -> Settled:
    """Compare offsets that nobody took with what was recorded as leaving no trace.

    By digest where an entry is whole. Where it is not, by the count of each range: a range that is cut may have had
    fewer than that. Of a topic that was made anew an offset belongs to several entries: by the count of all of them.
    """
    if covered.renewed:
        return _together(_by_partition(groups, covered))
    pieces = {(p.version, p.range.topic_partition.partition): p for p in covered.pieces}
    by_version: dict[int, list[Group]] = {}
    for group in (*groups, *_none_left(groups, covered)):
        by_version.setdefault(group.version, []).append(group)
    return _together(_of_entry(v, found, pieces, covered) for v, found in by_version.items())


def _none_left(groups: Sequence[Group], covered: Coverage) -> Iterable[Group]:
    """Of ranges that recorded some, none of which is missing any more."""
    known = {(g.version, g.partition) for g in groups}
    for piece in covered.pieces:
        at = (piece.version, piece.range.topic_partition.partition)
        if piece.counts.untraced.count and not piece.is_cut and at not in known:
            yield Group(*at, count=0, digest=0)


def _of_entry(
    version: int, groups: Sequence[Group], pieces: dict[tuple[int, int], Piece], covered: Coverage
) -> Settled:
    recorded, count = covered.untraced.get(version), sum(g.count for g in groups)
    if recorded and count == recorded.untraced.count and reduce(xor, (g.digest for g in groups), 0) == recorded.digest:
        return Settled(recorded.untraced)
    surplus = {g.partition: g.count - pieces[version, g.partition].counts.untraced.count for g in groups}
    if recorded and not any(surplus.values()):
        # As many as were recorded, and others: rows lie where there were none, and rows are missing.
        return Settled(open=frozenset((version, g.partition) for g in groups))
    return _together(_of_range(g, pieces[version, g.partition]) for g in groups)


def _of_range(group: Group, piece: Piece) -> Settled:
    recorded = piece.counts.untraced
    notes = (BY_COUNT,) if piece.is_cut and recorded.count else ()
    if group.count > recorded.count:
        return Settled(open=frozenset([(group.version, group.partition)]), among_suspects=recorded, notes=notes)
    found = as_recorded(group.count, recorded)
    if group.count < recorded.count and not piece.is_cut:
        odds = f"v{group.version} recorded {recorded} in {piece.range}; rows lie where some of them were"
        return Settled(found, at_odds=(odds,))
    return Settled(found, notes=notes)


def as_recorded(count: int, recorded: Untraced) -> Untraced:
    """So many offsets as what was recorded; of a part of several kinds it is not known how many are of which."""
    tombstones = min(count, recorded.tombstones)
    filtered = min(count - tombstones, recorded.filtered)
    return Untraced(tombstones, filtered, count - tombstones - filtered)


def _by_partition(groups: Sequence[Group], covered: Coverage) -> Iterable[Settled]:
    recorded: defaultdict[int, Untraced] = defaultdict(Untraced)
    for piece in covered.pieces:
        recorded[piece.range.topic_partition.partition] += piece.counts.untraced
    for partition in sorted({g.partition for g in groups}):
        found = [g for g in groups if g.partition == partition]
        count = sum(g.count for g in found)
        if count <= recorded[partition].count:
            yield Settled(as_recorded(count, recorded[partition]), notes=(RENEWED,))
        else:
            yield Settled(open=frozenset((g.version, partition) for g in found), among_suspects=recorded[partition])


def _together(parts: Iterable[Settled]) -> Settled:
    every = list(parts)
    return Settled(
        untraced=sum((s.untraced for s in every), NONE),
        open=frozenset().union(*(s.open for s in every)),
        among_suspects=sum((s.among_suspects for s in every), NONE),
        notes=tuple(dict.fromkeys(note for s in every for note in s.notes)),
        at_odds=tuple(odds for s in every for odds in s.at_odds),
    )
