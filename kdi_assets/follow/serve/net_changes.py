"""The changes of several versions as one change per key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kdi_assets.follow.serve.columns import Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PRESENT, NET = Column("_kdi_present", "boolean"), Column("_kdi_net", "long")


def net_changes(changes: DataFrame, columns: Sequence[Column], keys: Sequence[Column]) -> DataFrame:
    """The last change of each key.

    Args:
        changes: ``columns``, and ``_change_type: string`` and ``_commit_version: bigint`` of the change feed.

    Returns:
        ``columns``, ``_kdi_present: boolean`` (the key has a row after the last change) and ``_kdi_net: bigint`` (by
        how many rows it has more than before the first change: 1, 0 or -1 if keys are unique). Keys with a null are
        left out if none of their rows stayed.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    # A row whose key was changed leaves its old key: the image before an update counts as a deletion. In one version
    # a row beats a deletion: an update writes both images, an overwrite removes and adds.
    adds = F.col("_change_type").isin("insert", "update_postimage")
    by_key = Window.partitionBy(*(F.col(key.sql) for key in keys))
    last = by_key.orderBy(F.col("_commit_version").desc(), F.col(PRESENT.name).desc())
    has_null = F.expr(" OR ".join(f"{key.sql} IS NULL" for key in keys))
    # Of a row that is gone only the keys are needed; its values would be shuffled and sorted for nothing.
    is_key = {key.name for key in keys}
    values = {c.name: F.when(adds, F.col(c.sql)) for c in columns if c.name not in is_key}
    return (
        changes.withColumn(PRESENT.name, adds)
        .withColumns(values)
        .withColumn(NET.name, F.sum(F.when(adds, 1).otherwise(-1)).over(by_key))
        .withColumn("_kdi_rank", F.row_number().over(last))
        .where(F.col("_kdi_rank") == 1)
        .where(~has_null | (F.col(NET.name) > 0))
        .select(*(F.col(column.sql) for column in (*columns, PRESENT, NET)))
    )


def appended_as_changes(rows: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """Rows that were only added, in the form of ``net_changes``; keys that come twice are found later."""
    from pyspark.sql import functions as F

    return rows.select(*(F.col(column.sql) for column in columns)).withColumns(
        {PRESENT.name: F.lit(True), NET.name: F.lit(1).cast("bigint")}
    )
