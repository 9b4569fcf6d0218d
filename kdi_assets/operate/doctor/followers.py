"""Refined, served and announced tables: can what is new upstream be read, and does the database or topic answer?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from kdi_assets.operate.doctor.finding import Finding, fine, warning, wrong
from kdi_assets.operate.monitoring.follower_rows import FollowedTable, FollowerRow, read_follower_rows
from kdi_assets.settings import Settings
from kdi_assets.wording import counted, duration, kind_in_words

ANNOUNCED_SECONDS = 12.0
"""Less than an examination may take, so that each table has its finding and not all of them the time limit's."""


def followers(tables: Sequence[FollowedTable], settings: Settings) -> Iterator[Finding]:
    """Whether runs of the tables would find everything: as `kdi status` reads it, without Spark."""
    lake, home, now = settings.lake, settings.home, datetime.now(UTC)
    for row in read_follower_rows(tables, lake=lake, home=home, now=now, seconds=ANNOUNCED_SECONDS):
        yield _finding(row)


def _finding(row: FollowerRow) -> Finding:
    examination = row.kind.value
    if not row.server_runs:
        return fine(examination, row.name, "in the embedded server, which does not run; a run starts it")
    if row.refusal:
        verdict = warning if row.has_not_begun else wrong
        return verdict(examination, row.name, row.refusal, kind_in_words(row.refusal))
    waits = f", the oldest for {duration(row.waiting_seconds)}" if row.behind and row.waiting_seconds else ""
    found = f"{counted(row.behind, 'version')} behind{waits}" if row.behind else f"behind: {row.new}"
    if not row.new:
        found = "not begun: there is no table yet" if row.has_not_begun else "up to date"
    return fine(examination, row.name, found, behind=row.behind, waiting_seconds=row.waiting_seconds)
