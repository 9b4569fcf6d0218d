"""Compaction: Delta's own OPTIMIZE, by partition, of closed dates and of dates with many small files.

OPTIMIZE rewrites rows without changing them: its commit has no transaction id and no ledger entry. A drain that was
planned before it commits after it, with the files that it has already written. If a drain commits first, Delta puts the
OPTIMIZE after it; if a replay or an erasure replaced one of its files, the OPTIMIZE fails and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from kdi_assets.delta.transaction import delta_log
from kdi_assets.documents.model.upkeep import Upkeep
from kdi_assets.messages.coordinates import quoted_path
from kdi_assets.operate.upkeep.errors import NotClusterable, spark_failures
from kdi_assets.operate.upkeep.table_files import PartFiles
from kdi_assets.runtime.spark import changed_settings
from kdi_assets.runtime.spark_failures import translated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Why = Literal["closed", "small files", "cluster"]
"""Closed: nothing was written to it for a while, and it has small files. Cluster: the same, and its rows are not yet
ordered."""
CLUSTERED = "kdi_clustered"
"""Key in the user metadata of an OPTIMIZE that orders rows: the partition, and the columns."""
_OPTIMIZE = "spark.databricks.delta.optimize"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


@dataclass(frozen=True, slots=True)
class DueCompaction:
    """A partition to compact, and why."""

    part: PartFiles
    why: Why


def due_compactions(
    parts: Sequence[PartFiles], upkeep: Upkeep, *, now: datetime, clustered: Mapping[str, datetime]
) -> tuple[DueCompaction, ...]:
    """The partitions to compact now.

    Args:
        clustered: By label, when rows were last ordered by ``cluster_by``.
    """
    found = ((part, _why(part, upkeep, now, clustered)) for part in parts)
    return tuple(DueCompaction(part, why) for part, why in found if why)


def _why(part: PartFiles, upkeep: Upkeep, now: datetime, clustered: Mapping[str, datetime]) -> Why | None:
    if not part.is_closed(now, upkeep.closed_after_seconds):
        return "small files" if part.facts.small > upkeep.small_files else None
    ordered = clustered.get(part.label)
    if upkeep.cluster_by and (ordered is None or ordered < part.newest):
        return "cluster"
    # One small file alone cannot be joined with anything: it is what remains of a date.
    return "closed" if part.facts.small > 1 else None


def compact(
    spark: SparkSession, table: str, uri: str, due: DueCompaction, *, target_bytes: int, cluster_by: Sequence[str] = ()
) -> bool:
    """Compact one partition; return whether it has fewer files now.

    Args:
        table: For errors.
        cluster_by: Used if the partition is due for it.

    Raises:
        UpkeepFailed: Another commit came first, or Spark failed.
        NotClusterable: Delta refuses a column of ``cluster_by``.
    """
    delta_log(spark, uri)  # refuses a session that commits by another log store
    columns = cluster_by if due.why == "cluster" else ()
    where = f" WHERE {due.part.where}" if due.part.where else ""
    order = f" ZORDER BY ({', '.join(map(quoted_path, columns))})" if columns else ""
    settings = changed_settings(spark, _of_optimize(target_bytes, due.part.label, columns))
    with spark_failures(table, "compaction"), _not_clusterable_named(table), settings:
        metrics = spark.sql(f"OPTIMIZE delta.`{uri}`{where}{order}").collect()[0]["metrics"]
    return bool(metrics["numFilesRemoved"] > metrics["numFilesAdded"])


def _of_optimize(target_bytes: int, label: str, columns: Sequence[str]) -> dict[str, str]:
    # Files below the least size are joined until they reach the greatest: at most one small file is left.
    sizes = {f"{_OPTIMIZE}.minFileSize": str(target_bytes // 2), f"{_OPTIMIZE}.maxFileSize": str(target_bytes)}
    return sizes | ({_USER_METADATA: clustered_metadata(label, columns)} if columns else {})


def clustered_metadata(label: str, columns: Sequence[str]) -> str:
    """The user metadata of the OPTIMIZE that orders a partition by columns."""
    import json

    return json.dumps({CLUSTERED: label, "by": list(columns)})


def _not_clusterable_named(table: str) -> AbstractContextManager[None]:
    """Raises: NotClusterable: Delta cannot order by a column."""
    return translated(lambda f: NotClusterable(table=table, detail=f.root) if "ZORDERING" in f.root else None)
