"""A cache of ledgers for monitoring: a table is read again when it has a newer version. Drains never use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from kdi_assets.delta.log import TableLog
from kdi_assets.delta.versions import LatestVersion, LatestVersions, LogCache
from kdi_assets.documents.model.stream import Stream, TopicPartition
from kdi_assets.errors import KdiError
from kdi_assets.messages.topic_state import TopicState
from kdi_assets.operate.monitoring.backlog import PositionSample
from kdi_assets.streams.drain.snapshot import fresh_ledger
from kdi_assets.streams.ledger.positions import LedgerState
from kdi_assets.streams.ledger.recent_commits import (
    DEFAULT_PACE,
    LedgerCommit,
    Pace,
    bytes_per_offset,
    pace,
    recent_commits,
)


@dataclass(slots=True)
class _CachedLedger:
    topic: tuple[str, int]
    ledger: LedgerState
    letters: LatestVersion | None
    idle_at: Mapping[TopicPartition, int] | None = None
    recent: RecentCommits | None = None


@dataclass(frozen=True, slots=True)
class RecentCommits:
    """A summary of the newest ledger commits; whole entries of many streams would take much memory.

    Attributes:
        window: By topic partition the position after each commit and the planned end, the oldest commit first.
        last_at: Time of the newest commit; ``None`` without commits.
        bytes_per_offset: ``None`` if unknown.
    """

    window: Mapping[TopicPartition, tuple[PositionSample, ...]] = field(default_factory=dict)
    last_at: datetime | None = None
    pace: Pace = DEFAULT_PACE
    bytes_per_offset: float | None = None

    @classmethod
    def of(cls, commits: Sequence[LedgerCommit]) -> RecentCommits:
        window: dict[TopicPartition, tuple[PositionSample, ...]] = {}
        for entry in (commit.entry for commit in commits):
            for tp, position in entry.positions.items():
                window[tp] = (*window.get(tp, ()), PositionSample(position, entry.ends.get(tp)))
        last_at = max((commit.committed_at for commit in commits), default=None)
        return cls(window, last_at, pace(commits), bytes_per_offset(commits))


class LedgerCache:
    """A cached ``fresh_ledger``: opens a table only if its newest version, its topic or its dead letters changed.

    On object storage even the newest version of an idle table is asked for only once a minute: a table with which a
    drain had nothing to do, and whose topic has not moved since.
    """

    def __init__(self, versions: LatestVersions | None = None) -> None:
        self._versions = versions or LatestVersions()
        self._tables: LogCache[_CachedLedger] = LogCache(self._versions)

    def __call__(self, stream: Stream, lake: str, topic: TopicState) -> LedgerState | None:
        """The ledger as ``fresh_ledger`` reads it.

        Raises:
            KdiError: As ``fresh_ledger``; errors are not cached.
        """
        if known := self.current(stream, lake, topic):
            return known
        uri = stream.table_uri(lake)
        self._tables.forget(uri)
        ledger = fresh_ledger(stream, lake, topic)
        if ledger is None:
            return None
        ledger = replace(ledger, log=None)  # an open table keeps the list of its files in memory
        # If dead letters are replaced at this very moment, the next drain finds it: drains read everything themselves.
        cached = _CachedLedger(_identity(topic), ledger, self._letters(stream, lake, ledger))
        self._tables.keep(uri, cached, version=ledger.version)
        return ledger

    def current(self, stream: Stream, lake: str, topic: TopicState) -> LedgerState | None:
        """The cached ledger, always the same object; ``None`` if it must be read."""
        uri, now = stream.table_uri(lake), _identity(topic)
        before = self._tables.last(uri)
        idle = before is not None and before.topic == now and before.idle_at == topic.ends
        self._versions.set_idle(uri, idle=idle)
        self._versions.set_idle(stream.dead_letters_uri(lake), idle=idle)
        known = self._tables.current(uri)
        if known and known.topic == now and known.letters == self._letters(stream, lake, known.ledger):
            return known.ledger
        return None

    def set_idle(self, stream: Stream, lake: str, topic: TopicState, *, idle: bool) -> None:
        """Set whether a drain has nothing to do while the topic has these ends."""
        if known := self._tables.last(stream.table_uri(lake)):
            known.idle_at = topic.ends if idle else None

    def recent(self, stream: Stream, lake: str) -> RecentCommits:
        """The summary of the newest ledger commits; empty if the log cannot be read."""
        known = self._tables.last(stream.table_uri(lake))
        if known and known.recent is not None:
            return known.recent
        try:
            recent = RecentCommits.of(recent_commits(TableLog.open(stream.table_uri(lake)), stream.app_id))
        except KdiError:
            return RecentCommits()
        if known:
            known.recent = recent
        return recent

    def _letters(self, stream: Stream, lake: str, ledger: LedgerState) -> LatestVersion | None:
        at = ledger.dead_letters_at
        return self._versions.of(stream.dead_letters_uri(lake), since=at.version) if at else None


def _identity(topic: TopicState) -> tuple[str, int]:
    """What of a topic decides how its ledger is read."""
    return topic.topic_id, len(topic.partitions)
