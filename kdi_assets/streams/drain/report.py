"""What a drain did: one commit, commits added up, the report of a whole drain, and other systems that hear of it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from datetime import date
from typing import TYPE_CHECKING

from kdi_assets.documents.model.stream import Stream, TopicPartition
from kdi_assets.follow.listeners.listening import listening
from kdi_assets.streams.ledger.entry import FieldCounts, LedgerEntry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Commit(LedgerEntry):
    """A committed plan: its ledger entry, with the version of the table.

    Attributes:
        took_seconds: From the plan to the commit; ``None`` if the commit was read from the log.
    """

    took_seconds: float | None = None

    @classmethod
    def of(cls, entry: LedgerEntry, *, took_seconds: float | None = None) -> Commit:
        """The commit of a ledger entry."""
        return cls(**{f.name: getattr(entry, f.name) for f in fields(entry)}, took_seconds=took_seconds)

    @property
    def touched(self) -> list[date]:
        """The dates that gained or lost rows."""
        rows, removed = self.rows_by_date, self.removed_by_date
        return sorted(day for day in {*rows, *removed} if rows.get(day) or removed.get(day))

    @property
    def offset_count(self) -> int:
        return sum(r.range.offset_count for r in self.ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """Commits of one stream, the oldest first, added up."""

    commits: tuple[Commit, ...] = ()

    @property
    def version(self) -> int | None:
        """The newest table version among them."""
        return self.commits[-1].version if self.commits else None

    @property
    def rows_added(self) -> int:
        return sum(c.rows for c in self.commits)

    @property
    def rows_by_date(self) -> dict[date, int]:
        rows: Counter[date] = Counter()
        for commit in self.commits:
            rows.update(commit.rows_by_date)
        return dict(sorted(rows.items()))

    @property
    def dead_letters(self) -> int:
        return sum(c.dead_letters for c in self.commits)

    @property
    def tombstones(self) -> int:
        return sum(c.tombstones for c in self.commits)

    @property
    def filtered(self) -> int:
        return sum(c.filtered for c in self.commits)

    @property
    def gaps(self) -> int:
        """Offsets without a message."""
        return sum(c.gap_offsets for c in self.commits)

    @property
    def bytes(self) -> int:
        """Size of the files."""
        return sum(c.bytes for c in self.commits)

    @property
    def unmet(self) -> dict[str, int]:
        """Messages that did not meet an expectation, by expectation."""
        unmet: Counter[str] = Counter()
        for commit in self.commits:
            unmet.update(commit.unmet)
        return dict(unmet)

    @property
    def unknown(self) -> FieldCounts:
        """Fields of messages that the record does not have."""
        return sum((commit.unknown for commit in self.commits), FieldCounts())

    @property
    def misfits(self) -> FieldCounts:
        """Fields left out because their values do not fit the type."""
        return sum((commit.misfits for commit in self.commits), FieldCounts())


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainReport(Commits):
    """What one drain did: a commit for each plan, none if there was no backlog.

    Attributes:
        position_commits: The reasons of the position commits.
        positions: Next offset of every topic partition at the end.
        backlog_before: Offsets of the backlog at the first snapshot.
        backlog_after: The same at the last snapshot: offsets that came during the drain.
        lag_seconds: Age of the oldest message of the backlog at the first plan; ``None`` without one.
        cpu_seconds: As ``CpuClock`` counts them, from the first snapshot to the last.
        taken_by_another: Whether other commits came first, and left nothing to commit.
    """

    stream: str
    positions: Mapping[TopicPartition, int]
    backlog_before: int
    backlog_after: int
    position_commits: tuple[str, ...] = ()
    lag_seconds: float | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    taken_by_another: bool = False


@contextmanager
def heard_by_listeners(
    kind: str,
    stream: Stream,
    lake: str,
    session: Callable[[], SparkSession],
    *,
    run_id: str = "",
    kept_failure: Callable[[], BaseException | None] = lambda: None,
    report: Callable[[str], None] = log.info,
) -> Iterator[Callable[[LedgerEntry], None]]:
    """Let others hear of a run: OpenLineage and the catalog if one of them is configured, and the consumers of the
    table's files if the stream announces them. They never make it fail.

    Args:
        kind: ``drain``, ``replay`` or ``discard``.
        report: Called with a line about announcements.
        kept_failure: Gives the failure of a body that does not raise it.

    Yields:
        What to call with every commit of the run.
    """
    with ExitStack() as hearing:
        if stream.announce:
            from kdi_assets.streams.announce.announce import announced_after

            hearing.enter_context(announced_after(stream, lake, report))
        yield hearing.enter_context(listening(kind, stream, lake, session, run_id=run_id, kept_failure=kept_failure))
