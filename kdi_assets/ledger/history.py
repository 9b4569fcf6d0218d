"""History: the ledger entries in a table's log, all of them or those whose rows are there now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kdi_assets.ledger.entry import LedgerEntry, entry_of
from kdi_assets.ledger.log import CommitInfo, CommitUnreadable, TableLog, restore_target

_REMOVING = ("DELETE", "UPDATE", "MERGE", "TRUNCATE", "REMOVE")


@dataclass(frozen=True, slots=True)
class LiveHistory:
    """The commits that the rows at the newest version come from; what a RESTORE undid is not in it.

    Attributes:
        version: The newest version when it was read.
        entries: Ledger entries, the oldest first.
        since: The oldest of them that could be read; above 0 the log was cleaned up.
        removing: Commits of others that may have removed or changed rows.
    """

    version: int
    entries: tuple[LedgerEntry, ...]
    since: int
    removing: tuple[CommitInfo, ...]


def entries(uri: str, app_id: str, since_version: int = -1) -> list[LedgerEntry]:
    """Every ledger entry behind ``since_version``, the oldest first, undone or not; the readable part of the log."""
    log = TableLog.open(uri)
    found: list[LedgerEntry] = []
    if log is None:
        return found
    for version in range(log.version, since_version, -1):
        try:
            commit = log.commit(version)
        except CommitUnreadable:
            break
        if entry := entry_of(commit.user_metadata, version, app_id):
            found.append(entry)
    return found[::-1]


def live_history(uri: str, app_id: str) -> LiveHistory | None:
    """Walk the log back from the newest version, jumping where a RESTORE jumped; ``None`` if there is no table."""
    log = TableLog.open(uri)
    if log is None:
        return None
    found: list[LedgerEntry] = []
    removing: list[CommitInfo] = []
    since = log.version + 1
    for commit in live_commits(log):
        since = commit.version
        if entry := entry_of(commit.user_metadata, commit.version, app_id):
            found.append(entry)
        elif commit.replaces_rows or commit.operation.startswith(_REMOVING):
            removing.append(commit)
    return LiveHistory(log.version, tuple(found[::-1]), since, tuple(removing[::-1]))


def live_commits(log: TableLog) -> Iterator[CommitInfo]:
    """The commits whose rows are there, the newest first, as far as the log can be read; a RESTORE is jumped over."""
    version = log.version
    while version >= 0:
        try:
            commit = log.commit(version)
            target = restore_target(log, commit) if commit.is_restore else None
        except CommitUnreadable:
            return
        if target is None:
            yield commit
        version = version - 1 if target is None else target
