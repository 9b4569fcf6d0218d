"""History: the ledger entries in a table's log, all of them or those whose rows are there now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kdi_assets.ledger.archive import Archive
from kdi_assets.ledger.commit_info import CommitInfo
from kdi_assets.ledger.delta_log import TableLog, restore_target
from kdi_assets.ledger.entry import LedgerEntry, entry_of
from kdi_assets.ledger.errors import CommitUnreadable
from kdi_assets.ledger.transaction_ids import version_id

_REMOVING = ("DELETE", "UPDATE", "MERGE", "TRUNCATE", "REMOVE")
_REPLACING = ("CREATE OR REPLACE TABLE", "REPLACE TABLE", "CLONE")
SAME_ROWS = ("OPTIMIZE", "VACUUM", "REORG", "SET ", "UNSET ", "ADD ", "CHANGE ", "DROP ", "RENAME ", "COMPUTE ")


@dataclass(frozen=True, slots=True)
class LiveHistory:
    """The commits that the rows at the newest version come from; what a RESTORE undid is not in it.

    Attributes:
        version: The newest version when it was read.
        entries: Ledger entries, the oldest first.
        since: The oldest commit that could be read, from the log or its archive; above 0 older ones are gone.
        foreign: Commits of others that may have added, removed or changed rows, the oldest first.
        withdrawing: Replays that took rows out without any in their place, the oldest first.
        knows_ledger: Whether the log says that there was a ledger commit, whether or not its entry can be read.
    """

    version: int
    entries: tuple[LedgerEntry, ...]
    since: int
    foreign: tuple[CommitInfo, ...]
    knows_ledger: bool = True
    withdrawing: tuple[CommitInfo, ...] = ()

    @property
    def removing(self) -> tuple[CommitInfo, ...]:
        """Commits of others that may have removed or changed rows."""
        return tuple(c for c in self.foreign if removes_rows(c) or takes_table(c))


def removes_rows(commit: CommitInfo) -> bool:
    """Whether someone removed or changed rows on purpose, by saying which."""
    return commit.operation.startswith(_REMOVING)


def takes_table(commit: CommitInfo) -> bool:
    """Whether the commit put another content in the table's place, or a part of it; what was there went unnamed."""
    return commit.replaces_rows or commit.operation.startswith(_REPLACING)


def live_history(uri: str, app_id: str, *, archive_uri: str = "") -> LiveHistory | None:
    """Walk the log back from the newest version, jumping where a RESTORE jumped; ``None`` if there is no table.

    Args:
        archive_uri: Where commits are looked up that the log no longer has; empty: nowhere.
    """
    log = TableLog.open(uri)
    if log is None:
        return None
    found: list[LedgerEntry] = []
    foreign: list[CommitInfo] = []
    withdrawing: list[CommitInfo] = []
    since = log.version + 1
    for commit in live_commits(log, archive_uri):
        since = commit.version
        if entry := entry_of(commit.user_metadata, commit.version, app_id):
            found.append(entry)
            withdrawing += [commit] if entry.withdrawn else []
        elif not commit.operation.startswith(SAME_ROWS):
            foreign.append(commit)
    knows_ledger = bool(found) or log.transaction(version_id(app_id)) is not None
    entries, others = tuple(found[::-1]), tuple(foreign[::-1])
    return LiveHistory(log.version, entries, since, others, knows_ledger, tuple(withdrawing[::-1]))


@dataclass(frozen=True, slots=True)
class LoggedCommit:
    """One commit as a walk through the log finds it.

    Attributes:
        live: Whether its rows are there: false if a RESTORE undid it, ``None`` if nobody can say.
        info: ``None`` if the commit cannot be read.
        why: Why not.
    """

    version: int
    live: bool | None
    info: CommitInfo | None
    why: str = ""


def walk_back(log: TableLog, archive_uri: str = "") -> Iterator[LoggedCommit]:
    """The commits from the newest back, until one is in neither the log nor the archive.

    A RESTORE to version w undoes the commits between w and itself. Where a RESTORE does not say where it went, or a
    live commit cannot be read, nobody can say which of the older ones are live.
    """
    next_live: int | None = log.version
    archive = Archive(archive_uri, log.table_id) if archive_uri else None
    for version in range(log.version, -1, -1):
        live = None if next_live is None else version == next_live
        try:
            info = _commit(log, version, archive)
        except CommitUnreadable as unreadable:
            if unreadable.gone:
                return
            yield LoggedCommit(version, live, None, unreadable.why)
            next_live = None if live else next_live
            continue
        yield LoggedCommit(version, live, info)
        if live:
            try:
                next_live = restore_target(log, info) if info.is_restore else version - 1
            except CommitUnreadable:
                next_live = None


def readable(commits: Iterable[LoggedCommit]) -> Iterator[CommitInfo]:
    """The commits up to the first that cannot be read."""
    for commit in commits:
        if commit.info is None:
            return
        yield commit.info


def live_commits(log: TableLog, archive_uri: str = "") -> Iterator[CommitInfo]:
    """The commits whose rows are there, without RESTOREs, the newest first, as far as the log can tell."""
    for commit in walk_back(log, archive_uri):
        if commit.live is None or (commit.live and commit.info is None):
            return
        if commit.live and commit.info and not commit.info.is_restore:
            yield commit.info


def every_commit(log: TableLog, archive_uri: str) -> list[CommitInfo]:
    """Every commit from version 0 on, undone or not, the oldest first.

    Raises:
        CommitUnreadable: One of them is in neither the log nor the archive, or cannot be read.
    """
    read = list(readable(walk_back(log, archive_uri)))
    if len(read) <= log.version:
        raise CommitUnreadable(log.uri, log.version - len(read))
    return read[::-1]


def _commit(log: TableLog, version: int, archive: Archive | None) -> CommitInfo:
    """A commit as the log has it, else as the archive does.

    Raises:
        CommitUnreadable: Neither has it.
    """
    archived = archive.commit(version) if archive else None
    if archived and archived.restored_to is not None:
        return archived  # where it went was looked up when the log could still tell
    try:
        return log.commit(version)
    except CommitUnreadable:
        if archived:
            return archived
        raise
