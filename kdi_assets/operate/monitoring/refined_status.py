"""Is a refined table up to date: what is new upstream, since when it waits, and why it is refused. No JVM."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kdi_assets.delta.errors import CommitUnreadable
from kdi_assets.delta.log import CommitInfo, TableLog
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.entry import parse_refine_entry
from kdi_assets.follow.refine.plan import RefinePlan, plan_refinement
from kdi_assets.follow.refine.upstream_bookmarks import changes_rows
from kdi_assets.follow.upstream import UpstreamChanges
from kdi_assets.operate.monitoring.checks.finding import CheckResult, level_of_delay
from kdi_assets.wording import duration


@dataclass(frozen=True, slots=True)
class RefinedStatus:
    """What is known of a refined table at one moment.

    Attributes:
        plan: The next refinement; ``None``: it is refused.
        refusal: Why.
        waiting_since: The time of the oldest commit upstream that is not consumed; ``None``: nothing waits, or unknown.
        refined_at: The time of the newest commit of the table; ``None``: there is none.
        late_share: Of the changes that this commit consumed, the share that was older than the rows of their keys.
    """

    table: RefinedTableSpec
    plan: RefinePlan | None = None
    refusal: KdiError | None = None
    waiting_since: datetime | None = None
    refined_at: datetime | None = None
    late_share: float = 0.0

    @property
    def is_behind(self) -> bool:
        """Whether a refinement has something to do."""
        return self.plan is not None and self.plan.kind != "nothing"

    def waiting_seconds(self, now: datetime) -> float | None:
        """How long the oldest commit upstream waits; 0 if nothing waits, ``None`` if unknown."""
        if self.plan is None or (self.is_behind and self.waiting_since is None and not self.plan.only_records):
            return None
        return (now - self.waiting_since).total_seconds() if self.waiting_since else 0.0


def read_refined_status(table: RefinedTableSpec, lake: str) -> RefinedStatus:
    """Read logs only; a refusal is part of the status."""
    try:
        plan = plan_refinement(table, lake)
        waits = min((at for u in plan.upstreams if (at := first_new_commit(u))), default=None)
        newest = _newest_commit(table.table_uri(lake))
        entry = parse_refine_entry(newest.user_metadata, newest.version) if newest else None
        late = entry.late_changes / entry.changes if entry and entry.changes else 0.0
        at = newest.committed_at if newest else None
        return RefinedStatus(table, plan, waiting_since=waits, refined_at=at, late_share=late)
    except KdiError as refusal:
        return RefinedStatus(table, refusal=refusal)


def up_to_date(status: RefinedStatus, now: datetime) -> CheckResult:
    """The check ``up_to_date``: nothing upstream waits for longer than ``freshness`` allows."""
    limits, waits = status.table.freshness, status.waiting_seconds(now)
    if status.refusal:
        return CheckResult("error", status.refusal.message_parts()[0])
    if not status.is_behind:
        return CheckResult("passed", "every version upstream is consumed", {"waiting_seconds": 0.0})
    if waits is None or limits is None:
        return CheckResult("passed", "something is new upstream; it is unknown since when")
    text = f"what is new upstream waits for {duration(waits)}"
    return CheckResult(level_of_delay(waits, limits), text, {"waiting_seconds": round(waits, 1)})


def first_new_commit(changes: UpstreamChanges) -> datetime | None:
    """The time of the first commit with rows that is not consumed; ``None`` if nothing is new, or it is unknown."""
    if changes.kind == "nothing" or changes.since is None:
        return None
    try:
        log = TableLog.existing(changes.uri)
        since = changes.since if changes.begins is None else changes.begins - 1
        commits = log.commits(after=since, through=changes.version)
        return next((c.committed_at for c in commits if changes_rows(log, c)), None)
    except CommitUnreadable:
        return None


def _newest_commit(uri: str) -> CommitInfo | None:
    """A table's newest commit; ``None`` without a table, or if it is unknown."""
    log = TableLog.open(uri)
    try:
        return log.commit(log.version) if log else None
    except CommitUnreadable:
        return None
