"""The newest live ledger commits: how fast and how regularly the stream is drained, and how large messages are."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, takewhile

from kdi_assets.delta.log import CommitInfo, TableLog
from kdi_assets.streams.ledger.entry import BELOW_POSITIONS, Kind, LedgerEntry
from kdi_assets.streams.ledger.entry_json import parse_entry
from kdi_assets.streams.ledger.history import live_commits

WINDOW = 10
"""Commits that decide about the state of a stream; Burrow uses the same number."""
COMMITS_READ = 50


@dataclass(frozen=True, slots=True)
class LedgerCommit:
    """A ledger entry, and when it was committed by its writer's clock, UTC."""

    entry: LedgerEntry
    committed_at: datetime

    @property
    def seconds(self) -> float:
        """From the plan to the commit; 0 if the entry has no plan."""
        planned = self.entry.planned_at
        return 0.0 if planned is None else max(0.0, (self.committed_at - planned).total_seconds())


def recent_commits(
    log: TableLog | None, app_id: str, *, excluding: Collection[Kind] = BELOW_POSITIONS
) -> tuple[LedgerCommit, ...]:
    """The newest ledger commits, oldest first: at most ``WINDOW``, among the newest ``COMMITS_READ`` commits.

    Args:
        excluding: Kinds to leave out, besides those that only repeat positions; a replay does not show how the stream
            is drained.

    Raises:
        KdiError: The log cannot be read.
    """
    excluded = ("renewal", "routes", *excluding)
    commits = ledger_commits(islice(live_commits(log), COMMITS_READ), app_id) if log else iter(())
    return tuple(islice((c for c in commits if c.entry.kind not in excluded), WINDOW))[::-1]


def drains_since(
    log: TableLog, app_id: str, moment: datetime, *, newest: int | None = None
) -> tuple[LedgerCommit, ...]:
    """The live drains that were committed at ``moment`` or later, oldest first, as far as the log can be read.

    Args:
        newest: How many of the newest commits are read at most.
    """
    commits = islice(live_commits(log), newest)
    newer = takewhile(lambda c: c.committed_at is None or c.committed_at >= moment, commits)
    return tuple(drains_among(newer, app_id))[::-1]


def drains_among(commits: Iterable[CommitInfo], app_id: str) -> Iterator[LedgerCommit]:
    """The stream's drains among the commits, in their order; commits without a time are left out."""
    return (c for c in ledger_commits(commits, app_id) if c.entry.kind == "drain")


def ledger_commits(commits: Iterable[CommitInfo], app_id: str) -> Iterator[LedgerCommit]:
    """The stream's ledger commits among the commits, in their order; commits without a time are left out."""
    for commit in commits:
        entry = parse_entry(commit.user_metadata, commit.version, app_id)
        if entry is not None and commit.committed_at is not None:
            yield LedgerCommit(entry, commit.committed_at)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long drains take: a fixed part in seconds, and a rate in offsets per second."""

    fixed_seconds: float
    offsets_per_second: float

    def seconds_for(self, offsets: int) -> float:
        """Expected seconds of a drain."""
        return self.fixed_seconds + offsets / self.offsets_per_second

    def seconds_to_close(self, offsets: int, *, arrival_rate: float) -> float:
        """Expected seconds to drain a backlog and what arrives meanwhile; infinite if it never ends.

        Args:
            arrival_rate: Offsets per second.
        """
        share = arrival_rate / self.offsets_per_second
        return self.seconds_for(offsets) / (1 - share) if share < 1 else math.inf


DEFAULT_PACE = Pace(fixed_seconds=2.0, offsets_per_second=20_000.0)
"""A cautious guess for a stream that was not drained yet."""
LARGE_DRAIN_OFFSETS = 10_000
"""A drain with at least this many offsets shows the rate, and not only the fixed part."""


def pace(commits: Iterable[LedgerCommit]) -> Pace:
    """The pace of some drains; a part that they do not show is taken from ``DEFAULT_PACE``."""
    drains = [
        (sum(r.range.offset_count for r in c.entry.ranges), c.seconds)
        for c in commits
        if c.entry.planned_at is not None and c.entry.ranges
    ]
    fixed = min([seconds for _, seconds in drains], default=DEFAULT_PACE.fixed_seconds)
    fixed = min(max(fixed, 0.1), DEFAULT_PACE.fixed_seconds)
    rates = [offsets / max(seconds - fixed, 0.1) for offsets, seconds in drains if offsets >= LARGE_DRAIN_OFFSETS]
    return Pace(fixed, max(rates, default=DEFAULT_PACE.offsets_per_second))


def bytes_per_offset(commits: Iterable[LedgerCommit]) -> float | None:
    """Average bytes of key and value per offset, uncompressed; ``None`` if no commit recorded bytes."""
    entries = [c.entry for c in commits if c.entry.message_bytes]
    offsets = sum(r.range.offset_count for entry in entries for r in entry.ranges)
    return sum(entry.message_bytes for entry in entries) / offsets if offsets else None


def bytes_to_expect(commits: Sequence[LedgerCommit]) -> float | None:
    """``bytes_per_offset`` of all commits or of the newest one, whichever is more: a limit must not be exceeded."""
    recorded = [c for c in commits if c.entry.message_bytes]
    return max(
        (b for b in (bytes_per_offset(recorded), bytes_per_offset(recorded[-1:])) if b is not None), default=None
    )
