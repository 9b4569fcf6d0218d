"""One attempt to commit staged files with transaction ids, directly after the version that was planned on.

Delta's own conflict check does not see a RESTORE or an overwrite between plan and commit. So each commit is attempted
once, at the next version; if that version is taken, the caller checks the commits that came between.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kdi_assets.delta.errors import (
    CommitUnreadable,
    NotADeltaTable,
    OvertakenCommit,
    PlannedTableGone,
    StagedFilesGone,
    TableBusy,
)
from kdi_assets.delta.internals import (
    is_conflict,
    latest_snapshot,
    missing_files,
    set_metadata,
    set_transactions,
    start_transaction,
    version_of,
)
from kdi_assets.delta.log import CommitInfo, TableLog
from kdi_assets.delta.lost_races import COMMIT_ATTEMPTS, until_won
from kdi_assets.delta.transaction import Staged, delta_log, send_commit
from kdi_assets.errors import KdiError
from kdi_assets.runtime.progress import WorkStep, announced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """What a commit says, besides its files.

    Attributes:
        table_id: Of the table that the commit was planned for.
        attempt_id: New for every attempt; part of the user metadata.
        transactions: By the version of the commit, the versions of the transaction ids that it sets.
        user_metadata: By the version of the commit, its user metadata.
    """

    uri: str
    table_id: str
    attempt_id: str
    transactions: Callable[[int], Mapping[str, int]]
    user_metadata: Callable[[int], str]


class VersionTaken(Exception):
    """The next version is taken by another commit, of which nobody knows yet whether it conflicts."""


def commit_behind(
    version: int,
    spark: SparkSession,
    staged: Staged,
    request: CommitRequest,
    *,
    follow: Callable[[TableLog, int], CommitRequest],
) -> int:
    """Commit directly after a version of the table, or after commits behind it that do not conflict.

    Args:
        follow: Given the table at its newest version, and the version that was known: the request as it must be behind
            the commits between. Raises if one of them conflicts, as ``refuse_conflicts`` does.

    Returns:
        The version of the commit.

    Raises:
        TableBusy: Commits that do not conflict came first too often in a row; it names the newest.
        StagedFilesGone, PlannedTableGone: As ``commit_after``.
    """
    tried = False

    def attempt() -> int:
        nonlocal request, version, tried
        if tried:  # not the first time: on object storage each look at the log is a paid request
            newest = newest_version(request)
            request, version = follow(newest, version), newest.version
        tried = True
        return commit_after(version, spark, staged, request)

    def gives_up(_: VersionTaken) -> TableBusy:
        return TableBusy(uri=request.uri, version=newest_version(request).version)

    return until_won(attempt, lost=VersionTaken, gives_up=gives_up, most=COMMIT_ATTEMPTS)


def refuse_conflicts(
    newest: TableLog, *, after: int, replaces: Collection[str], conflicts: Callable[[CommitInfo], bool]
) -> None:
    """Refuse to follow the commits after version ``after`` if one of them changes what the plan is based on.

    Args:
        newest: The table at its newest version.
        replaces: Files that the planned commit replaces; if another commit replaced one of them, rows would be there
            twice.
        conflicts: Whether a commit is a conflict for its rows or its transaction ids. Every RESTORE is one, and every
            commit that changes columns, properties or protocol.

    Raises:
        OvertakenCommit: One is a conflict, or cannot be read.
    """
    for version in range(after + 1, newest.version + 1):
        try:
            found = newest.commit(version)
            refused = found.is_restore or found.changes_metadata or conflicts(found)
            if not refused and replaces:
                refused = not newest.removed_files(version).isdisjoint(replaces)
        except CommitUnreadable:
            raise OvertakenCommit(uri=newest.uri, version=version, operation="unreadable") from None
        if refused:
            raise OvertakenCommit(uri=newest.uri, version=version, operation=found.operation)


def commit_after(version: int, spark: SparkSession, staged: Staged, request: CommitRequest) -> int:
    """Commit directly after a version of the table, and return the version of the commit.

    Raises:
        VersionTaken: Another commit came first.
        StagedFilesGone: The files are missing, e.g. after a VACUUM.
        PlannedTableGone: The table is no longer the one that was planned for.
    """
    uri = request.uri
    table = delta_log(spark, uri)
    snapshot = latest_snapshot(spark, table)
    if version_of(snapshot) != version:
        raise VersionTaken
    transaction = start_transaction(spark, table, snapshot)
    # A table that was dropped and created again has other version numbers, and a commit of ours would damage its log.
    # The transaction ids need no second check: at an unchanged version they are as they were read.
    if newest_version(request).version != version:
        raise VersionTaken
    set_transactions(spark, transaction, request.transactions(version + 1))
    if staged.metadata is not None:
        # Based on the metadata at this version: a commit that changes it is a conflict, and the caller plans again.
        set_metadata(transaction, staged.metadata)
    # Last: a commit that names a file that does not exist makes the table unreadable.
    if missing := missing_files(spark, table, staged.files):
        raise StagedFilesGone(uri=uri, files=missing)
    commit_once(spark, transaction, staged, request, version + 1)
    return version + 1


@announced(WorkStep(doing="committing", commits=True))
def commit_once(spark: SparkSession, transaction: Any, staged: Staged, request: CommitRequest, version: int) -> None:
    """Send the commit; if it answers with an error or not at all, look into the log for the result.

    Raises:
        VersionTaken: Another commit came first.
    """
    from py4j.protocol import Py4JError, Py4JJavaError

    uri, attempt_id = request.uri, request.attempt_id
    try:
        landed = send_commit(spark, transaction, staged, request.user_metadata(version))
    except (Py4JError, OSError) as failed:
        try:
            committed = find_attempt(uri, after=version - 1, attempt_id=attempt_id) is not None
        except (KdiError, CommitUnreadable):
            raise failed from None  # if it was committed, the next read of the log shows it
        if committed:
            log.warning("%s: the commit of attempt %s reported an error and landed", uri, attempt_id)
            return
        if isinstance(failed, Py4JJavaError) and is_conflict(failed):
            raise VersionTaken from failed
        raise
    if landed != version:
        raise AssertionError(f"{uri}: planned as commit {version}, landed as {landed}")


def find_attempt(uri: str, *, after: int, attempt_id: str) -> CommitInfo | None:
    """The commit after version ``after`` with the attempt id, to learn the result of a commit whose answer was lost."""
    table = TableLog.open(uri)
    if table is None:
        return None
    marker = json.dumps(attempt_id)
    return next((c for c in table.commits(after=after) if marker in c.user_metadata), None)


def newest_version(request: CommitRequest) -> TableLog:
    """The table at its newest version, if it is still the one that was planned for.

    Raises:
        PlannedTableGone: It was dropped or replaced.
    """
    newest: TableLog | None = None
    with suppress(NotADeltaTable):  # the table was dropped, and our files were written into the empty folder
        newest = TableLog.open(request.uri)
    if newest is None or newest.table_id != request.table_id:
        found = newest.table_id if newest else ""
        raise PlannedTableGone(uri=request.uri, planned_id=request.table_id, found_id=found)
    return newest
