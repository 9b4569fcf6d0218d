"""Upkeep of one Delta table, given by its address: compaction, checkpoint, VACUUM. Knows no stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from kdi_assets.delta.log import TableLog
from kdi_assets.delta.storage import open_delta_table, storage_failures
from kdi_assets.documents.model.upkeep import USUAL_FILE_BYTES, Upkeep
from kdi_assets.errors import KdiError
from kdi_assets.operate.upkeep.clustering import clustered_at
from kdi_assets.operate.upkeep.compaction import DueCompaction, compact, due_compactions
from kdi_assets.operate.upkeep.errors import UpkeepFailed
from kdi_assets.operate.upkeep.table_files import FileFacts, facts_of, parts_of
from kdi_assets.operate.upkeep.vacuum import LEAST_RETENTION, Vacuumed, checked_retention, expired_files, vacuum
from kdi_assets.wording import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PASSES = 3
"""Joined files compress better than small ones and may be small again: a partition is compacted at most so often."""
_INTERVALS = 2
"""A checkpoint is overdue after so many intervals of the table: its writers make them, unless they fail to."""


@dataclass(frozen=True, slots=True)
class KeptTable:
    """A table, and how it is kept in shape.

    Attributes:
        name: For people: ``bronze/orders``.
        archive_uri: Where its commits are copied to, if they are.
        least_retention: No run takes as long.
    """

    name: str
    uri: str
    target_bytes: int = USUAL_FILE_BYTES
    upkeep: Upkeep = Upkeep()
    archive_uri: str = ""
    least_retention: timedelta = LEAST_RETENTION


@dataclass(frozen=True, slots=True)
class TableUpkeep:
    """Upkeep of a table, planned or done.

    Attributes:
        before: The files before.
        due: The partitions to compact.
        vacuum: Whether a VACUUM is due.
        expired: Files that it would remove; ``None`` if that is unknown.
        done: Whether it was done; the fields after it are its result.
        checkpoint: Whether a checkpoint is overdue; if done, was written.
        errors: What was not done, and why. The next upkeep tries again.
    """

    table: str
    version: int
    before: FileFacts = FileFacts()
    due: tuple[DueCompaction, ...] = ()
    vacuum: bool = False
    expired: int | None = None
    checkpoint: bool = False
    done: bool = False
    after: FileFacts = FileFacts()
    compacted: tuple[str, ...] = ()
    vacuumed: Vacuumed | None = None
    errors: tuple[KdiError, ...] = field(default=())


def plan_table_upkeep(table: KeptTable, *, now: datetime, vacuums: bool) -> TableUpkeep | None:
    """What is due; changes nothing, needs no JVM.

    Returns:
        ``None`` if there is no such table.

    Raises:
        KdiError: The log or the storage cannot be read.
    """
    log = TableLog.open(table.uri)
    if log is None:
        return None
    parts = parts_of(log, target_bytes=table.target_bytes)
    clustered = clustered_at(log, table.archive_uri, table.upkeep.cluster_by)
    planned = TableUpkeep(
        table.name,
        log.version,
        before=facts_of(parts),
        due=due_compactions(parts, table.upkeep, now=now, clustered=clustered),
        checkpoint=_checkpoint_overdue(log),
    )
    return _with_vacuum(planned, table, log) if vacuums else planned


def _with_vacuum(planned: TableUpkeep, table: KeptTable, log: TableLog) -> TableUpkeep:
    try:
        kept = checked_retention(table.name, log, least=table.least_retention)
    except KdiError as refused:  # the rest of the upkeep can be done all the same
        return replace(planned, errors=(refused,))
    expired = expired_files(log, kept)
    return replace(planned, expired=expired, vacuum=expired != 0)


def keep_table(table: KeptTable, planned: TableUpkeep, *, session: Callable[[], SparkSession]) -> TableUpkeep:
    """Do what is due.

    Args:
        session: Called only if something is due that needs Spark.
    """
    done, errors = [], list(planned.errors)
    for due in planned.due:
        try:
            _compact_fully(session(), table, due)
            done.append(due.part.label)
        except KdiError as failed:  # such as another writer's commit: the other partitions can still be compacted
            errors.append(failed)
    vacuumed = None
    if planned.vacuum:
        try:
            vacuumed = vacuum(session(), table.name, table.uri)
        except KdiError as failed:
            errors.append(failed)
    written = _write_checkpoint(table, errors)
    log = TableLog.existing(table.uri)
    return replace(
        planned,
        version=log.version,
        checkpoint=written,
        done=True,
        after=facts_of(parts_of(log, target_bytes=table.target_bytes)),
        compacted=tuple(done),
        vacuumed=vacuumed,
        errors=tuple(errors),
    )


def _compact_fully(spark: SparkSession, table: KeptTable, due: DueCompaction) -> None:
    """Compact until at most one small file is left, in at most ``PASSES`` passes."""
    left: DueCompaction | None = due
    for _ in range(PASSES):
        if left is None:
            break
        fewer = compact(
            spark, table.name, table.uri, left, target_bytes=table.target_bytes, cluster_by=table.upkeep.cluster_by
        )
        left = _still_small(table, due) if fewer else None


def _still_small(table: KeptTable, due: DueCompaction) -> DueCompaction | None:
    """The partition after a pass, if joining its files once more makes them fewer."""
    log = TableLog.existing(table.uri)
    parts = {part.label: part for part in parts_of(log, target_bytes=table.target_bytes)}
    part = parts.get(due.part.label)
    # Ordered rows are not compacted a second time: joining their files would undo the order.
    return replace(due, part=part) if part and part.facts.small > 1 and due.why != "cluster" else None


def _checkpoint_overdue(log: TableLog) -> bool:
    interval = int(log.configuration.get("delta.checkpointInterval", 10))
    since = log.version - (-1 if log.checkpoint is None else log.checkpoint)
    return since > _INTERVALS * interval


def _write_checkpoint(table: KeptTable, errors: list[KdiError]) -> bool:
    from deltalake.exceptions import DeltaError

    if not _checkpoint_overdue(TableLog.existing(table.uri)):
        return False
    try:
        with storage_failures(table.uri):
            open_delta_table(table.uri).create_checkpoint()
    except KdiError as failed:
        errors.append(failed)
        return False
    except DeltaError as refused:
        errors.append(UpkeepFailed(table=table.name, step="the checkpoint", detail=first_line(refused)))
        return False
    return True
