"""The newest ledger commits of the rows that are there: how fast, how large and how steadily the stream is drained."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, takewhile

from kdi_assets.ledger.commit_info import CommitInfo
from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.ledger.entry import MOVING_NOTHING, Kind, LedgerEntry, entry_of
from kdi_assets.ledger.history import live_commits

WINDOW = 10
"""Burrow judges by so many commits as well."""
COMMITS_READ = 50


@dataclass(frozen=True, slots=True)
class LedgerCommit:
    """A ledger entry and when its writer's clock says it was committed, UTC."""

    entry: LedgerEntry
    committed_at: datetime

    @property
    def seconds(self) -> float:
        """From the plan to the commit; 0 where no plan was recorded."""
        planned = self.entry.planned_at
        return 0.0 if planned is None else max(0.0, (self.committed_at - planned).total_seconds())


def recent_commits(
    log: TableLog | None, app_id: str, *, without: Collection[Kind] = MOVING_NOTHING
) -> tuple[LedgerCommit, ...]:
    """The newest ledger commits, at most ``WINDOW``, the oldest first; foreign commits between them are few, or hide
    some.

    Args:
        without: Kinds that are passed over besides those that only carry positions on; replays say nothing of how the
            stream is drained.

    Raises:
        KdiError: The log cannot be read.
    """
    passed_over = ("renewal", "routes", *without)
    commits = ledger_commits(islice(live_commits(log), COMMITS_READ), app_id) if log else iter(())
    return tuple(islice((c for c in commits if c.entry.kind not in passed_over), WINDOW))[::-1]


def drains_since(log: TableLog, app_id: str, moment: datetime) -> tuple[LedgerCommit, ...]:
    """The drains among the live rows that were committed at ``moment`` or later, the oldest first.

    As far as the log can be read; what a RESTORE undid is not among them.
    """
    newer = takewhile(lambda c: c.committed_at is None or c.committed_at >= moment, live_commits(log))
    return tuple(drains_among(newer, app_id))[::-1]


def drains_among(commits: Iterable[CommitInfo], app_id: str) -> Iterator[LedgerCommit]:
    """Those of the commits that are drains of the stream and say when they were made, in their order."""
    return (c for c in ledger_commits(commits, app_id) if c.entry.kind == "drain")


def ledger_commits(commits: Iterable[CommitInfo], app_id: str) -> Iterator[LedgerCommit]:
    """Those of the commits that are the stream's ledger's and say when they were made, in their order."""
    for commit in commits:
        entry = entry_of(commit.user_metadata, commit.version, app_id)
        if entry is not None and commit.committed_at is not None:
            yield LedgerCommit(entry, commit.committed_at)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long drains take: so many seconds whatever they hold, and so many offsets a second."""

    fixed_seconds: float
    offsets_per_second: float

    def seconds_for(self, offsets: int) -> float:
        """Expected seconds of a drain."""
        return self.fixed_seconds + offsets / self.offsets_per_second

    def seconds_to_close(self, offsets: int, *, arrival_rate: float) -> float:
        """Expected seconds until a drain of what waits, and of what arrives meanwhile, ends; infinite if it never does.

        Args:
            arrival_rate: Offsets a second.
        """
        share = arrival_rate / self.offsets_per_second
        return self.seconds_for(offsets) / (1 - share) if share < 1 else math.inf


USUAL_PACE = Pace(fixed_seconds=2.0, offsets_per_second=20_000.0)
"""Of a stream that was not drained yet; a cautious guess."""
LARGE = 10_000
"""Offsets from which on a drain says something about the offsets, and not only about its fixed part."""


def pace(commits: Iterable[LedgerCommit]) -> Pace:
    """The pace of some drains; what they do not tell is that of ``USUAL_PACE``."""
    drains = [
        (sum(r.range.offset_count for r in c.entry.ranges), c.seconds)
        for c in commits
        if c.entry.planned_at is not None and c.entry.ranges
    ]
    fixed = min([seconds for _, seconds in drains], default=USUAL_PACE.fixed_seconds)
    fixed = min(max(fixed, 0.1), USUAL_PACE.fixed_seconds)
    rates = [offsets / max(seconds - fixed, 0.1) for offsets, seconds in drains if offsets >= LARGE]
    return Pace(fixed, max(rates, default=USUAL_PACE.offsets_per_second))


def bytes_per_offset(commits: Iterable[LedgerCommit]) -> float | None:
    """Bytes of keys and values, uncompressed, that an offset has on average; ``None`` if no commit tells."""
    told = [c.entry for c in commits if c.entry.message_bytes]
    offsets = sum(r.range.offset_count for entry in told for r in entry.ranges)
    return sum(entry.message_bytes for entry in told) / offsets if offsets else None


def bytes_to_expect(commits: Sequence[LedgerCommit]) -> float | None:
    """The same, for who must not expect too little: of all of them, or of the newest that tells, whichever is more."""
    told = [c for c in commits if c.entry.message_bytes]
    return max((b for b in (bytes_per_offset(told), bytes_per_offset(told[-1:])) if b is not None), default=None)
