"""Tombstones, filtered messages and unlisted gaps: found among missing offsets by count and digest.

Entries record count and digest of these kinds together. A missing offset alone has no kind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import xor
from typing import TYPE_CHECKING

from kdi_assets.streams.audit.coverage import Coverage, DrainedRange, RowlessRecord
from kdi_assets.streams.ledger.entry import RowlessCounts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BY_COUNT = "in a range that is cut, tombstones, filtered messages and unlisted gaps are known only by their count"
RECREATED = "the topic was recreated: tombstones, filtered messages and unlisted gaps are known only by their count"
NO_COUNTS = RowlessCounts()


@dataclass(frozen=True, slots=True)
class AbsentOffsets:
    """Offsets of one entry and topic partition that are missing, and that no known commit removed."""

    version: int
    partition: int
    count: int
    digest: int


@dataclass(frozen=True, slots=True)
class RowlessMatch:
    """Missing offsets compared with the rowless messages that entries recorded.

    Attributes:
        rowless: Missing offsets that are recorded rowless messages.
        unmatched: (version, partition) of entries with more missing offsets than recorded rowless messages.
        among_unmatched: Rowless messages of these entries; which of their missing offsets they are, is unknown.
        contradictions: Where fewer offsets are missing than were recorded as rowless.
    """

    rowless: RowlessCounts = NO_COUNTS
    unmatched: frozenset[tuple[int, int]] = frozenset()
    among_unmatched: RowlessCounts = NO_COUNTS
    notes: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()

    def unexplained(self, spark: SparkSession, missing: DataFrame) -> DataFrame:
        """The missing offsets that a known commit removed, or that belong to an unmatched entry.

        Args:
            missing: ``partition, offset, version, n, taken_by``, without offsets that someone removed on purpose.

        Returns:
            The same columns.
        """
        from pyspark.sql import functions as F

        groups = spark.createDataFrame(sorted(self.unmatched), "version bigint, partition int")
        unmatched = missing.where("taken_by IS NULL").join(F.broadcast(groups), ["version", "partition"], "left_semi")
        columns = ["partition", "offset", "version", "n", "taken_by"]
        return missing.where("taken_by IS NOT NULL").select(*columns).unionByName(unmatched.select(*columns))


def match_rowless(groups: Sequence[AbsentOffsets], covered: Coverage) -> RowlessMatch:
    """Compare missing offsets with the rowless messages that entries recorded.

    An entry that counts as a whole is compared by digest. Otherwise the count of each range is compared; a range that
    is cut may have had fewer. If the topic was recreated, an offset belongs to several entries, so their counts are
    added.
    """
    if covered.topic_recreated:
        recorded: defaultdict[int, RowlessCounts] = defaultdict(RowlessCounts)
        for piece in covered.pieces:
            recorded[piece.range.topic_partition.partition] += piece.counts.rowless
        found = {g.partition: [o for o in groups if o.partition == g.partition] for g in groups}
        return _combine(_match_count(of_it, recorded[p], (RECREATED,)) for p, of_it in sorted(found.items()))
    missing = {(g.version, g.partition): g for g in groups}
    by_version: defaultdict[int, list[tuple[AbsentOffsets, DrainedRange]]] = defaultdict(list)
    for at, piece in {(p.version, p.range.topic_partition.partition): p for p in covered.pieces}.items():
        # Also ranges that recorded rowless messages of which none is missing now.
        if at in missing or (piece.counts.rowless.count and not piece.is_cut):
            by_version[piece.version].append((missing.get(at, AbsentOffsets(*at, count=0, digest=0)), piece))
    return _combine(_match_entry(covered.rowless.get(v), ranges) for v, ranges in by_version.items())


def _match_entry(recorded: RowlessRecord | None, ranges: Sequence[tuple[AbsentOffsets, DrainedRange]]) -> RowlessMatch:
    groups = [group for group, _ in ranges]
    count, digest = sum(g.count for g in groups), reduce(xor, (g.digest for g in groups), 0)
    if recorded and (count, digest) == (recorded.counts.count, recorded.digest):
        return RowlessMatch(recorded.counts)
    if recorded and all(group.count == piece.counts.rowless.count for group, piece in ranges):
        # The counts are equal and the offsets are not: rows are missing, and others are where none should be.
        return RowlessMatch(unmatched=frozenset((g.version, g.partition) for g in groups))
    return _combine(_match_range(group, piece) for group, piece in ranges)


def _match_range(group: AbsentOffsets, piece: DrainedRange) -> RowlessMatch:
    recorded = piece.counts.rowless
    match = _match_count([group], recorded, (BY_COUNT,) if piece.is_cut and recorded.count else ())
    if group.count < recorded.count and not piece.is_cut:
        contradiction = f"v{group.version} recorded {recorded} in {piece.range}; some of these offsets have rows"
        return replace(match, contradictions=(contradiction,))
    return match


def _match_count(groups: Sequence[AbsentOffsets], recorded: RowlessCounts, notes: tuple[str, ...]) -> RowlessMatch:
    count = sum(g.count for g in groups)
    if count > recorded.count:
        unmatched = frozenset((g.version, g.partition) for g in groups)
        return RowlessMatch(unmatched=unmatched, among_unmatched=recorded, notes=notes)
    return RowlessMatch(at_most(count, recorded), notes=notes)


def at_most(count: int, recorded: RowlessCounts) -> RowlessCounts:
    """``recorded``, limited to ``count`` offsets; which kinds these are is unknown if there are several."""
    tombstones = min(count, recorded.tombstones)
    filtered = min(count - tombstones, recorded.filtered)
    return RowlessCounts(tombstones, filtered, count - tombstones - filtered)


def _combine(matches: Iterable[RowlessMatch]) -> RowlessMatch:
    every = list(matches)
    return RowlessMatch(
        rowless=sum((m.rowless for m in every), NO_COUNTS),
        unmatched=frozenset().union(*(m.unmatched for m in every)),
        among_unmatched=sum((m.among_unmatched for m in every), NO_COUNTS),
        notes=tuple(dict.fromkeys(note for m in every for note in m.notes)),
        contradictions=tuple(contradiction for m in every for contradiction in m.contradictions),
    )
