"""Commit: rows and positions in one Delta transaction, directly behind the version that was planned on.

Delta's conflict check does not see a RESTORE or an overwrite between plan and commit. So its commit is attempted
exactly once, at the next version, and what came between is judged here.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kdi_assets.ledger.commit_info import CommitInfo
from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.ledger.delta_transaction import (
    Staged,
    delta_log,
    is_conflict,
    latest,
    missing_files,
    new_metadata,
    send,
    set_transactions,
    start_transaction,
)
from kdi_assets.ledger.entry import LedgerEntry, entry_of
from kdi_assets.ledger.errors import (
    HARMLESS_RETRIES,
    CommitUnreadable,
    NotADeltaTable,
    OvertakenCommit,
    StagedFilesGone,
    StorageFailed,
    TableBusy,
    TableChangedUnderDrain,
    TableUnreadable,
)
from kdi_assets.ledger.next_entry import behind as behind_other
from kdi_assets.ledger.next_entry import may_pass
from kdi_assets.ledger.transaction_ids import partition_id, version_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


log = logging.getLogger(__name__)


def create_table(
    spark: SparkSession, schema: StructType, uri: str, *, properties: Mapping[str, str], entry: LedgerEntry
) -> LedgerEntry:
    """Create the table partitioned by ``date``, its first positions in the same commit: version 0.

    Raises:
        OvertakenCommit: Someone else created it first.
    """
    transaction = start_transaction(spark, delta_log(spark, uri))
    if transaction.readVersion() >= 0:
        raise OvertakenCommit(uri=uri, version=0, operation="CREATE TABLE")
    metadata = new_metadata(spark, schema, properties)
    transaction.updateMetadataForNewTable(metadata)
    entry = replace(entry, version=0, table_id=str(metadata.id()))
    set_transactions(spark, transaction, entry)
    try:
        _commit_once(spark, transaction, Staged(), entry, uri)
    except _NotBehind as first:
        raise OvertakenCommit(uri=uri, version=0, operation="CREATE TABLE") from first
    return entry


def commit(spark: SparkSession, staged: Staged, uri: str, *, behind: int, entry: LedgerEntry) -> LedgerEntry:
    """Commit rows and positions directly behind version ``behind``, or behind commits that do not concern them.

    Args:
        behind: The version that the plan was checked against.
        entry: What this commit says of itself, by ``next_entry``; its version is filled in here.

    Returns:
        The entry as committed.

    Raises:
        OvertakenCommit: A ledger commit, RESTORE, overwrite or metadata change came between.
        TableBusy: Commits that do not concern it came first, again and again.
        StagedFilesGone: A VACUUM took the files.
        TableChangedUnderDrain: The table is no longer the one of the plan.
    """
    for _ in range(HARMLESS_RETRIES):
        try:
            return _commit_behind(spark, staged, uri, behind, entry)
        except _NotBehind:
            newest = _newest(uri, entry)
            refuse_if_concerned(newest, after=behind, entry=entry, replaces=staged.replaces)
            for found in newest.commits(after=behind):
                if other := entry_of(found.user_metadata, found.version, entry.app_id):
                    entry = behind_other(entry, other)
            behind = newest.version
    raise TableBusy(uri=uri, version=behind)


def refuse_if_concerned(newest: TableLog, *, after: int, entry: LedgerEntry, replaces: Collection[str]) -> None:
    """Judge what was committed behind ``after``.

    Args:
        entry: Of the commit that was planned there.
        replaces: Files that it exchanges: of one that somebody else has exchanged, rows would be there twice.

    Raises:
        OvertakenCommit: One of the commits changes what a plan at ``after`` rests on, or cannot be read.
    """
    partitions = (partition_id(entry.app_id, tp.partition) for tp in entry.positions)
    ids = {version_id(entry.app_id), *partitions}
    for version in range(after + 1, newest.version + 1):
        try:
            found = newest.commit(version)
        except CommitUnreadable:
            raise OvertakenCommit(uri=newest.uri, version=version, operation="unreadable") from None
        other = entry_of(found.user_metadata, version, entry.app_id)
        moved = ids & found.transactions.keys() and not may_pass(entry, other)
        taken = replaces and not newest.removed_files(version).isdisjoint(replaces)
        # A decision rests on all rows that were there: others' rows that came since it knows nothing of.
        if entry.kind == "resolve" or found.replaces_rows or found.changes_metadata or moved or taken:
            raise OvertakenCommit(uri=newest.uri, version=version, operation=found.operation)


def find_attempt(uri: str, *, after: int, attempt_id: str) -> CommitInfo | None:
    """The commit behind ``after`` that carries the attempt id: what came of a commit whose answer was lost."""
    table = TableLog.open(uri)
    if table is None:
        return None
    marker = json.dumps(attempt_id)
    return next((c for c in table.commits(after=after) if marker in c.user_metadata), None)


class _NotBehind(Exception):
    """The version that should follow is taken."""


def _commit_behind(spark: SparkSession, staged: Staged, uri: str, behind: int, entry: LedgerEntry) -> LedgerEntry:
    table = delta_log(spark, uri)
    snapshot = latest(spark, table)
    if snapshot.version() != behind:
        raise _NotBehind
    transaction = start_transaction(spark, table, snapshot)
    # A table dropped and made again under our feet continues at another number: a commit there would tear its log.
    # The ids need no second look: a commit directly behind the version they were read at finds them as they were.
    if _newest(uri, entry).version != behind:
        raise _NotBehind
    entry = replace(entry, version=behind + 1)
    set_transactions(spark, transaction, entry)
    if staged.metadata is not None:
        # Made from the metadata of the version that we land behind: a commit that changes it makes a drain plan again.
        transaction.updateMetadata(staged.metadata, False)
    # Last: a commit that names a file which is not there makes a table that nobody can read.
    if missing := missing_files(spark, table, staged):
        raise StagedFilesGone(uri=uri, files=missing)
    _commit_once(spark, transaction, staged, entry, uri)
    return entry


def _commit_once(spark: SparkSession, transaction: Any, staged: Staged, entry: LedgerEntry, uri: str) -> None:
    """Send the commit; if its answer is an error or lost, ask the log what became of it."""
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
        landed = send(spark, transaction, staged, entry.to_json())
    except (Py4JError, OSError) as failed:
        try:
            landed_all_the_same = find_attempt(uri, after=entry.version - 1, attempt_id=entry.attempt_id) is not None
        except (CommitUnreadable, StorageFailed, TableUnreadable):
            raise failed from None  # if it landed, the next look at the ledger finds it
        if landed_all_the_same:
            log.warning("%s: the commit of attempt %s reported an error and landed", uri, entry.attempt_id)
            return
        if isinstance(failed, Py4JJavaError) and is_conflict(failed):
            raise _NotBehind from failed
        raise
    if landed != entry.version:
        raise AssertionError(f"{uri}: planned as commit {entry.version}, landed as {landed}")


def _newest(uri: str, entry: LedgerEntry) -> TableLog:
    newest: TableLog | None = None
    with suppress(NotADeltaTable):  # dropped, and our files were written into the empty place
        newest = TableLog.open(uri)
    if newest is None or newest.table_id != entry.table_id:
        raise TableChangedUnderDrain(uri=uri, planned_id=entry.table_id, found_id=newest.table_id if newest else "")
    return newest
