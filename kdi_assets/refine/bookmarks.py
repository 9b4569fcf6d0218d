"""Bookmarks: up to which version each upstream table is consumed, in the log of the table that consumes.

A bookmark is a transaction id, set by the commit that has the rows: rows and bookmark are one version. Every commit
sets the bookmarks of all upstream tables; those that it does not set are not valid any more. After a RESTORE of the
consuming table its log still has the newer ids, so the bookmarks are those of the version that the RESTORE went to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kdi_assets.delta.errors import CommitUnreadable
from kdi_assets.delta.log import CommitInfo, TableLog, restore_target, row_actions
from kdi_assets.delta.single_commit import CommitRequest, refuse_conflicts
from kdi_assets.refine.entry import FORMAT
from kdi_assets.refine.errors import BookmarksUnreadable, ChangedByOthers, RefinedByNewerRelease


@dataclass(frozen=True, slots=True)
class Bookmarks:
    """What a table says of its consumption.

    Attributes:
        consumer: Prefix of the transaction ids: the refined table's path, or the name that a hand-written asset chose.
        version: The newest version of the consuming table.
        live: The version whose rows the table has: another one only after a RESTORE that no commit of ours followed.
        committed: The version of the newest commit of ours that the rows come from; ``None``: there is none.
        log: The table at ``live``.
    """

    consumer: str
    version: int
    live: int
    committed: int | None
    log: TableLog

    def consumed(self, table_id: str) -> int | None:
        """The version up to which the upstream table with this id is consumed, inclusive; ``None``: it is not."""
        if self._version_of(marker_id(self.consumer, table_id)) != self.committed or self.committed is None:
            return None
        return self._version_of(bookmark_id(self.consumer, table_id))

    def has_definition(self, definition: str) -> bool:
        """Whether the newest commit of ours was made by this definition."""
        return (
            self.committed is not None and self._version_of(definition_id(self.consumer, definition)) == self.committed
        )

    @property
    def deletes(self) -> int | None:
        """The version of the table of deletes that belongs to the rows; ``None``: there is none."""
        found = self._version_of(deletes_id(self.consumer))
        return None if found is None or found < 0 else found

    def _version_of(self, txn: str) -> int | None:
        return self.log.transaction_version(txn)


def bookmark_id(consumer: str, table_id: str) -> str:
    """Transaction id whose version is the version of the upstream table up to which it is consumed, inclusive."""
    return f"{consumer}|from|{table_id}"


def marker_id(consumer: str, table_id: str) -> str:
    """Transaction id that makes a bookmark valid while its version is that of ``commit_id``."""
    return f"{consumer}|upstream|{table_id}"


def definition_id(consumer: str, definition: str) -> str:
    """Transaction id that names the definition; valid while its version is that of ``commit_id``."""
    return f"{consumer}|definition|{definition}"


def commit_id(consumer: str) -> str:
    """Transaction id whose version is the version of the newest commit of ours."""
    return f"{consumer}/version"


def deletes_id(consumer: str) -> str:
    """Transaction id whose version is that of the table of deletes which belongs to the rows; -1: there is none."""
    return f"{consumer}|deletes"


def format_id(consumer: str) -> str:
    """Transaction id whose version is the format of bookmarks and entries; absent before there were several."""
    return f"{consumer}|format"


def bookmark_transactions(
    consumer: str, consumed: Mapping[str, int], version: int, *, definition: str = "", deletes: int | None = None
) -> dict[str, int]:
    """All transaction ids of a commit.

    Args:
        consumed: By the id of each upstream table, the version up to which it is consumed, inclusive.
        version: The version of the commit.
        deletes: The version of the table of deletes, if there is one.
    """
    names = [commit_id(consumer), *(marker_id(consumer, table_id) for table_id in consumed)]
    names += [definition_id(consumer, definition)] if definition else []
    bookmarks = {bookmark_id(consumer, table_id): upto for table_id, upto in consumed.items()}
    of_commit = {deletes_id(consumer): -1 if deletes is None else deletes, format_id(consumer): FORMAT}
    return {**bookmarks, **dict.fromkeys(names, version), **of_commit}


def read_bookmarks(log: TableLog, consumer: str, *, alone: bool = True) -> Bookmarks:
    """Read the bookmarks of a table without a JVM.

    Args:
        log: The table at its newest version.
        alone: Whether only the consumer may change the table's rows.

    Raises:
        RefinedByNewerRelease: This release does not know the format of the bookmarks.
        BookmarksUnreadable: Commits since the newest one of ours cannot be read.
        ChangedByOthers: Another writer changed rows of the table since.
    """
    if (found := log.transaction_version(format_id(consumer))) not in (None, FORMAT):
        raise RefinedByNewerRelease(table=consumer, found=found)
    try:
        live = _follow_restores(log, consumer, alone=alone)
    except CommitUnreadable as gone:
        raise BookmarksUnreadable(table=consumer, uri=log.uri, version=gone.version, why=gone.why) from gone
    return Bookmarks(consumer, log.version, live.version, live.transaction_version(commit_id(consumer)), live)


def _follow_restores(log: TableLog, consumer: str, *, alone: bool) -> TableLog:
    since = log.transaction_version(commit_id(consumer))
    if since is None:
        return log
    for commit in reversed(list(log.commits(after=since))):
        if commit.is_restore:
            restored = TableLog.existing(log.uri, restore_target(log, commit))
            if restored.transaction_version(commit_id(consumer)) is None:
                why = "is older than the first commit of the refined table, and the table was restored to it"
                raise CommitUnreadable(log.uri, restored.version, why=why)
            # A version that is itself a RESTORE has the ids from before it, so ask the same question again.
            return _follow_restores(restored, consumer, alone=alone)
        if alone and changes_rows(log, commit):
            raise ChangedByOthers(table=consumer, uri=log.uri, version=commit.version, operation=commit.operation)
    return log


def follow_harmless(
    request: CommitRequest, newest: TableLog, after: int, *, consumer: str, replaces: Collection[str]
) -> CommitRequest:
    """For ``commit_behind``: a commit that was planned on version ``after`` follows those after it, if it may.

    Args:
        newest: The consuming table at its newest version.
        replaces: Files that the commit replaces.

    Raises:
        OvertakenCommit: One of them changed rows, columns or bookmarks, moved rows out of these files, or cannot be
            read.
    """

    def conflicts(commit: CommitInfo) -> bool:
        return changes_rows(newest, commit) or commit_id(consumer) in commit.transactions

    refuse_conflicts(newest, after=after, replaces=replaces, conflicts=conflicts)
    return request


def changes_rows(log: TableLog, commit: CommitInfo) -> bool:
    """Whether a commit adds or removes rows; OPTIMIZE only moves them to other files."""
    return bool(row_actions(log.actions(commit.version)))
