"""Which commits of other writers removed or added offsets, as the table's change feed says."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from kdi_assets.ledger.commit_info import CommitInfo
from kdi_assets.ledger.coordinates import coordinates
from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.history import live_commits, removes_rows
from kdi_assets.ledger.letters import unreturned
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NONE = "partition int, offset bigint, count int, changed_by bigint, net bigint"
READS = 40
"""Reads of the change feed in one plan at most; more commits than that are read as one span."""
_DELETED_BY_COUNT = ("numDeletedRows", "num_deleted_rows", "numTargetRowsDeleted", "num_target_rows_deleted")


@dataclass(frozen=True, slots=True)
class Changes:
    """What commits changed.

    Attributes:
        net: ``partition: int, offset: bigint, changed_by: bigint, net: bigint, whole: boolean``: how many rows of an
            offset a commit added or took away, never 0; and whether these are all that its message has, once.
        unread: Commits whose changes cannot be read any more, or were never recorded.
    """

    net: DataFrame
    unread: tuple[CommitInfo, ...]


def changes(spark: SparkSession, stream: Stream, log: TableLog, commits: Sequence[CommitInfo]) -> Changes:
    """Read the change feed of some commits, and of no others."""
    from pyspark.sql import functions as F

    there = sorted(c.version for c in commits if not c.archived and log.has_changes_of(c.version))
    together = _feed(spark, stream, log.uri, there) if len(there) > READS else None
    # One that cannot be read keeps the others of its span from being read.
    alone = {} if together is not None else {v: _feed(spark, stream, log.uri, [v]) for v in there}
    feeds = [feed for feed in (together, *alone.values()) if feed is not None]
    read = {v for v in there if together is not None or alone[v] is not None}
    every = reduce(lambda a, b: a.unionByName(b), feeds) if feeds else spark.createDataFrame([], NONE)
    net = every.groupBy("partition", "offset", "changed_by").agg(
        F.sum("net").alias("net"), F.expr("abs(sum(net)) = max(count)").alias("whole")
    )
    return Changes(net.where("net <> 0"), tuple(c for c in commits if c.version not in read))


def letters_taken(
    spark: SparkSession, letters: TableLog | None, entries: Sequence[LedgerEntry], missing: DataFrame
) -> DataFrame:
    """Which of the missing offsets were dead letters until someone deleted them.

    The table has no change feed; what it held before each deletion answers, as long as VACUUM leaves the files.

    Args:
        entries: They say which letters count; ghosts are deleted too. A letter that became a row explains no missing
            row, whether it is there or not.

    Returns:
        ``partition, offset, changed_by: bigint``, a version of the dead letters.
    """
    from pyspark.sql import functions as F

    before = []
    for commit in live_commits(letters) if letters else ():
        if letters is None or not letters.has_changes_of(commit.version):
            break  # VACUUM took what this commit removed, and with it what older versions held
        if removes_rows(commit):
            held = spark.read.format("delta").option("versionAsOf", commit.version - 1).load(letters.uri)
            mine = unreturned(spark, held, entries).where("counts")
            before.append(mine.withColumn("changed_by", F.lit(commit.version).cast("bigint")))
    if letters is None or not before:
        return spark.createDataFrame([], "partition int, offset bigint, changed_by bigint")
    every = reduce(lambda a, b: a.unionByName(b), before)
    taken = every.join(missing.select("partition", "offset"), ["partition", "offset"], "left_semi")
    there = spark.read.format("delta").load(letters.uri)
    taken = taken.join(there, ["partition", "offset", "attempt_id"], "left_anti")
    return taken.groupBy("partition", "offset").agg(F.max("changed_by").alias("changed_by"))


def removed_by_count(commit: CommitInfo) -> int:
    """How many rows a commit says that it deleted; 0 where it does not say."""
    return next((int(commit.metrics[name]) for name in _DELETED_BY_COUNT if name in commit.metrics), 0)


def predicate(commit: CommitInfo) -> str:
    """Which rows a commit was about, in its own words; Spark's numbers of columns taken out of them."""
    given = commit.parameters.get("predicate") or commit.parameters.get("mergePredicate") or ""
    try:
        said = json.loads(given) if isinstance(given, str) and given[:1] in ("[", '"') else given
    except ValueError:
        said = given
    text = " AND ".join(map(str, said)) if isinstance(said, list) else str(said)
    return re.sub(r"#\d+L?", "", text)


def _feed(spark: SparkSession, stream: Stream, uri: str, versions: Sequence[int]) -> DataFrame | None:
    """``partition, offset, count, changed_by, net`` of every change; ``None`` if it was not recorded or is gone."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    reader = spark.read.format("delta").option("readChangeFeed", "true")
    sign = F.expr("CASE WHEN _change_type IN ('insert', 'update_postimage') THEN 1L ELSE -1L END").alias("net")
    try:
        feed = reader.option("startingVersion", versions[0]).option("endingVersion", versions[-1]).load(uri)
        of_these = feed.where(F.col("_commit_version").isin(list(versions)))
        at = of_these.select(*coordinates(feed, stream), F.col("_commit_version").alias("changed_by"), sign)
        found = at.select("partition", "offset", "count", "changed_by", "net")
        found._jdf.queryExecution().sparkPlan()  # Delta looks whether the changes were recorded when it plans
    except (PySparkException, Py4JError):
        return None
    return found
