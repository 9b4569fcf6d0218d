"""What the commits of tables used by day: CPU seconds, bytes, files, requests, from the entries in their logs. No JVM.

Work that a RESTORE undid counts: it was done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, date

from kdi_assets.delta.log import CommitInfo, TableLog
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.stream import Stream
from kdi_assets.follow.refine.entry import parse_refine_entry
from kdi_assets.settings import Prices
from kdi_assets.streams.ledger.entry import Kind, LedgerEntry
from kdi_assets.streams.ledger.entry_json import parse_entry
from kdi_assets.streams.ledger.history import walk_back

WITH_CPU_SECONDS: tuple[Kind, ...] = ("drain", "replay", "discard")
GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What commits used.

    Attributes:
        commits: Those of ours, and compactions.
        unmeasured: Drains, replays, refinements and compactions among them without CPU seconds.
        read_bytes: Keys and values that drains read, uncompressed.
        written_bytes, files: Size and number of the data files that they added to the table.
        puts: Requests that put these files and the log's entries, one each.
    """

    commits: int = 0
    unmeasured: int = 0
    cpu_seconds: float = 0.0
    read_bytes: int = 0
    written_bytes: int = 0
    files: int = 0

    @property
    def puts(self) -> int:
        return self.files + self.commits

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def cost(self, prices: Prices) -> float:
        """The sum of the quantities times their prices."""
        return (
            prices.cpu_second * self.cpu_seconds
            + prices.gb_read * self.read_bytes / GB
            + prices.gb_written * self.written_bytes / GB
            + prices.put * self.puts
        )


@dataclass(frozen=True, slots=True)
class TableUsage:
    """What one table's commits used.

    Attributes:
        by_day: By the UTC day of the commits.
        complete: Whether every commit of the days could be read, in the log or its archive.
    """

    by_day: Mapping[date, Usage]
    complete: bool


def table_usage(table: Stream | RefinedTableSpec, lake: str, *, first: date, last: date) -> TableUsage:
    """Add up a table's commits from the first to the last day, both inclusive, in UTC; none without a table.

    Raises:
        KdiError: The log cannot be read, or a newer release wrote an entry.
    """
    log = TableLog.open(table.table_uri(lake))
    by_day: defaultdict[date, Usage] = defaultdict(Usage)
    if log is None:
        return TableUsage({}, complete=True)
    archive = table.archive_uri(lake) if isinstance(table, Stream) else ""
    complete, reached = True, log.version + 1
    for commit in walk_back(log, archive):
        reached = commit.version
        if commit.info is None:
            complete = False
        elif commit.info.committed_at is not None:
            day = commit.info.committed_at.astimezone(UTC).date()
            if day < first:
                return TableUsage(dict(by_day), complete)
            if day <= last and (usage := usage_of(commit.info, table)):
                by_day[day] += usage
    return TableUsage(dict(by_day), complete and reached == 0)


def usage_of(commit: CommitInfo, table: Stream | RefinedTableSpec) -> Usage | None:
    """What a commit used; ``None`` of another writer's.

    Raises:
        WrittenByNewerRelease, RefinedByNewerRelease: This release does not know the entry's format.
    """
    if commit.operation == "OPTIMIZE":
        files, size = (int(commit.metrics.get(name, 0)) for name in ("numAddedFiles", "numAddedBytes"))
        return Usage(commits=1, unmeasured=1, written_bytes=size, files=files)
    if isinstance(table, Stream):
        entry = parse_entry(commit.user_metadata, commit.version, table.app_id)
        return usage_of_entry(entry) if entry else None
    refined = parse_refine_entry(commit.user_metadata, commit.version)
    if refined is None:
        return None
    return Usage(
        commits=1,
        unmeasured=int(refined.cpu_seconds is None and refined.kind != "nothing"),
        cpu_seconds=refined.cpu_seconds or 0.0,
        written_bytes=refined.bytes_added,
        files=refined.files_added,
    )


def usage_of_entry(entry: LedgerEntry) -> Usage:
    """What a ledger commit used."""
    return Usage(
        commits=1,
        unmeasured=int(entry.cpu_seconds is None and entry.kind in WITH_CPU_SECONDS),
        cpu_seconds=entry.cpu_seconds or 0.0,
        read_bytes=entry.message_bytes,
        written_bytes=entry.bytes,
        files=entry.files_added,
    )
