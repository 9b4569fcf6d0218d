"""Clean-up of a table's log: copy commits to the archive, renew the positions, then remove expired commits.

Delta itself never cleans these logs, because they are the ledger (``delta.enableExpiredLogCleanup=false``).
``delta.logRetentionDuration`` decides what is expired; a RESTORE to a removed version is no longer possible.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from kdi_assets.delta.errors import CommitUnreadable
from kdi_assets.delta.log import TableLog
from kdi_assets.delta.storage import open_delta_table, storage_failures
from kdi_assets.delta.transaction import Staged
from kdi_assets.documents.model.stream import Stream
from kdi_assets.operate.upkeep.errors import NoUpkeepNow
from kdi_assets.streams.drain.position_commit import commit_positions
from kdi_assets.streams.drain.snapshot import Snapshot, snapshot_without_topic, take_snapshot
from kdi_assets.streams.ledger.archive import copy_to_archive, open_archive, uncopied
from kdi_assets.streams.ledger.commit import commit, next_entry
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.positions import LedgerState
from kdi_assets.streams.spark_errors import spark_failures
from kdi_assets.wording import first_line, sql_command, storage_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RETENTION = "delta.logRetentionDuration"
_DEFAULT_RETENTION = "interval 30 days"


@dataclass(frozen=True, slots=True)
class CleanUp:
    """A clean-up of a table's log, planned or done.

    Attributes:
        version: The table's version.
        commits: Number of commits in the log before.
        expired: Versions of commits that are older than the retention, the oldest first.
        renews: Whether a new commit must repeat the positions: the newest ledger commit is expired, or was restored.
        uncopied: Number of commits that the archive lacks.
        done: Whether it was done; the fields after it are its result.
        copied: Number of commits copied to the archive.
        removed: Number of commits removed from the log.
        renewed_at: The version of the commit that repeats the positions, if there is one.
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
    """Plan a clean-up; changes nothing.

    Raises:
        NoUpkeepNow: There is no table, or positions must be committed first.
        KdiError: As a drain of the stream.
    """
    seen, ledger = _looked(stream, lake)
    log = TableLog.existing(stream.table_uri(lake))
    files, retention = log.commit_files(), _retention(stream, log)
    expired = tuple(sorted(v for v, written in files.items() if written <= now - retention and v < log.version))
    try:
        left = uncopied(log, open_archive(stream.archive_uri(lake)))
    except CommitUnreadable as damaged:
        detail = f"commit {damaged.version} {damaged.why}, so it cannot be copied"
        raise NoUpkeepNow(
            stream=stream.name, detail=detail, run=storage_command("ls", f"{log.uri}/_delta_log/")
        ) from damaged
    return CleanUp(
        stream=stream.name,
        version=log.version,
        commits=len(files),
        expired=expired,
        uncopied=len(left),
        retention=retention,
        renews=bool(seen.position_commit)
        or (bool(expired) and (ledger.ledger_version is None or ledger.ledger_version <= expired[-1])),
    )


def clean_up(stream: Stream, lake: str, *, session: Callable[[], SparkSession], now: datetime) -> CleanUp:
    """Clean up the log.

    Args:
        session: Called only if the positions must be renewed.

    Raises:
        NoUpkeepNow: As ``plan_clean_up``.
        OvertakenCommit: Another ledger commit came first, so the positions need not be renewed.
        ArchiveBusy: Another process is copying.
    """
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
            # Opened at the version up to which everything is copied, so that nothing newer can be removed.
            open_delta_table(uri, log.version).cleanup_metadata()
    removed = before.keys() - log.commit_files().keys()
    at = renewed.version if renewed else None
    return replace(planned, version=log.version, done=True, copied=copied, removed=len(removed), renewed_at=at)


def _looked(stream: Stream, lake: str) -> tuple[Snapshot, LedgerState]:
    """The stream as it is, if no drain must commit positions first. After a RESTORE of a retired one, upkeep does."""
    retired = stream.status == "retired"
    seen = snapshot_without_topic(stream, lake) if retired else take_snapshot(stream, lake)
    run = f"kdi drain {stream.name}{'   (first take `status: retired` out of its document)' * retired}"
    if seen.ledger is None:
        raise NoUpkeepNow(stream=stream.name, detail="there is no table yet", run=run)
    if seen.position_commit and not (retired and seen.position_commit.kind == "restore"):
        detail = f"positions must be committed first ({seen.position_commit.reason})"
        raise NoUpkeepNow(stream=stream.name, detail=detail, run=run)
    return seen, seen.ledger


def _renew(stream: Stream, lake: str, spark: SparkSession) -> LedgerEntry:
    """Commit the positions again, so that the commit that holds them does not expire."""
    seen, ledger = _looked(stream, lake)
    if seen.position_commit:
        return commit_positions(spark, seen.position_commit, stream, lake, ledger=ledger, topic=seen.topic)
    entry = next_entry(stream, ledger, kind="renewal", topic_id=seen.topic.topic_id)
    with spark_failures(stream, "renewing the positions"):
        return commit(spark, Staged(), ledger.uri, read_version=ledger.version, entry=entry)


def _checkpoint(stream: Stream, uri: str) -> None:
    """Write a checkpoint: only commits before a checkpoint may be removed.

    Raises:
        NoUpkeepNow: delta-rs cannot write one for this table.
        StorageFailed: The storage refuses it.
    """
    from deltalake.exceptions import DeltaError

    try:
        with storage_failures(uri):
            open_delta_table(uri).create_checkpoint()
    except DeltaError as refused:
        detail = f"no checkpoint can be written: {first_line(refused)}"
        raise NoUpkeepNow(
            stream=stream.name, detail=detail, run=storage_command("ls", f"{uri}/_delta_log/")
        ) from refused


def _retention(stream: Stream, log: TableLog) -> timedelta:
    """The retention, in the form that delta-rs also reads, because it removes the files; otherwise it uses its default.

    Source: Delta's docs, "Table properties": ``interval <n> <unit>``, days by default 30.
    """
    text = log.configuration.get(_RETENTION, _DEFAULT_RETENTION)
    found = re.fullmatch(r"interval (\d+) (week|day|hour|minute|second)s?", text)
    if not found:
        run = sql_command(f'ALTER TABLE delta.`{log.uri}` SET TBLPROPERTIES ({_RETENTION} = "{_DEFAULT_RETENTION}")')
        raise NoUpkeepNow(stream=stream.name, detail=f"{_RETENTION} is {text!r}, not in this form", run=run)
    return timedelta(**{f"{found[2]}s": int(found[1])})
