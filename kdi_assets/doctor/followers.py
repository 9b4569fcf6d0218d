"""Refined, served and announced tables: can what is new upstream be read, and does the database or topic answer?"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from kdi_assets.doctor.finding import Finding, fine, warning, wrong
from kdi_assets.monitoring.follower_rows import FollowedTable, in_embedded_server, read_follower_rows
from kdi_assets.settings import Settings
from kdi_assets.wording import counted, duration, kind_in_words


def follower(table: FollowedTable, settings: Settings) -> Iterator[Finding]:
    """Whether a run of the table would find everything: as `kdi status` reads it, without Spark."""
    if in_embedded_server(table):
        yield fine("served", table.name, "in the embedded server; not asked, because a look would start it")
        return
    (row,) = read_follower_rows([table], lake=settings.lake, home=settings.home, now=datetime.now(UTC))
    examination = row.kind.value
    if row.refusal:
        verdict = warning if row.has_not_begun else wrong
        yield verdict(examination, row.name, row.refusal, kind_in_words(row.refusal))
        return
    waits = f", the oldest for {duration(row.waiting_seconds)}" if row.behind and row.waiting_seconds else ""
    found = f"{counted(row.behind, 'version')} behind{waits}" if row.behind else f"behind: {row.new}"
    if not row.new:
        found = "not begun: there is no table yet" if row.has_not_begun else "up to date"
    yield fine(examination, row.name, found, behind=row.behind, waiting_seconds=row.waiting_seconds)
