"""Every commit of a refined table in words, also commits that a RESTORE undid. No JVM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.follow.refine.entry import RefineEntry, parse_refine_entry
from kdi_assets.operate.monitoring.commit_history import of_other_writer
from kdi_assets.streams.ledger.history import walk_back
from kdi_assets.wording import counted


@dataclass(frozen=True, slots=True)
class RefinedCommit:
    """One commit.

    Attributes:
        operation: ``refine`` or ``expire``; Delta's operation for another writer's commit; or ``unreadable``.
        live: Whether its rows are in the table: false if a RESTORE undid it, ``None`` if unknown.
        entry: ``None`` for another writer's commit.
    """

    version: int
    committed_at: datetime | None
    operation: str
    live: bool | None
    description: str
    entry: RefineEntry | None = None


def refined_history(table: RefinedTableSpec, lake: str) -> Iterator[RefinedCommit]:
    """The commits in the table's log, the newest first; none without a table. Lazy.

    Raises:
        KdiError: The log cannot be read.
    """
    log = TableLog.open(table.table_uri(lake))
    if log is None:
        return
    for commit in walk_back(log):
        if commit.info is None:
            yield RefinedCommit(commit.version, None, "unreadable", commit.live, f"the commit {commit.why}")
        elif entry := parse_refine_entry(commit.info.user_metadata, commit.version):
            at = commit.info.committed_at
            operation = "expire" if entry.kind == "expire" else "refine"
            yield RefinedCommit(commit.version, at, operation, commit.live, _in_words(entry), entry)
        else:
            at, operation = commit.info.committed_at, commit.info.operation or "?"
            yield RefinedCommit(commit.version, at, operation, commit.live, of_other_writer(commit.info))


def _in_words(entry: RefineEntry) -> str:
    if entry.kind == "nothing":
        return "the table was created"
    if entry.kind == "expire":
        removed = counted(len(entry.removed_by_date), "date")
        return f"rows of {removed} before {entry.kept_from} left: {counted(entry.rows_removed, 'row')} removed"
    consumed = ", ".join(f"{c.table} {c.versions}" for c in entry.upstreams)
    rows = f"{counted(entry.rows_added, 'row')} added, {entry.rows_removed:,} removed"
    dates = f" on {counted(len(entry.dates), 'date')}" if entry.dates else ""
    why = f"{entry.kind}: {entry.why}; " if entry.why else f"{entry.kind}; "
    return f"{why}{rows}{dates}; {consumed}"
