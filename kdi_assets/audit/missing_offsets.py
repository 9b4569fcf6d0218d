"""The audit's slow path: offset by offset, what is missing or there twice, and which commits did it.

Only for tables whose counts and digests do not already prove that nothing is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kdi_assets.audit.coverage import Coverage
from kdi_assets.audit.foreign_changes import Changes, changes, letters_taken, predicate, removed_by_count
from kdi_assets.audit.offsets_in_spark import covering, differing, islands, ours
from kdi_assets.audit.report import SHOWN, Deletion, Double, Hole
from kdi_assets.audit.rowless_messages import NONE, AbsentOffsets, Settled, as_recorded, settle
from kdi_assets.ledger.commit_info import CommitInfo
from kdi_assets.ledger.coordinates import DIGEST, inside
from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.ledger.entry import Untraced
from kdi_assets.ledger.history import LiveHistory, removes_rows
from kdi_assets.ledger.letters import came_back
from kdi_assets.stream.stream import OffsetRange, Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AT = ["partition", "offset"]


@dataclass(frozen=True, slots=True)
class MissingOffsets:
    """What became of the offsets that are not there as often as entries cover them; see ``AuditReport``.

    Attributes:
        not_ours: Rows below the first positions, of which the ledger cannot speak.
        lost_again, gaps_again: Declared losses and gaps that are rows: a dead letter had kept the message.
        at_odds: What counts that cannot both be true say; then the audit is not complete.
    """

    untraced: Untraced = Untraced()
    missing: int = 0
    twice: int = 0
    not_ours: int = 0
    lost_again: int = 0
    gaps_again: int = 0
    holes: tuple[Hole, ...] = ()
    doubles: tuple[Double, ...] = ()
    deletions: tuple[Deletion, ...] = ()
    notes: tuple[str, ...] = ()
    at_odds: tuple[str, ...] = ()


def find_missing(
    spark: SparkSession, stream: Stream, lake: str, found: DataFrame, covered: Coverage, history: LiveHistory
) -> MissingOffsets:
    """Look at single offsets.

    Args:
        found: ``partition: int, offset: bigint`` of every row and every letter that counts, as often as it is there.
    """
    from pyspark import StorageLevel

    # On disk: tombstones and filtered messages, which may be many, are here too, and each step below reads them.
    off = differing(spark, found, covered).persist(StorageLevel.DISK_ONLY)
    try:
        return _MissingSearch(spark, stream, lake, off, covered, history).result()
    finally:
        off.unpersist()


@dataclass
class _MissingSearch:
    spark: SparkSession
    stream: Stream
    lake: str
    off: DataFrame
    covered: Coverage
    history: LiveHistory

    def result(self) -> MissingOffsets:
        sums = self.off.selectExpr(
            "coalesce(sum(greatest(expected - present, 0)), 0) AS missing",
            f"coalesce(sum(CASE WHEN {self._twice} THEN present - expected END), 0) AS twice",
            f"coalesce(sum(CASE WHEN present > expected AND NOT {self._ours} THEN present - expected END), 0) AS other",
        ).collect()[0]
        lost = self._missing() if sums["missing"] or self.covered.has_untraced else MissingOffsets()
        again = {r["lost"]: r["count"] for r in self._again.groupBy("lost").count().collect()} if sums["twice"] else {}
        twice = sums["twice"] - sum(again.values())
        doubles = self._doubles() if twice else ()
        lost_again, gaps_again = again.get(True, 0), again.get(False, 0)
        return replace(
            lost, twice=twice, doubles=doubles, not_ours=sums["other"], lost_again=lost_again, gaps_again=gaps_again
        )

    @property
    def _ours(self) -> str:
        return f"({ours(self.covered.begin)})"

    @property
    def _twice(self) -> str:
        return f"present > expected AND {self._ours}"

    @cached_property
    def _again(self) -> DataFrame:
        """Offsets that no drain's word explains, and a replay's does: ``partition, offset, lost: boolean``."""
        lost = " OR ".join(inside({r.topic_partition: r}) for r in self.covered.declared_losses) or "false"
        letters = came_back(self.spark, self.stream.dead_letters_uri(self.lake), self.history.entries)
        once = self.off.where(f"{self._twice} AND expected = 0 AND present = 1").join(letters, _AT, "left_semi")
        return once.selectExpr(*_AT, f"{lost} AS lost")

    @cached_property
    def _log(self) -> TableLog:
        return TableLog.existing(self.stream.table_uri(self.lake))

    @cached_property
    def _operations(self) -> Mapping[int, CommitInfo]:
        return {c.version: c for c in (*self.history.foreign, *self.history.withdrawing)}

    def _missing(self) -> MissingOffsets:
        """What leaves no trace, deletions and holes."""
        from pyspark import StorageLevel
        from pyspark.sql import functions as F

        missing = self.off.where("expected > present").selectExpr(*_AT, "version", "expected - present AS n")
        removing = (*self.history.removing, *self.history.withdrawing)
        feed = changes(self.spark, self.stream, self._log, removing)
        taken = taken_away(self.spark, self.stream, self.lake, missing, feed, self.history)
        taken = taken.persist(StorageLevel.DISK_ONLY)
        try:
            deletions, withdrawn = self._deletions(taken), self._withdrawn(taken)
            by_replay = F.col("taken_by").isin(list(withdrawn))
            left = taken.where("NOT coalesce(deliberate, false)").where(~F.coalesce(by_replay, F.lit(False)))
            settled = self._settle_untraced(left)
            explained = self._explain(left, settled, deletions, feed)
            return replace(explained, untraced=sum(withdrawn.values(), explained.untraced))
        finally:
            taken.unpersist()

    def _withdrawn(self, taken: DataFrame) -> dict[int, Untraced]:
        """What replays took out because it leaves no trace by its definition, as far as they recorded it.

        There may be fewer: what was drained again since. Of a replay that took others than it recorded nothing counts.
        """
        from pyspark.sql import functions as F

        recorded = self.covered.withdrawn_by
        of_replays = taken.where(F.col("taken_by").isin(list(recorded))).groupBy("taken_by")
        found = of_replays.agg(F.sum("n").alias("n"), F.expr(DIGEST).alias("digest")).collect()
        return {
            r["taken_by"]: as_recorded(r["n"], all_.untraced)
            for r in found
            if (all_ := recorded[r["taken_by"]])
            and (r["n"] < all_.untraced.count or (r["n"], r["digest"]) == (all_.untraced.count, all_.digest))
        }

    def _deletions(self, taken: DataFrame) -> tuple[Deletion, ...]:
        from pyspark.sql import functions as F

        counted = taken.where("deliberate").groupBy("taken_by", "letter").agg(F.sum("n").alias("n")).collect()
        rows: Counter[int] = Counter()
        letters: Counter[int] = Counter()
        for r in counted:
            if r["taken_by"] is not None:
                rows[r["taken_by"]] += r["n"]
            else:
                letters[r["letter"]] += r["n"]
        by = self._operations
        of_rows = [Deletion(v, by[v].operation, predicate(by[v]), n) for v, n in sorted(rows.items())]
        of_letters = [Deletion(v, "DELETE", "", n, what="dead letters") for v, n in sorted(letters.items())]
        return (*of_rows, *of_letters)

    def _settle_untraced(self, left: DataFrame) -> Settled:
        """Which of the offsets that nobody took are the tombstones and filtered messages that entries recorded."""
        from pyspark.sql import functions as F

        nobody = left.where("taken_by IS NULL").groupBy("version", "partition")
        groups = [
            AbsentOffsets(r["version"], r["partition"], r["n"], r["digest"])
            for r in nobody.agg(F.sum("n").alias("n"), F.expr(DIGEST).alias("digest")).collect()
        ]
        return settle(groups, self.covered)

    def _explain(
        self, left: DataFrame, settled: Settled, deletions: tuple[Deletion, ...], feed: Changes
    ) -> MissingOffsets:
        """What is left when those and deletions are taken out: withdrawn by a replay that told how many, or missing."""
        suspects = settled.suspects(self.spark, left)
        missing, notes = _sum(suspects) - settled.among_suspects.count, list(settled.notes)
        unread_replays = [v for c in feed.unread if (v := c.version) in self.covered.withdrawn_by]
        withdrawn = NONE
        if missing and unread_replays:
            recorded = sum((self.covered.withdrawn_by[v].untraced for v in unread_replays), NONE)
            withdrawn = as_recorded(min(missing, recorded.count), recorded)
            missing -= withdrawn.count
            said = ", ".join(f"v{v}" for v in unread_replays)
            notes.append(f"{said}: which messages a replay withdrew can no longer be read: known by their count")
        holes = self._holes(suspects) if missing else ()
        # Who may have made the holes that nobody is known to have made.
        oldest = min((hole.version for hole in holes if hole.taken_by is None), default=None)
        notes += unnamed([] if oldest is None else [c for c in feed.unread if c.version > oldest])
        if missing and settled.among_suspects.count:
            notes.append(f"among the offsets named as missing are {settled.among_suspects}; which ones, is not known")
        return MissingOffsets(
            untraced=settled.untraced + settled.among_suspects + withdrawn,
            missing=missing,
            holes=holes,
            deletions=deletions,
            notes=tuple(notes),
            at_odds=settled.at_odds,
        )

    def _holes(self, suspects: DataFrame) -> tuple[Hole, ...]:
        found: list[Any] = islands(suspects, ["version", "taken_by"], limit=SHOWN)
        return tuple(Hole(self._range(r), r["version"], r["taken_by"], self._operation(r["taken_by"])) for r in found)

    def _doubles(self) -> tuple[Double, ...]:
        """What is there too often, with every commit that added it."""
        from pyspark.sql import functions as F

        twice = self.off.where(self._twice).select(*_AT).join(self._again, _AT, "left_anti")
        added = changes(self.spark, self.stream, self._log, self.history.foreign).net.where("net > 0")
        of_others = added.join(twice, _AT, "left_semi").select(*_AT, "changed_by")
        by = covering(self.spark, twice, self.covered.drained).unionByName(of_others)
        versions = by.groupBy(*_AT).agg(F.sort_array(F.collect_set("changed_by")).alias("versions"))
        named = twice.join(versions, _AT, "left")
        found: list[Any] = islands(named, ["versions"], limit=SHOWN)
        return tuple(Double(self._range(r), tuple(r["versions"] or ())) for r in found)

    def _range(self, r: Mapping[str, Any]) -> OffsetRange:
        return OffsetRange(TopicPartition(self.stream.topic, r["partition"]), r["start"], r["end"])

    def _operation(self, version: int | None) -> str:
        return self._operations[version].operation if version is not None else ""


def taken_away(
    spark: SparkSession, stream: Stream, lake: str, missing: DataFrame, feed: Changes, history: LiveHistory
) -> DataFrame:
    """Add to offsets that are missing who took them last, and whether on purpose.

    Args:
        missing: ``partition, offset, version`` and anything else; the version is that of the entry that covers it.
        feed: Of the commits that may have removed rows.

    Returns:
        ``missing`` with ``taken_by: bigint``, ``letter: bigint`` (a version of the dead letters) and ``deliberate``,
        each null where nobody is known.
    """
    from pyspark.sql import functions as F

    deliberate = [c.version for c in history.removing if removes_rows(c)]
    # What a replay withdrew went with all its rows; of other messages it exchanged them.
    replays = [c.version for c in history.withdrawing]
    whole = F.expr("whole") | ~F.col("changed_by").isin(replays)
    rows = (
        missing.join(feed.net.where("net < 0").where(whole), _AT)
        .where("changed_by > version")  # what was removed before it was drained again does not explain it
        .groupBy(*_AT)
        .agg(F.max("changed_by").alias("taken_by"))
    )
    letters = letters_taken(spark, TableLog.open(stream.dead_letters_uri(lake)), history.entries, missing)
    on_purpose = F.col("taken_by").isin(deliberate) | F.expr("taken_by IS NULL AND letter > 0")
    return (
        missing.join(rows, _AT, "left")
        .join(letters.withColumnRenamed("changed_by", "letter"), _AT, "left")
        .withColumn("deliberate", on_purpose)
    )


def unnamed(commits: Sequence[CommitInfo]) -> list[str]:
    """A note on commits that took rows, of which nobody can say any more which ones these were."""
    said = []
    for commit in commits:
        counted = removed_by_count(commit)
        facts = [predicate(commit), f"{counted:,} rows" if counted else ""]
        named = ", ".join(filter(None, facts))
        said.append(f"v{commit.version} {commit.operation}" + (f" ({named})" if named else ""))
    return [f"{', '.join(said)}: which rows it took can no longer be read; they are among the missing"] if said else []


def _sum(suspects: DataFrame) -> int:
    return int(suspects.selectExpr("coalesce(sum(n), 0) AS n").collect()[0]["n"])
