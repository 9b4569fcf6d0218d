"""The table of deletes beside an upserted table: keys and sequences, so that late changes do not bring rows back.

The upserted table's commit names the version of this table that belongs to its rows, so an attempt that never commits
leaves no trace in what later refinements read.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from kdi_assets.delta.errors import CommitUnreadable, OvertakenCommit
from kdi_assets.delta.files import rows_at
from kdi_assets.delta.internals import is_conflict
from kdi_assets.delta.log import CommitInfo, TableLog
from kdi_assets.delta.single_commit import find_attempt
from kdi_assets.documents.model.refined_modes import Upsert
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.columns import AT, SEQUENCE
from kdi_assets.follow.refine.read import with_keys
from kdi_assets.follow.refine.upstream_bookmarks import changes_rows, read_bookmarks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDED_AT = "_kdi_recorded_at"
"""Column with the time of recording. Tables of earlier releases get it with the next deletes."""
clock = partial(datetime.now, UTC)


def recorded_deletes(
    spark: SparkSession, uri: str, version: int | None, *, remember_days: int | None
) -> DataFrame | None:
    """Keys and ``sequence`` of the deletes at a version; ``None`` if there are none.

    Args:
        remember_days: Those that were recorded longer ago are forgotten; ``None``: never.
    """
    return None if version is None else _remembered(spark, uri, version, remember_days).drop(RECORDED_AT)


def deletes_are_lost(uri: str, version: int) -> bool:
    """Whether the deletes of a version cannot be read any more: their table is gone, or VACUUM removed their files.

    This happens to a version that is not the newest: its commit never came, or the rows were put back by RESTORE.
    """
    log = TableLog.open(uri)
    if log is None:
        return True
    if (version := _same_rows(log, version)) == log.version:
        return False
    try:
        files = TableLog.existing(uri, version).data_files
    except CommitUnreadable:
        return True
    return bool(log.missing_files(files["path"].to_pylist()))


def record_deletes(
    uri: str,
    deletes: DataFrame,
    *,
    count: int,
    pinned: int | None,
    attempt_id: str,
    again: DataFrame | None,
    remember_days: int | None,
) -> int | None:
    """Record the deletes of a refinement before its commit.

    Args:
        deletes: Keys and ``sequence`` of all deletes that the refinement read.
        count: How many changes delete; without any, nothing is computed.
        pinned: The version that belongs to the rows so far; ``None``: there is none.
        again: Keys whose deletes were all read again: what is recorded of them is replaced.
        remember_days: As in ``recorded_deletes``.

    Returns:
        The version that belongs to the rows after the commit.

    Raises:
        OvertakenCommit: Another refinement recorded deletes meanwhile.
    """
    deletes, log = _recorded_now(deletes), TableLog.open(uri)
    # Without a pinned version all rows are computed again, so the deletes that are recorded must be replaced.
    outdated = pinned is None and log is not None and log.data_files.num_rows > 0
    if not count and not outdated and (again is None or pinned is None):
        return pinned
    newest = log.version if log else -1
    appends = again is None and log is not None and _appends(log, pinned, remember_days)
    rows = deletes
    if not appends and pinned is not None:
        rows = _with_remembered(deletes, uri, pinned, again, remember_days)
    found = _write(uri, rows, newest=newest, attempt_id=attempt_id, overwrites=not appends)
    if appends and found.version != newest + 1:
        # It may have put others in place of the recorded ones, by another definition.
        raise OvertakenCommit(uri=uri, version=found.version - 1, operation="other deletes")
    return found.version


def _with_remembered(
    deletes: DataFrame, uri: str, pinned: int, again: DataFrame | None, remember_days: int | None
) -> DataFrame:
    """The deletes, and those that are recorded already of keys that were not all read again."""
    before = _remembered(deletes.sparkSession, uri, pinned, remember_days)
    keys = tuple(c for c in deletes.columns if c not in (RECORDED_AT, SEQUENCE, AT))
    before = before if again is None else with_keys(before, again, keys, others=True)
    return before.unionByName(deletes, allowMissingColumns=True)


def _write(uri: str, rows: DataFrame, *, newest: int, attempt_id: str, overwrites: bool) -> CommitInfo:
    from py4j.protocol import Py4JJavaError

    marked = rows.write.format("delta").option("userMetadata", json.dumps({"attempt_id": attempt_id}))
    writer = marked.mode("overwrite" if overwrites else "append").option("overwriteSchema", str(overwrites))
    try:
        writer.save(uri)
    except Py4JJavaError as failed:
        # Another refinement of the table records its deletes: a lost race, as at the commit of the rows.
        if is_conflict(failed):
            raise OvertakenCommit(uri=uri, version=newest + 1, operation="other deletes") from failed
        raise
    found = find_attempt(uri, after=newest, attempt_id=attempt_id)
    if found is None:
        raise AssertionError(f"{uri}: the commit of attempt {attempt_id} is not in its log")
    return found


def _appends(log: TableLog, pinned: int | None, remember_days: int | None) -> bool:
    """Whether the newest version has the pinned rows only, in our form, and none that is long forgotten."""
    if pinned is None or not {RECORDED_AT, AT} <= {f["name"] for f in log.schema["fields"]}:
        return False
    return _same_rows(log, pinned) == log.version and not _is_due(log, remember_days)


def _is_due(log: TableLog, remember_days: int | None) -> bool:
    """Whether the oldest delete was recorded twice as long ago as it is remembered: then the table is written again."""
    import pyarrow.compute as pc

    files, column = log.data_files, f"min.{RECORDED_AT}"
    if remember_days is None or column not in files.column_names:
        return False
    oldest = pc.min(files[column]).as_py()
    return oldest is not None and oldest.replace(tzinfo=UTC) < clock() - timedelta(days=2 * remember_days)


def _recorded_now(deletes: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return deletes.select(F.lit(clock()).alias(RECORDED_AT), "*")


def _remembered(spark: SparkSession, uri: str, version: int, days: int | None) -> DataFrame:
    from pyspark.sql import functions as F

    rows = rows_at(spark, uri, _same_rows(TableLog.existing(uri), version))
    if RECORDED_AT not in rows.columns:
        return _recorded_now(rows)
    return rows if days is None else rows.where(F.col(RECORDED_AT) > F.lit(clock() - timedelta(days=days)))


def _same_rows(log: TableLog, version: int) -> int:
    """The newest version with the rows of a version: after a compaction, VACUUM removes the files of older ones."""
    try:
        for commit in log.commits(after=version):
            if changes_rows(log, commit):
                break
            version = commit.version
    except CommitUnreadable:
        pass  # the version found so far has the same rows; if its files are gone, reading them fails by name
    return version


def deletes_are_unused(table: RefinedTableSpec, lake: str) -> bool:
    """Whether a table of deletes is left from before the mode changed: none of its versions belongs to the rows."""
    if isinstance(table.mode, Upsert):
        return False
    try:
        log, own = TableLog.open(table.deletes_uri(lake)), TableLog.open(table.table_uri(lake))
        # A table of others may have the name.
        if log is None or own is None or not any(f["name"] == RECORDED_AT for f in log.schema["fields"]):
            return False
        return read_bookmarks(own, table.name).deletes is None
    except KdiError:
        return False  # a refinement, or whoever mends the log, has to decide first


def deletes_are_replaceable(table: RefinedTableSpec, lake: str) -> bool:
    """Whether the newest version has the deletes that belong to the rows, so that older files are not needed."""
    if not isinstance(table.mode, Upsert):
        return deletes_are_unused(table, lake)
    try:
        log, own = TableLog.open(table.deletes_uri(lake)), TableLog.open(table.table_uri(lake))
        pinned = read_bookmarks(own, table.name).deletes if own else None
        return log is not None and pinned is not None and _same_rows(log, pinned) == log.version
    except KdiError:
        return False  # a refinement, or whoever mends the log, has to decide first
