"""When rows were last ordered: the OPTIMIZE commits that say so, from the log and its archive. No JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from kdi_assets.delta.log import TableLog, metadata_with
from kdi_assets.delta.storage import storage_failures
from kdi_assets.operate.upkeep.compaction import CLUSTERED
from kdi_assets.streams.ledger.archive import open_archive, uncopied

_Said = tuple[str, datetime | None]
"""User metadata of a commit, and when it was committed."""


def clustered_at(log: TableLog, archive_uri: str, columns: Sequence[str]) -> dict[str, datetime]:
    """By partition, when its rows were last ordered by these columns, as far as log and archive reach.

    Args:
        archive_uri: Empty: there is none.

    Raises:
        CommitUnreadable: A commit that the archive does not have cannot be read.
        StorageFailed: The storage does not answer.
    """
    if not columns:
        return {}
    return last_clustered([*_archived(log, archive_uri), *_in_log(log, archive_uri)], columns)


def last_clustered(said: Iterable[_Said], columns: Sequence[str]) -> dict[str, datetime]:
    """The same from the user metadata of commits."""
    found: dict[str, datetime] = {}
    for text, at in said:
        written = metadata_with(CLUSTERED, text)
        if at is None or written is None:
            continue
        if written["by"] == list(columns):
            found[written[CLUSTERED]] = max(at, found.get(written[CLUSTERED], at))
    return found


def _in_log(log: TableLog, archive_uri: str) -> Iterator[_Said]:
    archive = open_archive(archive_uri) if archive_uri else None
    return ((c.user_metadata, c.committed_at) for c in uncopied(log, archive))


def _archived(log: TableLog, archive_uri: str) -> Iterator[_Said]:
    archive = open_archive(archive_uri) if archive_uri else None
    if archive is None:
        return
    with storage_failures(archive_uri):
        rows = archive.to_pyarrow_table(
            columns=["user_metadata", "committed_at"],
            filters=[("table_id", "=", log.table_id), ("operation", "=", "OPTIMIZE")],
        )
    for row in rows.to_pylist():
        yield row["user_metadata"], row["committed_at"].astimezone(UTC) if row["committed_at"] else None
