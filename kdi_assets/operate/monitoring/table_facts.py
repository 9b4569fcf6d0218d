"""Facts about a table from its log: drains and dead letters of the last day, freshness, files.

For repeated reading: a table is opened only if it has a newer version, and only new commits are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice, takewhile

from kdi_assets.delta.errors import CommitUnreadable
from kdi_assets.delta.log import CommitInfo, TableLog
from kdi_assets.delta.versions import LatestVersions, LogCache
from kdi_assets.documents.model.stream import Stream
from kdi_assets.operate.monitoring.freshness import QUANTILES, freshness
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.history import live_commits
from kdi_assets.streams.ledger.recent_commits import drains_among

DAY, HOUR = timedelta(hours=24), timedelta(hours=1)
SMALL_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The data files of a table at one version.

    Attributes:
        small: Files below ``SMALL_BYTES`` on dates that have at least two such files, which could be compacted.
    """

    count: int = 0
    bytes: int = 0
    small: int = 0


def data_files(log: TableLog) -> DataFiles:
    """Count the files at the log's version."""
    import pyarrow.compute as pc

    files = log.data_files
    if not files.num_rows:
        return DataFiles()
    small = files.filter(pc.less(files["size_bytes"], SMALL_BYTES))
    places = [name for name in small.column_names if name.startswith("partition.")]
    counts = small.group_by(places).aggregate([("size_bytes", "count")])["size_bytes_count"]
    compactable = pc.sum(counts.filter(pc.greater(counts, 1))).as_py()
    return DataFiles(files.num_rows, pc.sum(files["size_bytes"]).as_py(), compactable or 0)


@dataclass(frozen=True, slots=True)
class TableFacts:
    """Facts from a table's log; ``None`` without a table, or without a drain.

    Attributes:
        drained_at: Time of the newest drain that no RESTORE undid.
        messages: Messages drained within the last 24 hours, of every verdict.
        dead_letters: Dead letters among them.
        messages_1h, dead_letters_1h: The same within the last hour.
        cpu_seconds_today: CPU seconds of the drains since 00:00 UTC, as far as they were recorded.
        deployments: Whose runs drained the table in turns within the last hour; empty if it was one, or one after the
            other.
        freshness: By quantile (0.5, 0.95, 0.99): seconds from a message's timestamp to its row, over the last hour.
    """

    version: int | None = None
    drained_at: datetime | None = None
    messages: int | None = None
    dead_letters: int | None = None
    messages_1h: int = 0
    dead_letters_1h: int = 0
    cpu_seconds_today: float = 0.0
    files: DataFiles | None = None
    deployments: tuple[str, ...] = ()
    freshness: Mapping[float, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Drain:
    """The needed fields of a drain's ledger entry; a whole entry takes ten times the memory."""

    at: datetime
    messages: int
    dead_letters: int
    ages: Mapping[int, int]
    wait_seconds: float
    cpu_seconds: float
    deployment: str  # of a run of Dagster; empty for one of the command line


@dataclass(frozen=True, slots=True)
class _CachedLog:
    table_id: str
    version: int
    drains: tuple[_Drain, ...]  # those of the window and always the newest, the oldest first
    files: DataFiles | None


class TableWatch:
    """Reads the facts of many tables.

    Args:
        files: Counts the files of a table; ``None`` skips the count, the slowest part for a large table.
        window: How far back the log is read; facts over a longer time then cover only this window.
        versions: Shared with a ``BacklogReader``, which knows the idle tables.
    """

    def __init__(
        self,
        *,
        files: Callable[[TableLog], DataFiles] | None = data_files,
        window: timedelta = DAY,
        versions: LatestVersions | None = None,
    ) -> None:
        self._files, self._window = files, window
        self._cache: LogCache[_CachedLog] = LogCache(versions)

    def __call__(self, stream: Stream, lake: str, *, now: datetime) -> TableFacts:
        """The table's facts; empty without a table.

        Raises:
            KdiError: The log cannot be read.
        """
        uri = stream.table_uri(lake)
        seen = self._cache.current(uri) or self._read(uri, stream.app_id, now)
        return TableFacts() if seen is None else _facts(seen, now)

    def _read(self, uri: str, app_id: str, now: datetime) -> _CachedLog | None:
        known = self._cache.last(uri)
        self._cache.forget(uri)
        log = TableLog.open(uri)
        if log is None:
            return None
        drains = _drains(log, app_id, known if known and known.table_id == log.table_id else None, now - self._window)
        seen = _CachedLog(log.table_id, log.version, drains, self._files(log) if self._files else None)
        return self._cache.keep(uri, seen, version=log.version)


def _drains(log: TableLog, app_id: str, known: _CachedLog | None, since: datetime) -> tuple[_Drain, ...]:
    """The drains since a moment, the oldest first; the newest drain if there were none."""
    following = _following(log, known.version) if known else None
    if known is None or following is None:
        newest_first = _drains_in(live_commits(log), app_id)
        drains = [*islice(newest_first, 1), *takewhile(lambda d: d.at >= since, newest_first)][::-1]
    else:
        drains = [*known.drains, *_drains_in(following, app_id)]
    return tuple(d for i, d in enumerate(drains) if d.at >= since or i == len(drains) - 1)


def _following(log: TableLog, version: int) -> list[CommitInfo] | None:
    """The commits after a version; ``None`` if a RESTORE undid earlier ones, or a commit is unreadable."""
    try:
        commits = list(log.commits(after=version))
    except CommitUnreadable:
        return None
    return None if log.version < version or any(c.is_restore for c in commits) else commits


def _drains_in(commits: Iterable[CommitInfo], app_id: str) -> Iterator[_Drain]:
    for drain in drains_among(commits, app_id):
        entry = drain.entry
        counts = entry.messages, entry.dead_letters
        cpu_seconds = entry.cpu_seconds or 0.0
        yield _Drain(drain.committed_at, *counts, entry.ages, drain.seconds, cpu_seconds, run_by(entry))


def run_by(entry: LedgerEntry) -> str:
    """The deployment whose run made the commit; empty for a command, which is part of no deployment."""
    return entry.deployment if entry.run_id else ""


def in_turns(deployments: Iterable[str]) -> tuple[str, ...]:
    """The deployments that drained in turns, sorted; none if each had all its drains one after the other.

    A deployment that moved to another host, or started again with another name, is followed by its new name only.

    Args:
        deployments: Of the drains, oldest first; empty for one of a command.
    """
    turns = [name for name, _ in groupby(filter(None, deployments))]
    return tuple(sorted(set(turns))) if len(turns) > len(set(turns)) else ()


def _facts(seen: _CachedLog, now: datetime) -> TableFacts:
    day = [d for d in seen.drains if d.at >= now - DAY]
    hour = [d for d in day if d.at >= now - HOUR]
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    fresh = freshness((d.ages, d.wait_seconds) for d in hour)
    return TableFacts(
        version=seen.version,
        drained_at=max((d.at for d in seen.drains), default=None),
        messages=sum(d.messages for d in day),
        dead_letters=sum(d.dead_letters for d in day),
        messages_1h=sum(d.messages for d in hour),
        dead_letters_1h=sum(d.dead_letters for d in hour),
        cpu_seconds_today=sum(d.cpu_seconds for d in day if d.at >= midnight),
        files=seen.files,
        deployments=in_turns([d.deployment for d in hour]),
        freshness={s: p for s, p in zip(QUANTILES, (fresh.p50, fresh.p95, fresh.p99), strict=True) if p is not None},
    )
