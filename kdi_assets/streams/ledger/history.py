"""History: the commits and ledger entries of a table, all of them or only the live ones.

Live commits are those that the rows at the newest version come from; a RESTORE undoes commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kdi_assets.delta.errors import CommitUnreadable, OvertakenCommit
from kdi_assets.delta.log import CommitInfo, TableLog, restore_target
from kdi_assets.delta.markers import version_id
from kdi_assets.documents.model.stream import Stream
from kdi_assets.streams.ledger.archive import Archive
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.entry_json import parse_entry
from kdi_assets.streams.ledger.positions import LedgerState

_REMOVING = ("DELETE", "UPDATE", "MERGE", "TRUNCATE", "REMOVE")
_REPLACING = ("CREATE OR REPLACE TABLE", "REPLACE TABLE", "CLONE")
SAME_ROWS = ("OPTIMIZE", "VACUUM", "REORG", "SET ", "UNSET ", "ADD ", "CHANGE ", "DROP ", "RENAME ", "COMPUTE ")


@dataclass(frozen=True, slots=True)
class LiveHistory:
    """The live commits of a table.

    Attributes:
        version: The newest version when it was read.
        entries: Ledger entries, oldest first.
        since: The oldest commit that could be read from the log or its archive; above 0, older ones are gone.
        foreign: Commits of other writers that may have added, removed or changed rows, oldest first.
        withdrawing: Replays that removed rows of messages without replacement, oldest first.
        undone_erasures: Erasures that a RESTORE undid, oldest first: what they erased is in the table again.
        undone_expiries: The same of expiries; the next upkeep removes the rows again.
        knows_ledger: Whether the log has a ledger commit, even if its entry cannot be read.
    """

    version: int
    entries: tuple[LedgerEntry, ...]
    since: int
    foreign: tuple[CommitInfo, ...]
    knows_ledger: bool = True
    withdrawing: tuple[CommitInfo, ...] = ()
    undone_erasures: tuple[LedgerEntry, ...] = ()
    undone_expiries: tuple[LedgerEntry, ...] = ()

    @property
    def removing(self) -> tuple[CommitInfo, ...]:
        """Commits of other writers that may have removed or changed rows."""
        return tuple(c for c in self.foreign if removes_rows(c) or replaces_table(c))


def removes_rows(commit: CommitInfo) -> bool:
    """Whether the commit removed or changed rows that its statement selects."""
    return commit.operation.startswith(_REMOVING)


def replaces_table(commit: CommitInfo) -> bool:
    """Whether the commit replaced the table's content or a part of it, without selecting rows."""
    return commit.replaces_rows or commit.operation.startswith(_REPLACING)


def live_history(uri: str, app_id: str, *, archive_uri: str = "", version: int | None = None) -> LiveHistory | None:
    """Read the live commits of a table; ``None`` if there is no table.

    Args:
        archive_uri: The archive with the commits that the log no longer has; empty for none.
        version: The history up to this version, by default the newest.
    """
    log = TableLog.open(uri, version)
    if log is None:
        return None
    found: list[LedgerEntry] = []
    foreign: list[CommitInfo] = []
    withdrawing: list[CommitInfo] = []
    undone: list[LedgerEntry] = []
    since = log.version + 1
    for commit, live in _known_commits(log, archive_uri):
        if not live:
            undone += _erasures([commit], app_id)
            continue
        since = commit.version
        if entry := parse_entry(commit.user_metadata, commit.version, app_id):
            found.append(entry)
            withdrawing += [commit] if entry.withdrawn else []
        elif not commit.operation.startswith(SAME_ROWS):
            foreign.append(commit)
    knows_ledger = bool(found) or log.transaction_version(version_id(app_id)) is not None
    entries, others = tuple(found[::-1]), tuple(foreign[::-1])
    return LiveHistory(
        log.version,
        entries,
        since,
        others,
        knows_ledger,
        tuple(withdrawing[::-1]),
        undone_erasures=_not_repeated([e for e in undone if e.kind != "expire"], entries),
        undone_expiries=tuple(e for e in undone[::-1] if e.kind == "expire"),
    )


def history_of(stream: Stream, lake: str) -> LiveHistory | None:
    """The live commits of the stream's table at its newest version; ``None`` if there is no table."""
    return live_history(stream.table_uri(lake), stream.app_id, archive_uri=stream.archive_uri(lake))


def history_at(ledger: LedgerState, stream: Stream, lake: str) -> LiveHistory:
    """The live commits up to the version of the stream's ledger.

    Raises:
        OvertakenCommit: The table was dropped since.
        CommitUnreadable: Its log was cleaned up since.
    """
    archive = stream.archive_uri(lake)
    history = live_history(ledger.uri, stream.app_id, archive_uri=archive, version=ledger.version)
    if history is None:
        raise OvertakenCommit(uri=ledger.uri, version=ledger.version + 1, operation="DROP TABLE")
    return history


def _erasures(commits: Iterable[CommitInfo], app_id: str) -> Iterator[LedgerEntry]:
    for commit in commits:
        # Other entries that a RESTORE undid are not parsed: a newer release may have written them.
        if '"erasure"' in commit.user_metadata:
            entry = parse_entry(commit.user_metadata, commit.version, app_id)
            yield from [entry] if entry else []


def _not_repeated(undone: Sequence[LedgerEntry], live: Sequence[LedgerEntry]) -> tuple[LedgerEntry, ...]:
    """The undone erasures that no later erasure repeated, oldest first."""
    repeated = max((e.version for e in live if e.erasure and e.erasure.again), default=-1)
    return tuple(e for e in undone[::-1] if e.version > repeated)


@dataclass(frozen=True, slots=True)
class LoggedCommit:
    """One commit of ``walk_back``.

    Attributes:
        live: False if a RESTORE undid it; ``None`` if that is unknown.
        info: ``None`` if the commit cannot be read.
        why: Why it cannot be read.
    """

    version: int
    live: bool | None
    info: CommitInfo | None
    why: str = ""


def walk_back(log: TableLog, archive_uri: str = "") -> Iterator[LoggedCommit]:
    """The commits, newest first, until one is in neither the log nor the archive.

    A RESTORE to version w undoes the commits between w and itself. If the target of a RESTORE is unknown, or a live
    commit cannot be read, it is unknown which older commits are live.
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


def until_unreadable(commits: Iterable[LoggedCommit]) -> Iterator[CommitInfo]:
    """The commits up to the first that cannot be read."""
    for commit in commits:
        if commit.info is None:
            return
        yield commit.info


def live_commits(log: TableLog) -> Iterator[CommitInfo]:
    """The live commits of the log without RESTOREs, newest first, as long as it is known which are live."""
    return (commit for commit, live in _known_commits(log, archive_uri="") if live)


def _known_commits(log: TableLog, archive_uri: str) -> Iterator[tuple[CommitInfo, bool]]:
    """The commits without RESTOREs, newest first, and whether they are live, as long as that is known."""
    for commit in walk_back(log, archive_uri):
        if commit.live is None or (commit.live and commit.info is None):
            return
        if commit.info and not commit.info.is_restore:
            yield commit.info, commit.live


def every_commit(log: TableLog, archive_uri: str) -> list[CommitInfo]:
    """Every commit since version 0, also undone ones, oldest first.

    Raises:
        CommitUnreadable: A commit is in neither the log nor the archive, or cannot be read.
    """
    read = list(until_unreadable(walk_back(log, archive_uri)))
    if len(read) <= log.version:
        raise CommitUnreadable(log.uri, log.version - len(read))
    return read[::-1]


def _commit(log: TableLog, version: int, archive: Archive | None) -> CommitInfo:
    """A commit from the log, or else from the archive.

    Raises:
        CommitUnreadable: It is in neither.
    """
    archived = archive.commit(version) if archive else None
    if archived and archived.restored_to is not None:
        return archived  # it has the target of a RESTORE, which the log may no longer have
    try:
        return log.commit(version)
    except CommitUnreadable:
        if archived:
            return archived
        raise
