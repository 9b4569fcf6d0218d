"""Ledgers of many tables, read again when a table has a newer version; for monitoring, never for drains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from kdi_assets.drain.snapshot import fresh_ledger
from kdi_assets.errors import KdiError
from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.ledger.latest_version import LatestVersion, LatestVersions, LogCache
from kdi_assets.ledger.positions import LedgerState
from kdi_assets.ledger.recent_commits import DEFAULT_PACE, LedgerCommit, Pace, bytes_per_offset, pace, recent_commits
from kdi_assets.monitoring.backlog import PositionSample
from kdi_assets.sources.kafka.topic import TopicState
from kdi_assets.stream.stream import Stream, TopicPartition


@dataclass(slots=True)
class _Known:
    asked: tuple[str, int]
    ledger: LedgerState
    letters: LatestVersion | None
    recent: Recent | None = None


@dataclass(frozen=True, slots=True)
class Recent:
    """What the newest ledger commits say of a stream, and no more of them: whole entries of a thousand are much.

    Attributes:
        window: Per topic partition its position after each commit and its end at the plan, the oldest first.
        last_at: When the newest was committed; ``None`` without any.
        bytes_per_offset: ``None`` if no commit tells.
    """

    window: Mapping[TopicPartition, tuple[PositionSample, ...]] = field(default_factory=dict)
    last_at: datetime | None = None
    pace: Pace = DEFAULT_PACE
    bytes_per_offset: float | None = None

    @classmethod
    def of(cls, commits: Sequence[LedgerCommit]) -> Recent:
        window: dict[TopicPartition, tuple[PositionSample, ...]] = {}
        for entry in (commit.entry for commit in commits):
            for tp, position in entry.positions.items():
                window[tp] = (*window.get(tp, ()), PositionSample(position, entry.ends.get(tp)))
        last_at = max((commit.committed_at for commit in commits), default=None)
        return cls(window, last_at, pace(commits), bytes_per_offset(commits))


class LedgerCache:
    """``fresh_ledger`` for who looks again and again: opens a table only if its newest version is another."""

    def __init__(self) -> None:
        self._tables: LogCache[_Known] = LogCache()
        self._marks = LatestVersions()

    def __call__(self, stream: Stream, lake: str, topic: TopicState) -> LedgerState | None:
        """The ledger as ``fresh_ledger`` answers it.

        Raises:
            KdiError: As there; a refusal is not remembered.
        """
        uri, asked = stream.table_uri(lake), (topic.topic_id, len(topic.partitions))
        known = self._tables.current(uri)
        if known and known.asked == asked and known.letters == self._letters(stream, lake, known.ledger):
            return known.ledger
        self._tables.forget(uri)
        ledger = fresh_ledger(stream, lake, topic)
        if ledger is None:
            return None
        ledger = replace(ledger, log=None)  # an open table keeps the list of its files in memory
        # Letters that were taken in the same moment, a drain finds: it reads everything anew.
        self._tables.keep(uri, _Known(asked, ledger, self._letters(stream, lake, ledger)), version=ledger.version)
        return ledger

    def recent(self, stream: Stream, lake: str) -> Recent:
        """What the newest ledger commits say; nothing where the log cannot be read."""
        known = self._tables.last(stream.table_uri(lake))
        if known and known.recent is not None:
            return known.recent
        try:
            recent = Recent.of(recent_commits(TableLog.open(stream.table_uri(lake)), stream.app_id))
        except KdiError:
            return Recent()
        if known:
            known.recent = recent
        return recent

    def _letters(self, stream: Stream, lake: str, ledger: LedgerState) -> LatestVersion | None:
        at = ledger.dead_letters_at
        return self._marks.of(stream.dead_letters_uri(lake), since=at.version) if at else None
