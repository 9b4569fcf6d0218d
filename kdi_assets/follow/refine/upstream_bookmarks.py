"""Bookmarks: up to which version each upstream table is consumed, in the log of the table that consumes.

A bookmark is a transaction id, set by the commit that has the rows: rows and bookmark are one version. Every commit
sets the bookmarks of all upstream tables; those that it does not set are not valid any more. After a RESTORE of the
consuming table, ``delta.markers`` finds the version at which they hold.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType

from kdi_assets.delta.errors import CommitUnreadable, RestoredToBefore
from kdi_assets.delta.log import CommitInfo, TableLog, row_actions
from kdi_assets.delta.markers import Markers, days_of, live_markers, version_id
from kdi_assets.delta.single_commit import CommitRequest, refuse_conflicts
from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.entry import FORMAT, FORMAT_OF_KEPT_DATES
from kdi_assets.follow.refine.errors import (
    BookmarksUnreadable,
    ChangedByOthers,
    RefinedByNewerRelease,
    UpstreamGone,
    UpstreamMissing,
)
from kdi_assets.follow.refine.topics import TopicsOfRows
from kdi_assets.follow.upstream import OpenedUpstream, open_upstream


@dataclass(frozen=True, slots=True)
class Bookmarks:
    """What a table says of its consumption.

    Attributes:
        version: The newest version of the consuming table.
        markers: Of the consumer (the refined table's path, or the name that a hand-written asset chose), at the version
            whose rows the table has: an older one only after a RESTORE that no commit of ours followed.
        altered: Whether others changed columns, properties or protocol since the consumer's newest commit.
    """

    version: int
    markers: Markers
    altered: bool

    @property
    def log(self) -> TableLog:
        """The table at the version whose rows it has."""
        return self.markers.log

    @property
    def consumer(self) -> str:
        return self.markers.writer

    @property
    def committed(self) -> int | None:
        """The version of the newest commit of ours that the rows come from; ``None``: there is none."""
        return self.markers.committed

    def consumed(self, table_id: str) -> int | None:
        """The version up to which the upstream table with this id is consumed, inclusive; ``None``: it is not."""
        if not self.markers.holds(marker_id(self.consumer, table_id)):
            return None
        return self.markers.version_of(bookmark_id(self.consumer, table_id))

    def has_definition(self, definitions: Collection[str]) -> bool:
        """Whether the newest commit of ours was made by this definition, by one of its digests."""
        return any(self.markers.holds(definition_id(self.consumer, digest)) for digest in definitions)

    @property
    def deletes(self) -> int | None:
        """The version of the table of deletes that belongs to the rows; ``None``: there is none."""
        found = self.markers.version_of(deletes_id(self.consumer))
        return None if found is None or found < 0 else found


def bookmark_id(consumer: str, table_id: str) -> str:
    """Transaction id whose version is the version of the upstream table up to which it is consumed, inclusive."""
    return f"{consumer}|from|{table_id}"


def marker_id(consumer: str, table_id: str) -> str:
    """Transaction id that makes a bookmark valid while it holds (``Markers.holds``)."""
    return f"{consumer}|upstream|{table_id}"


def definition_id(consumer: str, definition: str) -> str:
    """Transaction id that names a digest of the definition, valid while it holds."""
    return f"{consumer}|definition|{definition}"


def deletes_id(consumer: str) -> str:
    """Transaction id whose version is that of the table of deletes which belongs to the rows; -1: there is none."""
    return f"{consumer}|deletes"


def format_id(consumer: str) -> str:
    """Transaction id whose version is the format of bookmarks and entries; absent before there were several."""
    return f"{consumer}|format"


def frozen_id(consumer: str) -> str:
    """Transaction id whose version is the first date that is still computed, in days since 1970; it never goes back.

    Rows of earlier dates are as they were when an upstream table stopped to keep them. It matters once that table is
    replaced by another one, which says nothing of it.
    """
    return f"{consumer}|frozen"


def bookmark_transactions(
    consumer: str,
    consumed: Mapping[str, int],
    version: int,
    *,
    definitions: Collection[str] = (),
    deletes: int | None = None,
    ends: bool = False,
    frozen: date | None = None,
    kept: Mapping[str, int] = MappingProxyType({}),
    topics: TopicsOfRows | None = None,
) -> dict[str, int]:
    """All transaction ids of a commit.

    Args:
        consumed: By the id of each upstream table, the version up to which it is consumed, inclusive.
        version: The version of the commit.
        definitions: The digests of the document.
        deletes: The version of the table of deletes, if there is one.
        ends: Whether some dates are computed no longer, or are kept no longer.
        frozen: The first date that is still computed, if an upstream table keeps no earlier ones.
        kept: Of a commit that removes dates: ``delta.markers.kept_from_id``, with the first date that is kept.
        topics: That the rows come from; ``None``: as before.
    """
    names = [version_id(consumer), *(marker_id(consumer, table_id) for table_id in consumed)]
    names += [definition_id(consumer, digest) for digest in definitions]
    bookmarks = {bookmark_id(consumer, table_id): upto for table_id, upto in consumed.items()}
    format_ = FORMAT_OF_KEPT_DATES if ends else FORMAT
    of_commit = {deletes_id(consumer): -1 if deletes is None else deletes, format_id(consumer): format_}
    of_commit |= {frozen_id(consumer): days_of(frozen)} if frozen else {}
    of_commit |= topics.transactions(consumer, version) if topics else {}
    return {**bookmarks, **dict.fromkeys(names, version), **of_commit, **kept}


def others_transactions(log: TableLog, names: Collection[str], consumer: str, version: int) -> dict[str, int]:
    """The transaction ids of all other consumers of a table, as a commit of one sets them again.

    So each finds its bookmarks in a commit that the table's log still has, however long it has committed nothing.

    Args:
        log: The table at its newest version.
        names: Its transaction ids.
        version: The version of the commit.
    """
    held: dict[str, int] = {}
    end = format_id("")
    for other in {name.removesuffix(end) for name in names if name.endswith(end)} - {consumer}:
        since = log.transaction_version(version_id(other))
        try:
            if since is not None and since < log.version:
                log.commit(since + 1)  # if this one is gone, all would be read from the newest one back to it
            markers = read_bookmarks(log, other, alone=False).markers
        except (CommitUnreadable, KdiError):  # which it gets itself
            continue
        if markers.committed is None:
            continue
        named = [name for name in names if name.startswith((marker_id(other, ""), definition_id(other, "")))]
        values = {name: markers.version_of(name) for name in names if name.startswith(f"{other}|")}
        held |= {name: value for name, value in values.items() if value is not None and name not in named}
        held |= dict.fromkeys([version_id(other), *filter(markers.holds, named)], version)
    return held


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
    if (found := log.transaction_version(format_id(consumer))) not in (None, FORMAT, FORMAT_OF_KEPT_DATES):
        raise RefinedByNewerRelease(table=consumer, found=found)

    altered: list[int] = []

    def check(commit: CommitInfo) -> None:
        altered.extend([commit.version] if commit.changes_metadata else [])
        if alone and changes_rows(log, commit):
            raise ChangedByOthers(table=consumer, uri=log.uri, version=commit.version, operation=commit.operation)

    try:
        live = live_markers(log, consumer, first=f"the first commit of {consumer}", check=check)
    except CommitUnreadable as gone:
        undone = log.transaction_version(version_id(consumer)) if isinstance(gone, RestoredToBefore) else None
        raise BookmarksUnreadable(
            table=consumer, uri=log.uri, version=gone.version, why=gone.why, undone=undone
        ) from gone
    return Bookmarks(log.version, live, bool(altered))


def open_consumed(uri: str, bookmarks: Bookmarks | None, *, consumer: str, upstream: str) -> OpenedUpstream:
    """Open an upstream table, and find up to which version the consumer has consumed it.

    Args:
        bookmarks: Read before this call; ``None``: the consumer has none.
        upstream: The upstream table's name, for messages.

    Raises:
        UpstreamMissing: It does not exist yet.
        UpstreamGone: It does not exist, and rows were made of it before.
        KdiError: Its log cannot be read.
    """
    found = open_upstream(uri, bookmarks.consumed if bookmarks else lambda table_id: None)
    if found is None:
        missing = UpstreamMissing if bookmarks is None or bookmarks.committed is None else UpstreamGone
        raise missing(table=consumer, upstream=upstream, uri=uri)
    return found


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
        return changes_rows(newest, commit) or version_id(consumer) in commit.transactions

    refuse_conflicts(newest, after=after, replaces=replaces, conflicts=conflicts)
    return request


def changes_rows(log: TableLog, commit: CommitInfo) -> bool:
    """Whether a commit adds or removes rows; OPTIMIZE only moves them to other files."""
    return bool(row_actions(log.actions(commit.version)))
