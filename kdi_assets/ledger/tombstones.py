"""Tombstones: they leave no trace, so they are told from what is missing by the count and digest that entries keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import xor
from typing import TYPE_CHECKING

from kdi_assets.ledger.coverage import Coverage, Piece

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BY_COUNT = "tombstones of a range that is cut are known by their count alone"


@dataclass(frozen=True, slots=True)
class Group:
    """Offsets of one entry and topic partition that are nowhere, and that no commit is known to have taken."""

    version: int
    partition: int
    count: int
    digest: int


@dataclass(frozen=True, slots=True)
class Settled:
    """Tombstones told from what is missing.

    Attributes:
        tombstones: Offsets that are tombstones.
        open: (version, partition) of entries whose missing offsets are more than their tombstones.
        among_suspects: Tombstones among those, which cannot be told apart.
        at_odds: Tombstones that were recorded and are no longer among what is missing.
    """

    tombstones: int = 0
    open: frozenset[tuple[int, int]] = frozenset()
    among_suspects: int = 0
    notes: tuple[str, ...] = ()
    at_odds: tuple[str, ...] = ()

    def suspects(self, spark: SparkSession, left: DataFrame) -> DataFrame:
        """The offsets that are no tombstones, or cannot be told from them: ``partition, offset, version, n, taken_by``.

        Args:
            left: The same columns, of all that nobody removed on purpose.
        """
        from pyspark.sql import functions as F

        groups = spark.createDataFrame(sorted(self.open), "version bigint, partition int")
        nobody = left.where("taken_by IS NULL").join(F.broadcast(groups), ["version", "partition"], "left_semi")
        columns = ["partition", "offset", "version", "n", "taken_by"]
        return left.where("taken_by IS NOT NULL").select(*columns).unionByName(nobody.select(*columns))


def settle(groups: Sequence[Group], covered: Coverage) -> Settled:
    """Compare offsets that nobody took with the tombstones recorded.

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
    """Of ranges with tombstones, none of which is missing any more."""
    known = {(g.version, g.partition) for g in groups}
    for piece in covered.pieces:
        at = (piece.version, piece.range.topic_partition.partition)
        if piece.counts.tombstones and not piece.is_cut and at not in known:
            yield Group(*at, count=0, digest=0)


def _of_entry(
    version: int, groups: Sequence[Group], pieces: dict[tuple[int, int], Piece], covered: Coverage
) -> Settled:
    recorded, count = covered.tombstones.get(version), sum(g.count for g in groups)
    if recorded and count == recorded.tombstones and reduce(xor, (g.digest for g in groups), 0) == recorded.digest:
        return Settled(count)
    surplus = {g.partition: g.count - pieces[version, g.partition].counts.tombstones for g in groups}
    if recorded and not any(surplus.values()):
        # As many as were recorded, and others: rows lie where tombstones were, and rows are missing.
        return Settled(open=frozenset((version, g.partition) for g in groups))
    return _together(_of_range(g, pieces[version, g.partition]) for g in groups)


def _of_range(group: Group, piece: Piece) -> Settled:
    recorded = piece.counts.tombstones
    notes = (BY_COUNT,) if piece.is_cut and recorded else ()
    if group.count > recorded:
        return Settled(open=frozenset([(group.version, group.partition)]), among_suspects=recorded, notes=notes)
    if group.count < recorded and not piece.is_cut:
        odds = f"v{group.version} recorded {recorded:,} tombstones in {piece.range}; rows lie where some of them were"
        return Settled(group.count, at_odds=(odds,))
    return Settled(group.count, notes=notes)


def _by_partition(groups: Sequence[Group], covered: Coverage) -> Iterable[Settled]:
    recorded: Counter[int] = Counter()
    for piece in covered.pieces:
        recorded[piece.range.topic_partition.partition] += piece.counts.tombstones
    for partition in sorted({g.partition for g in groups}):
        found = [g for g in groups if g.partition == partition]
        count = sum(g.count for g in found)
        if count <= recorded[partition]:
            yield Settled(count, notes=("the topic was made anew: tombstones are known by their count alone",))
        else:
            yield Settled(open=frozenset((g.version, partition) for g in found), among_suspects=recorded[partition])


def _together(parts: Iterable[Settled]) -> Settled:
    every = list(parts)
    return Settled(
        tombstones=sum(s.tombstones for s in every),
        open=frozenset().union(*(s.open for s in every)),
        among_suspects=sum(s.among_suspects for s in every),
        notes=tuple(dict.fromkeys(note for s in every for note in s.notes)),
        at_odds=tuple(odds for s in every for odds in s.at_odds),
    )
