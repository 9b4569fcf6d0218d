"""The audit's slow path: which offsets are missing or there twice, and which commits did it.

Only for tables whose counts and digests do not prove that every offset is there once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from kdi_assets.delta.log import CommitInfo, TableLog
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.coordinates import DIGEST_SQL, ranges_sql
from kdi_assets.streams.audit.coverage import Coverage
from kdi_assets.streams.audit.foreign_changes import (
    RowChanges,
    deleted_letters,
    deleted_row_count,
    predicate,
    row_changes,
)
from kdi_assets.streams.audit.offsets_in_spark import covered_sql, differing_offsets, draining_commits, islands
from kdi_assets.streams.audit.report import Deletion, Double, Hole
from kdi_assets.streams.audit.rowless_messages import NO_COUNTS, AbsentOffsets, RowlessMatch, at_most, match_rowless
from kdi_assets.streams.ledger.entry import RowlessCounts
from kdi_assets.streams.ledger.erased import with_erasing_commits
from kdi_assets.streams.ledger.history import LiveHistory, removes_rows
from kdi_assets.streams.ledger.letters import letters_with_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AT = ["partition", "offset"]


@dataclass(frozen=True, slots=True)
class MissingOffsets:
    """The offsets that are in the tables more or less often than entries cover them; see ``AuditReport``.

    Attributes:
        uncovered: Rows below the first positions; the ledger cannot account for them.
        losses_with_rows, gaps_with_rows: Declared losses and gaps that are rows, because a dead letter had kept the
            message.
        contradictions: Counts that cannot both be true; the audit is then not complete.
    """

    rowless: RowlessCounts = RowlessCounts()
    missing: int = 0
    erased: int = 0
    kept_no_longer: int = 0
    twice: int = 0
    uncovered: int = 0
    losses_with_rows: int = 0
    gaps_with_rows: int = 0
    holes: tuple[Hole, ...] = ()
    doubles: tuple[Double, ...] = ()
    deletions: tuple[Deletion, ...] = ()
    notes: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()


def find_missing(
    spark: SparkSession, stream: Stream, lake: str, found: DataFrame, covered: Coverage, history: LiveHistory
) -> MissingOffsets:
    """Compare single offsets.

    Args:
        found: ``partition: int, offset: bigint`` of every row and every dead letter that counts.
    """
    from pyspark import StorageLevel

    # On disk: the steps below all read it, and it may be large, because it holds tombstones and filtered messages too.
    differing = differing_offsets(spark, found, covered).persist(StorageLevel.DISK_ONLY)
    try:
        return _MissingSearch(spark, stream, lake, differing, covered, history).result()
    finally:
        differing.unpersist()


@dataclass
class _MissingSearch:
    spark: SparkSession
    stream: Stream
    lake: str
    differing: DataFrame
    covered: Coverage
    history: LiveHistory

    def result(self) -> MissingOffsets:
        sums = self.differing.selectExpr(
            "coalesce(sum(greatest(expected - present, 0)), 0) AS missing",
            f"coalesce(sum(CASE WHEN {self._twice} THEN present - expected END), 0) AS twice",
            "coalesce(sum(CASE WHEN present > expected AND "
            f"NOT {self._covered} THEN present - expected END), 0) AS uncovered",
        ).collect()[0]
        missing = self._missing() if sums["missing"] or self.covered.has_rowless else MissingOffsets()
        by_replay = self._replayed_offsets.groupBy("lost").count().collect() if sums["twice"] else []
        replayed = {r["lost"]: r["count"] for r in by_replay}
        twice = sums["twice"] - sum(replayed.values())
        return replace(
            missing,
            twice=twice,
            doubles=self._doubles() if twice else (),
            uncovered=sums["uncovered"],
            losses_with_rows=replayed.get(True, 0),
            gaps_with_rows=replayed.get(False, 0),
        )

    @property
    def _covered(self) -> str:
        return f"({covered_sql(self.covered.begin)})"

    @property
    def _twice(self) -> str:
        return f"present > expected AND {self._covered}"

    @cached_property
    def _replayed_offsets(self) -> DataFrame:
        """Rows at offsets without a drained message, made by a replay: ``partition, offset, lost: boolean``."""
        lost = ranges_sql(self.covered.declared_losses)
        letters = letters_with_rows(self.spark, self.stream.dead_letters_uri(self.lake), self.history.entries)
        once = self.differing.where(f"{self._twice} AND expected = 0 AND present = 1").join(letters, _AT, "left_semi")
        return once.selectExpr(*_AT, f"{lost} AS lost")

    @cached_property
    def _log(self) -> TableLog:
        return TableLog.existing(self.stream.table_uri(self.lake))

    @cached_property
    def _operations(self) -> Mapping[int, CommitInfo]:
        return {c.version: c for c in (*self.history.foreign, *self.history.withdrawing)}

    def _missing(self) -> MissingOffsets:
        """Rowless messages, deletions and holes."""
        from pyspark import StorageLevel
        from pyspark.sql import functions as F

        missing = self.differing.where("expected > present").selectExpr(*_AT, "version", "expected - present AS n")
        by_commit, missing = self._without_erased(missing)
        removing = (*self.history.removing, *self.history.withdrawing)
        feed = row_changes(self.spark, self.stream, self._log, removing)
        taken = with_removing_commit(self.spark, self.stream, self.lake, missing, feed, self.history)
        taken = taken.persist(StorageLevel.DISK_ONLY)
        try:
            deletions, withdrawn = self._deletions(taken), self._withdrawn(taken)
            by_replay = F.col("taken_by").isin(list(withdrawn))
            left = taken.where("NOT coalesce(deliberate, false)").where(~F.coalesce(by_replay, F.lit(False)))
            explained = self._explain(left, self._match_rowless(left), deletions, feed)
            undone = {e.version for e in self.history.undone_expiries}
            expired = sum(n for version, n in by_commit.items() if version in self.covered.expired_by | undone)
            return replace(
                explained,
                rowless=sum(withdrawn.values(), explained.rowless),
                erased=sum(by_commit.values()) - expired,
                kept_no_longer=expired,
            )
        finally:
            taken.unpersist()

    def _without_erased(self, missing: DataFrame) -> tuple[dict[int, int], DataFrame]:
        """How many offsets were erased or are kept no longer, by the commit, and the others.

        The table of erased offsets explains no more than the entries recorded: there may be fewer, if some were drained
        again. If a commit's offsets are more, or others, none of them is explained.
        """
        from pyspark.sql import functions as F

        undone = {e.version: e.erasure for e in self.history.undone_expiries}
        letters = {v: (e.count + 1, 0) for v, e in undone.items() if e}  # all of them are explained
        recorded = {**letters, **self.covered.erased_by}
        if not recorded:
            return {}, missing
        uri, entries = self.stream.erased_uri(self.lake), self.history.entries
        versions = draining_commits(self.spark, missing, self.covered.visible()).groupBy(*_AT)
        of_topics = missing.join(versions.agg(F.collect_list("changed_by").alias("versions")), _AT)
        marked = with_erasing_commits(self.spark, uri, of_topics, entries, undone=self.history.undone_expiries)
        by_commit = marked.select(*_AT, F.explode("erased_by").alias("erased_by")).groupBy("erased_by")
        found = by_commit.agg(F.count("*").alias("n"), F.expr(DIGEST_SQL).alias("digest")).collect()
        sound = {
            r["erased_by"]: int(r["n"])
            for r in found
            if r["n"] < recorded[r["erased_by"]][0] or (r["n"], r["digest"]) == recorded[r["erased_by"]]
        }
        explained = F.size(F.filter("erased_by", lambda commit: commit.isin(list(sound))))
        return sound, marked.withColumn("n", F.col("n") - explained).where("n > 0").drop("erased_by", "versions")

    def _withdrawn(self, taken: DataFrame) -> dict[int, RowlessCounts]:
        """Messages whose rows a replay removed because they are tombstones or filtered now, by its commit.

        There may be fewer than the replay recorded, if some were drained again. A replay that removed other messages
        than it recorded is left out.
        """
        from pyspark.sql import functions as F

        recorded = self.covered.withdrawn_by
        of_replays = taken.where(F.col("taken_by").isin(list(recorded))).groupBy("taken_by")
        found = of_replays.agg(F.sum("n").alias("n"), F.expr(DIGEST_SQL).alias("digest")).collect()
        return {
            r["taken_by"]: at_most(r["n"], all_.counts)
            for r in found
            if (all_ := recorded[r["taken_by"]])
            and (r["n"] < all_.counts.count or (r["n"], r["digest"]) == (all_.counts.count, all_.digest))
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

    def _match_rowless(self, left: DataFrame) -> RowlessMatch:
        """Find the recorded rowless messages among the offsets that no known commit removed."""
        from pyspark.sql import functions as F

        by_entry = left.where("taken_by IS NULL").groupBy("version", "partition")
        groups = [
            AbsentOffsets(r["version"], r["partition"], r["n"], r["digest"])
            for r in by_entry.agg(F.sum("n").alias("n"), F.expr(DIGEST_SQL).alias("digest")).collect()
        ]
        return match_rowless(groups, self.covered)

    def _explain(
        self, left: DataFrame, match: RowlessMatch, deletions: tuple[Deletion, ...], feed: RowChanges
    ) -> MissingOffsets:
        """Report the other offsets: a replay removed them, by its recorded count, or they are missing."""
        unexplained = match.unexplained(self.spark, left)
        missing, notes = _sum(unexplained) - match.among_unmatched.count, list(match.notes)
        unread_replays = [v for c in feed.unread if (v := c.version) in self.covered.withdrawn_by]
        withdrawn = NO_COUNTS
        if missing and unread_replays:
            recorded = sum((self.covered.withdrawn_by[v].counts for v in unread_replays), NO_COUNTS)
            withdrawn = at_most(min(missing, recorded.count), recorded)
            missing -= withdrawn.count
            versions = ", ".join(f"v{v}" for v in unread_replays)
            notes.append(f"{versions}: the messages that a replay withdrew are known only by their count")
        holes = self._holes(unexplained) if missing else ()
        # Name the unreadable commits that may have caused the holes without a known cause.
        oldest = min((hole.version for hole in holes if hole.taken_by is None), default=None)
        notes += note_on_unreadable([] if oldest is None else [c for c in feed.unread if c.version > oldest])
        if missing and match.among_unmatched.count:
            notes.append(f"the offsets listed as missing include {match.among_unmatched}; which ones, is unknown")
        return MissingOffsets(
            rowless=match.rowless + match.among_unmatched + withdrawn,
            missing=missing,
            holes=holes,
            deletions=deletions,
            notes=tuple(notes),
            contradictions=match.contradictions,
        )

    def _holes(self, unexplained: DataFrame) -> tuple[Hole, ...]:
        found = islands(unexplained, ["version", "taken_by"], topic=self.stream.topic)
        return tuple(Hole(r, **by, operation=self._operation(by["taken_by"])) for r, by in found)

    def _doubles(self) -> tuple[Double, ...]:
        """Offsets that are there too often, with every commit that added them."""
        from pyspark.sql import functions as F

        twice = self.differing.where(self._twice).select(*_AT).join(self._replayed_offsets, _AT, "left_anti")
        added = row_changes(self.spark, self.stream, self._log, self.history.foreign).net.where("net > 0")
        of_others = added.join(twice, _AT, "left_semi").select(*_AT, "changed_by")
        by = draining_commits(self.spark, twice, self.covered.every_range()).unionByName(of_others)
        versions = by.groupBy(*_AT).agg(F.sort_array(F.collect_set("changed_by")).alias("versions"))
        named = twice.join(versions, _AT, "left")
        found = islands(named, ["versions"], topic=self.stream.topic)
        return tuple(Double(r, tuple(by["versions"] or ())) for r, by in found)

    def _operation(self, version: int | None) -> str:
        return self._operations[version].operation if version is not None else ""


def with_removing_commit(
    spark: SparkSession, stream: Stream, lake: str, missing: DataFrame, feed: RowChanges, history: LiveHistory
) -> DataFrame:
    """Add to missing offsets the commit that removed them last, and whether on purpose.

    Args:
        missing: ``partition, offset, version`` and any other columns; the version is that of the entry that covers it.
        feed: The changes of the commits that may have removed rows.

    Returns:
        ``missing`` with ``taken_by: bigint``, ``letter: bigint`` (a version of the dead letters) and
        ``deliberate: boolean``, each null if no commit is known.
    """
    from pyspark.sql import functions as F

    deliberate = [c.version for c in history.removing if removes_rows(c)]
    # A replay removes all rows of the messages that it withdraws, and replaces the rows of others.
    replays = [c.version for c in history.withdrawing]
    whole = F.expr("whole") | ~F.col("changed_by").isin(replays)
    rows = (
        missing.join(feed.net.where("net < 0").where(whole), _AT)
        .where("changed_by > version")  # a removal before the message was drained again does not count
        .groupBy(*_AT)
        .agg(F.max("changed_by").alias("taken_by"))
    )
    letters = deleted_letters(spark, TableLog.open(stream.dead_letters_uri(lake)), history.entries, missing)
    on_purpose = F.col("taken_by").isin(deliberate) | F.expr("taken_by IS NULL AND letter > 0")
    return (
        missing.join(rows, _AT, "left")
        .join(letters.withColumnRenamed("changed_by", "letter"), _AT, "left")
        .withColumn("deliberate", on_purpose)
    )


def note_on_unreadable(commits: Sequence[CommitInfo]) -> list[str]:
    """A note on commits that removed rows, if it can no longer be read which ones."""
    named = []
    for commit in commits:
        counted = deleted_row_count(commit)
        facts = [predicate(commit), f"{counted:,} rows" if counted else ""]
        details = ", ".join(filter(None, facts))
        named.append(f"v{commit.version} {commit.operation}" + (f" ({details})" if details else ""))
    note = f"{', '.join(named)}: which rows it removed can no longer be read; they count as missing"
    return [note] if named else []


def _sum(offsets: DataFrame) -> int:
    return int(offsets.selectExpr("coalesce(sum(n), 0) AS n").collect()[0]["n"])
