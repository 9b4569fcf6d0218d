"""Markers: what a writer says of its commits in a table's log, read at the version whose rows the table has.

A writer keeps its state in transaction ids, set by the commits that have its rows. After a RESTORE the log still has
the newer ids, and the rows are those of the version that the RESTORE went to; so the ids are read there. An id cannot
be removed from a log: one that names something, such as a topic or a definition, holds while its version is that of the
writer's newest commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import date, timedelta

from kdi_assets.delta.errors import CommitUnreadable, RestoredToBefore
from kdi_assets.delta.log import CommitInfo, TableLog, restore_target


def version_id(writer: str) -> str:
    """Transaction id whose version is the table version of the writer's newest commit; every commit of it sets it."""
    return f"{writer}/version"


def topic_txn_id(app_id: str, topic_id: str) -> str:
    """Transaction id that names the topic, valid while it holds (``Markers.holds``)."""
    return f"{app_id}|topic|{topic_id}"


def topics_of(transaction_ids: Iterable[str]) -> dict[str, set[str]]:
    """By app id, the ids of the topics that its rows come from: several after a topic was made again."""
    found: dict[str, set[str]] = {}
    for name in transaction_ids:
        app_id, is_topic, topic_id = name.partition("|topic|")
        if is_topic:
            found.setdefault(app_id, set()).add(topic_id)
    return found


def table_txn_id(app_id: str, table_id: str) -> str:
    """Transaction id that names the table, valid while it holds (``Markers.holds``)."""
    return f"{app_id}|table|{table_id}"


def kept_from_id(table_id: str) -> str:
    """Transaction id whose version is the first date that the table keeps, in days since 1970; it never goes back."""
    return f"kdi|kept_from|{table_id}"


def kept_from(log: TableLog) -> date | None:
    """The first date that a table keeps; ``None``: it keeps all.

    Rows of earlier dates left in commits of their own (``expire``). It holds after a RESTORE as well, which brings such
    rows back until the next of these commits.
    """
    return date_of(log, kept_from_id(log.table_id))


def date_of(log: TableLog, name: str) -> date | None:
    """The date that a transaction id of a table says; ``None``: it is absent."""
    days = log.transaction_version(name)
    return None if days is None else _EPOCH + timedelta(days=days)


def days_of(day: date) -> int:
    """A date as the version of a transaction id: days since 1970."""
    return (day - _EPOCH).days


_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Markers:
    """The transaction ids of a writer at one version of a table."""

    writer: str
    log: TableLog

    @property
    def committed(self) -> int | None:
        """The version of the writer's newest commit; ``None``: there is none."""
        return self.version_of(version_id(self.writer))

    def holds(self, name: str) -> bool:
        """Whether the newest commit set this id, which names something."""
        return self.committed is not None and self.version_of(name) == self.committed

    def version_of(self, name: str) -> int | None:
        """The version of a transaction id; ``None`` if it is absent."""
        return self.log.transaction_version(name)


def live_markers(
    log: TableLog,
    writer: str,
    *,
    first: str,
    older_ids: Callable[[TableLog], Collection[str]] = lambda log: (),
    check: Callable[[CommitInfo], None] = lambda commit: None,
) -> Markers:
    """The writer's markers at the version whose rows a table has now: through all RESTOREs since its newest commit.

    Args:
        log: The table at its newest version, or at one whose rows are asked for.
        first: The writer's first commit in words, for the error.
        older_ids: Of a log without the writer's version, the transaction ids that it takes over from another writer.
            A log without any is taken as it is.
        check: Called with each commit of others that the rows come from, since the writer's newest one; may refuse it.

    Raises:
        CommitUnreadable: A commit that decides about the rows cannot be read.
        RestoredToBefore: They are older than the writer.
    """
    since = log.transaction_version(version_id(writer))
    older = frozenset(older_ids(log)) if since is None else frozenset()
    if since is None and not older:
        return Markers(writer, log)
    for version in range(log.version, -1 if since is None else since, -1):
        try:
            commit = log.commit(version)
        except CommitUnreadable:
            if since is None:
                break  # no commit of the writer is behind it, and the table's older log may be cleaned up
            raise
        if commit.is_restore:
            restored = _restored(log, commit, "" if since is None else writer, first)
            # A version that is itself a RESTORE has the ids from before it, so ask the same question again.
            return live_markers(restored, writer, first=first, older_ids=older_ids, check=check)
        if not older.isdisjoint(commit.transactions):
            break
        check(commit)
    return Markers(writer, log)


def _restored(log: TableLog, commit: CommitInfo, writer: str, first: str) -> TableLog:
    """The table at the version that a RESTORE went to; a writer that has commits must have some there too."""
    restored = TableLog.existing(log.uri, restore_target(log, commit))
    if writer and restored.transaction_version(version_id(writer)) is None:
        raise RestoredToBefore(log.uri, restored.version, first)
    return restored
