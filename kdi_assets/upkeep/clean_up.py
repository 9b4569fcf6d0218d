"""Clean-up of a table's log: copied to the archive first, the positions renewed, then what is expired is removed.

Delta itself never cleans these logs, because they are the ledger (``delta.enableExpiredLogCleanup=false``). What goes
is what ``delta.logRetentionDuration`` says; with it goes the possibility to RESTORE to before.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from kdi_assets.drain.snapshot import Snapshot, take_snapshot
from kdi_assets.drain.spark_errors import spark_failures
from kdi_assets.errors import Terminal
from kdi_assets.ledger.archive import copy_to_archive, open_archive, uncopied
from kdi_assets.ledger.commit import commit, next_entry
from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.ledger.delta_transaction import Staged
from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.errors import CommitUnreadable
from kdi_assets.ledger.positions import LedgerState
from kdi_assets.ledger.storage import storage_failures, storage_uri
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RETENTION = "delta.logRetentionDuration"
_DEFAULT_RETENTION = "interval 30 days"


class NoUpkeepNow(Terminal):
    """The table is not in a state in which its log may be cleaned up."""

    stream: str
    detail: str
    run: str

    what_happened = "{stream}: the log is not cleaned up: {detail}."
    what_is_safe = "nothing was removed."
    what_to_run = "{run}"


@dataclass(frozen=True, slots=True)
class CleanUp:
    """What a clean-up of a table's log does, or did.

    Attributes:
        version: The table's version.
        commits: Commits in the log before.
        expired: Those of them that are older than the retention, the oldest first.
        renews: Whether the newest ledger commit is among the expired, so that a new one must carry the positions on.
        uncopied: How many the archive does not have yet.
        done: Whether this was done; what follows says what.
        copied: Commits copied to the archive.
        removed: Commits removed from the log.
        renewed_at: The version of the ledger commit that carries the positions on, if one was needed.
    """

    stream: str
    version: int
    commits: int
    expired: tuple[int, ...]
    retention: timedelta
    renews: bool
    uncopied: int
    done: bool = False
    copied: int = 0
    removed: int = 0
    renewed_at: int | None = None


def plan_clean_up(stream: Stream, lake: str, *, now: datetime) -> CleanUp:
    """Say what a clean-up would do; nothing is changed.

    Raises:
        NoUpkeepNow: There is no table, or positions must be committed first.
        KdiError: What a drain would refuse for as well.
    """
    ledger = _settled(stream, take_snapshot(stream, lake))
    log = TableLog.existing(stream.table_uri(lake))
    files, retention = log.commit_files(), _retention(stream, log)
    expired = tuple(sorted(v for v, written in files.items() if written <= now - retention and v < log.version))
    try:
        left = uncopied(log, open_archive(stream.archive_uri(lake)))
    except CommitUnreadable as damaged:
        detail = f"commit {damaged.version} {damaged.why}, so it cannot be copied"
        raise NoUpkeepNow(stream=stream.name, detail=detail, run=f"ls {log.uri}/_delta_log") from damaged
    return CleanUp(
        stream=stream.name,
        version=log.version,
        commits=len(files),
        expired=expired,
        uncopied=len(left),
        retention=retention,
        renews=bool(expired) and (ledger.ledger_version is None or ledger.ledger_version <= expired[-1]),
    )


def clean_up(stream: Stream, lake: str, *, session: Callable[[], SparkSession], now: datetime) -> CleanUp:
    """Clean the log up.

    Args:
        session: Called only if the positions must be renewed.

    Raises:
        NoUpkeepNow: As ``plan_clean_up``.
        OvertakenCommit: Another ledger commit came first; nothing needs renewal then.
        ArchiveBusy: Others are copying.
    """
    from deltalake import DeltaTable

    planned = plan_clean_up(stream, lake, now=now)
    renewed = _renew(stream, lake, session()) if planned.renews else None
    uri = stream.table_uri(lake)
    if planned.expired:
        _checkpoint(stream, uri)
    log = TableLog.existing(uri)
    before = log.commit_files()
    copied = copy_to_archive(log, stream.archive_uri(lake))
    if planned.expired:
        with storage_failures(uri):
            # Opened at the version up to which everything is copied: nothing behind it can go.
            DeltaTable(storage_uri(uri), version=log.version).cleanup_metadata()
    removed = before.keys() - log.commit_files().keys()
    at = renewed.version if renewed else None
    return replace(planned, version=log.version, done=True, copied=copied, removed=len(removed), renewed_at=at)


def _settled(stream: Stream, seen: Snapshot) -> LedgerState:
    if seen.ledger is None:
        raise NoUpkeepNow(stream=stream.name, detail="there is no table yet", run=f"kdi drain {stream.name}")
    if seen.position_commit:
        detail = f"positions must be committed first ({seen.position_commit.reason})"
        raise NoUpkeepNow(stream=stream.name, detail=detail, run=f"kdi drain {stream.name}")
    return seen.ledger


def _renew(stream: Stream, lake: str, spark: SparkSession) -> LedgerEntry:
    """Commit the positions again, behind everything that is there: what decides about them stays readable."""
    seen = take_snapshot(stream, lake)
    ledger = _settled(stream, seen)
    entry = next_entry(stream, ledger, kind="renewal", topic_id=seen.topic.topic_id)
    with spark_failures(stream, "renewing the positions"):
        return commit(spark, Staged(), ledger.uri, read_version=ledger.version, entry=entry)


def _checkpoint(stream: Stream, uri: str) -> None:
    """Without a checkpoint behind them, commits are all there is, and none of them may go.

    Raises:
        NoUpkeepNow: It cannot be written as the table is.
        StorageFailed: The storage does not take it.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        with storage_failures(uri):
            DeltaTable(storage_uri(uri)).create_checkpoint()
    except DeltaError as refused:
        detail = f"no checkpoint can be written: {str(refused).strip().splitlines()[0]}"
        raise NoUpkeepNow(stream=stream.name, detail=detail, run=f"ls {uri}/_delta_log") from refused


def _retention(stream: Stream, log: TableLog) -> timedelta:
    """Only what delta-rs understands as well, which removes the files: of all else it would take its default.

    Source: Delta's docs, "Table properties": ``interval <n> <unit>``, days by default 30.
    """
    text = log.configuration.get(_RETENTION, _DEFAULT_RETENTION)
    found = re.fullmatch(r"interval (\d+) (week|day|hour|minute|second)s?", text)
    if not found:
        run = f"ALTER TABLE delta.`{log.uri}` SET TBLPROPERTIES ('{_RETENTION}' = '{_DEFAULT_RETENTION}')"
        raise NoUpkeepNow(stream=stream.name, detail=f"{_RETENTION} is {text!r}, and not like this", run=run)
    return timedelta(**{f"{found[2]}s": int(found[1])})
