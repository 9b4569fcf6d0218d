"""What a table's log says of the last day: when it was drained, its dead letters, how fresh it was, its files.

For who looks again and again: a table is opened only if its log has moved on, and of the log only what is new is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice, takewhile

from kdi_assets.ledger.delta_log import CommitInfo, TableLog
from kdi_assets.ledger.errors import CommitUnreadable
from kdi_assets.ledger.history import live_commits
from kdi_assets.ledger.latest_version import LogCache
from kdi_assets.ledger.recent_commits import drains_among
from kdi_assets.monitoring.freshness import QUANTILES, freshness
from kdi_assets.stream.stream import Stream

DAY, HOUR = timedelta(hours=24), timedelta(hours=1)
SMALL_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The data files of a table at one version.

    Attributes:
        small: Files below ``SMALL_BYTES`` that another such file shares the date with: those that could be one. A date
            with a single small file has what it needs.
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
    together = small.group_by(places).aggregate([("size_bytes", "count")])["size_bytes_count"]
    shared = pc.sum(together.filter(pc.greater(together, 1))).as_py()
    return DataFiles(files.num_rows, pc.sum(files["size_bytes"]).as_py(), shared or 0)


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What a table's log says; ``None`` where there is no table, or nothing of the kind happened.

    Attributes:
        drained_at: When the newest drain among the live rows was committed.
        messages: Messages of the drains committed within the last 24 hours, whatever became of them.
        dead_letters: Those of them that are dead letters.
        messages_1h, dead_letters_1h: The same within the last hour.
        freshness: Of the drains within the last hour: by share (0.5, 0.95, 0.99) the seconds within which so many
            messages were in the table, counted from their timestamps.
    """

    version: int | None = None
    drained_at: datetime | None = None
    messages: int | None = None
    dead_letters: int | None = None
    messages_1h: int = 0
    dead_letters_1h: int = 0
    files: DataFiles | None = None
    freshness: Mapping[float, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Drain:
    """What is kept of a drain's ledger entry; the entry itself is ten times as large."""

    at: datetime
    messages: int
    dead_letters: int
    ages: Mapping[int, int]
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class _SeenLog:
    table_id: str
    version: int
    drains: tuple[_Drain, ...]  # of the time that counts and the newest one, the oldest first
    files: DataFiles | None


class TableWatch:
    """The facts of many tables.

    Args:
        files: Counts the files of a table; ``None`` where nobody asks for them: of a large table it takes the longest.
        window: How far back the log is read; what counts a longer time then counts no more than this.
    """

    def __init__(self, *, files: Callable[[TableLog], DataFiles] | None = data_files, window: timedelta = DAY) -> None:
        self._files, self._window = files, window
        self._cache: LogCache[_SeenLog] = LogCache()

    def __call__(self, stream: Stream, lake: str, *, now: datetime) -> TableFacts:
        """The table's facts; empty ones if there is no table.

        Raises:
            KdiError: The log cannot be read.
        """
        uri = stream.table_uri(lake)
        seen = self._cache.current(uri) or self._read(uri, stream.app_id, now)
        return TableFacts() if seen is None else _facts(seen, now)

    def _read(self, uri: str, app_id: str, now: datetime) -> _SeenLog | None:
        known = self._cache.last(uri)
        self._cache.forget(uri)
        log = TableLog.open(uri)
        if log is None:
            return None
        drains = _drains(log, app_id, known if known and known.table_id == log.table_id else None, now - self._window)
        seen = _SeenLog(log.table_id, log.version, drains, self._files(log) if self._files else None)
        return self._cache.keep(uri, seen, version=log.version)


def _drains(log: TableLog, app_id: str, known: _SeenLog | None, since: datetime) -> tuple[_Drain, ...]:
    """The drains since then, the oldest first; the newest one if there was none."""
    following = _following(log, known.version) if known else None
    if known is None or following is None:
        newest_first = _drains_in(live_commits(log), app_id)
        drains = [*islice(newest_first, 1), *takewhile(lambda d: d.at >= since, newest_first)][::-1]
    else:
        drains = [*known.drains, *_drains_in(following, app_id)]
    return tuple(d for i, d in enumerate(drains) if d.at >= since or i == len(drains) - 1)


def _following(log: TableLog, version: int) -> list[CommitInfo] | None:
    """The commits behind a version; ``None`` if what came before counts no more: undone by a RESTORE, or unreadable."""
    try:
        commits = list(log.commits(after=version))
    except CommitUnreadable:
        return None
    return None if log.version < version or any(c.is_restore for c in commits) else commits


def _drains_in(commits: Iterable[CommitInfo], app_id: str) -> Iterator[_Drain]:
    for drain in drains_among(commits, app_id):
        entry = drain.entry
        yield _Drain(drain.committed_at, entry.messages, entry.dead_letters, entry.ages, drain.seconds)


def _facts(seen: _SeenLog, now: datetime) -> TableFacts:
    day = [d for d in seen.drains if d.at >= now - DAY]
    hour = [d for d in day if d.at >= now - HOUR]
    fresh = freshness((d.ages, d.wait_seconds) for d in hour)
    return TableFacts(
        version=seen.version,
        drained_at=max((d.at for d in seen.drains), default=None),
        messages=sum(d.messages for d in day),
        dead_letters=sum(d.dead_letters for d in day),
        messages_1h=sum(d.messages for d in hour),
        dead_letters_1h=sum(d.dead_letters for d in hour),
        files=seen.files,
        freshness={s: p for s, p in zip(QUANTILES, (fresh.p50, fresh.p95, fresh.p99), strict=True) if p is not None},
    )
