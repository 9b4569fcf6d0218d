"""The table of deletes beside an upserted table: keys and sequences, so that late changes do not bring rows back.

The upserted table's commit names the version of this table that belongs to its rows, so an attempt that never commits
leaves no trace in what later refinements read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.ledger.single_commit import find_attempt
from kdi_assets.refine.read import rows_at, with_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def recorded_deletes(spark: SparkSession, uri: str, version: int | None) -> DataFrame | None:
    """Keys and ``sequence`` of the deletes at a version; ``None`` if there are none."""
    return None if version is None else rows_at(spark, uri, version)


def record_deletes(
    uri: str, deletes: DataFrame, *, pinned: int | None, attempt_id: str, again: DataFrame | None = None
) -> int:
    """Record the deletes of a refinement before its commit.

    Args:
        deletes: Keys and ``sequence`` of all deletes that the refinement read.
        pinned: The version that belongs to the rows so far; ``None``: there is none.
        again: Keys whose deletes were all read again: what is recorded of them is replaced.

    Returns:
        The version that belongs to the rows after the commit.
    """
    spark = deletes.sparkSession
    log = TableLog.open(uri)
    newest = log.version if log else -1
    before = recorded_deletes(spark, uri, pinned)
    overwrites = again is not None or pinned is None or newest != pinned
    rows = deletes
    if overwrites and before is not None:
        keys = tuple(c for c in deletes.columns if c != "sequence")
        kept = before if again is None else with_keys(before, again, keys, others=True)
        rows = kept.unionByName(deletes)
    marked = rows.write.format("delta").option("userMetadata", json.dumps({"attempt_id": attempt_id}))
    marked.mode("overwrite" if overwrites else "append").option("overwriteSchema", str(overwrites)).save(uri)
    found = find_attempt(uri, after=newest, attempt_id=attempt_id)
    if found is None:
        raise AssertionError(f"{uri}: the commit of attempt {attempt_id} is not in its log")
    return found.version
