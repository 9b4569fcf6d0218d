"""Positions never go back, unless a RESTORE or somebody's decision says why, at once or later."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice, takewhile

from kdi_assets.checks.finding import Finding
from kdi_assets.checks.subject import Subject
from kdi_assets.ledger.archive import Archive
from kdi_assets.ledger.commit_info import CommitInfo
from kdi_assets.ledger.entry import LedgerEntry, entry_of
from kdi_assets.ledger.history import walk_back
from kdi_assets.ledger.log import TableLog
from kdi_assets.ledger.state import RETIRED, positions_in
from kdi_assets.stream import Stream, TopicPartition

COMMITS = 2_000
"""So many of the newest are read: reading one takes a fraction of a millisecond."""
EXPLAINED = ("restore", "resolve")


@dataclass(frozen=True, slots=True)
class StepBack:
    """A commit that set a position below one that was committed before."""

    topic_partition: TopicPartition
    before: int
    after: int
    version: int

    def __str__(self) -> str:
        return f"v{self.version} set {self.topic_partition} back from {self.before} to {self.after}"


def positions_never_go_back(subject: Subject) -> Finding:
    """Whether a commit set a position below an earlier one although no RESTORE stands there and no `kdi resolve`
    there or behind it."""
    if subject.log is None:
        return Finding("passed", "there is no table yet")
    stream, commits = subject.stream, _newest(subject.log, subject.stream.archive_uri(subject.lake))
    back = steps_back(commits, stream)
    numbers = {"commits_read": len(commits), "steps_back": len(back)}
    if not back:
        return Finding("passed", f"no position went back in the newest {len(commits):,} commits", numbers)
    said = f"{back[0]}, and neither a RESTORE nor `kdi resolve` answers it: what follows is drained a second time"
    return Finding("error", said, numbers, {"steps back": tuple(map(str, back[:20]))})


def steps_back(commits: Iterable[CommitInfo], stream: Stream) -> list[StepBack]:
    """The steps that nothing explains, and that nobody has decided about since.

    Args:
        commits: The oldest first; other writers' too, of which the transaction ids tell.
    """
    at: dict[TopicPartition, int] = {}
    found = []
    for commit in commits:
        entry = entry_of(commit.user_metadata, commit.version, stream.app_id)
        positions = dict(entry.positions) if entry else positions_in(commit.transactions, stream)
        if not (entry and entry.kind in EXPLAINED):
            lower = ((tp, at[tp], p) for tp, p in sorted(positions.items()) if p < at.get(tp, p) and p != RETIRED)
            found += [StepBack(tp, before, after, commit.version) for tp, before, after in lower]
        decided = _decided(entry) if entry and entry.kind == "resolve" else frozenset()
        found = [step for step in found if step.topic_partition not in decided]
        at.update(positions)
        at = {tp: p for tp, p in at.items() if p != RETIRED}
    return found


def _decided(entry: LedgerEntry) -> frozenset[TopicPartition]:
    """Of which topic partitions somebody decided the positions: of all, but a loss says nothing of those without it."""
    return frozenset(lost.topic_partition for lost in entry.declared_losses) or frozenset(entry.positions)


def _newest(log: TableLog, archive_uri: str) -> list[CommitInfo]:
    """Undone ones too, the oldest first, as far back as they can be read."""
    newest = islice(walk_back(log, Archive(archive_uri, log.table_id)), COMMITS)
    return [c.info for c in takewhile(lambda c: c.info, newest) if c.info][::-1]
