"""Commits of other writers that removed or added offsets, from the table's change feed."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from kdi_assets.delta.files import rows_at
from kdi_assets.delta.log import CommitInfo, TableLog
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.coordinates import coordinates
from kdi_assets.runtime.spark_internals import plan_physically
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.history import live_commits, removes_rows
from kdi_assets.streams.ledger.letters import filter_letters_without_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CHANGE = "partition int, offset bigint, count int, changed_by bigint, net bigint"
MAX_READS = 40
"""Reads of the change feed in one query; more commits are read as one span of versions."""
_DELETED_BY_COUNT = ("numDeletedRows", "num_deleted_rows", "numTargetRowsDeleted", "num_target_rows_deleted")


@dataclass(frozen=True, slots=True)
class RowChanges:
    """The rows that commits added and removed.

    Attributes:
        net: ``partition: int, offset: bigint, changed_by: bigint, net: bigint, whole: boolean``: how many rows of an
            offset a commit added, or removed if negative, never 0; and whether these are all rows of the message.
        unread: Commits whose changes can no longer be read, or were never recorded.
    """

    net: DataFrame
    unread: tuple[CommitInfo, ...]


def row_changes(spark: SparkSession, stream: Stream, log: TableLog, commits: Sequence[CommitInfo]) -> RowChanges:
    """Read the change feed of these commits."""
    from pyspark.sql import functions as F

    readable = sorted(c.version for c in commits if not c.archived and log.has_change_files(c.version))
    span = _feed(spark, stream, log.uri, readable) if len(readable) > MAX_READS else None
    # In a span, one commit that cannot be read makes all of them unreadable; then each one is read by itself.
    single = {} if span is not None else {v: _feed(spark, stream, log.uri, [v]) for v in readable}
    feeds = [feed for feed in (span, *single.values()) if feed is not None]
    read = {v for v in readable if span is not None or single[v] is not None}
    every = reduce(lambda a, b: a.unionByName(b), feeds) if feeds else spark.createDataFrame([], _CHANGE)
    net = every.groupBy("partition", "offset", "changed_by").agg(
        F.sum("net").alias("net"), F.expr("abs(sum(net)) = max(count)").alias("whole")
    )
    return RowChanges(net.where("net <> 0"), tuple(c for c in commits if c.version not in read))


def deleted_letters(
    spark: SparkSession, letters: TableLog | None, entries: Sequence[LedgerEntry], missing: DataFrame
) -> DataFrame:
    """The missing offsets whose dead letters someone deleted.

    The dead-letter table has no change feed; the versions before deletions are read, as long as VACUUM leaves them.

    Args:
        entries: They decide which dead letters count. A dead letter that became a row does not explain a missing row.

    Returns:
        ``partition, offset, changed_by: bigint``, a version of the dead letters.
    """
    from pyspark.sql import functions as F

    before = []
    for commit in live_commits(letters) if letters else ():
        if letters is None or not letters.has_change_files(commit.version):
            break  # VACUUM removed the files of this commit, so older versions cannot be read either
        if removes_rows(commit):
            held = rows_at(spark, letters.uri, commit.version - 1)
            counting = filter_letters_without_rows(spark, held, entries).where("counts")
            before.append(counting.withColumn("changed_by", F.lit(commit.version).cast("bigint")))
    if letters is None or not before:
        return spark.createDataFrame([], "partition int, offset bigint, changed_by bigint")
    every = reduce(lambda a, b: a.unionByName(b), before)
    deleted = every.join(missing.select("partition", "offset"), ["partition", "offset"], "left_semi")
    present = spark.read.format("delta").load(letters.uri)
    deleted = deleted.join(present, ["partition", "offset", "attempt_id"], "left_anti")
    return deleted.groupBy("partition", "offset").agg(F.max("changed_by").alias("changed_by"))


def deleted_row_count(commit: CommitInfo) -> int:
    """How many rows a commit deleted, by its own metrics; 0 if it has none."""
    return next((int(commit.metrics[name]) for name in _DELETED_BY_COUNT if name in commit.metrics), 0)


def predicate(commit: CommitInfo) -> str:
    """The predicate of a commit, without the column numbers that Spark adds."""
    recorded = commit.parameters.get("predicate") or commit.parameters.get("mergePredicate") or ""
    try:
        parsed = json.loads(recorded) if isinstance(recorded, str) and recorded[:1] in ("[", '"') else recorded
    except ValueError:
        parsed = recorded
    text = " AND ".join(map(str, parsed)) if isinstance(parsed, list) else str(parsed)
    return re.sub(r"#\d+L?", "", text)


def _feed(spark: SparkSession, stream: Stream, uri: str, versions: Sequence[int]) -> DataFrame | None:
    """``partition, offset, count, changed_by, net`` of every change; ``None`` if it cannot be read."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    reader = spark.read.format("delta").option("readChangeFeed", "true")
    sign = F.expr("CASE WHEN _change_type IN ('insert', 'update_postimage') THEN 1L ELSE -1L END").alias("net")
    try:
        feed = reader.option("startingVersion", versions[0]).option("endingVersion", versions[-1]).load(uri)
        selected = feed.where(F.col("_commit_version").isin(list(versions)))
        at = selected.select(*coordinates(feed, stream), F.col("_commit_version").alias("changed_by"), sign)
        found = at.select("partition", "offset", "count", "changed_by", "net")
        plan_physically(found)  # when it plans, Delta checks whether changes were recorded
    except (PySparkException, Py4JError):
        return None
    return found
