"""What a tick says: why it started what it started, and why nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from kdi_assets.drain.backlog import Backlog
from sensors.policy import Decision

LISTED = 20
"""Streams that a line names; a tick of hundreds must stay readable."""


def explain(decision: Decision) -> str:
    """One line per group that has streams, and one per refusal; the first names the largest backlog."""
    idle = (
        *decision.below,
        *decision.paused,
        *(b for group in (decision.in_flight, decision.held, decision.resting) for b, _ in group),
    )
    due = [f"{said(d.backlog)} (limit: {d.reason})" for d in decision.due]
    lines = [f"due: {_listed(due)}" if due else f"nothing due; {largest(idle)}"]
    lines += [f"in flight: {said(b)}, {run}" for b, run in decision.in_flight[:LISTED]]
    lines += [f"{b.stream}: the last run was requested a moment ago, next in {s:.0f} s" for b, s in decision.resting]
    lines += [f"{b.stream}: the last run moved no position, next try in {s:.0f} s" for b, s in decision.held]
    lines += [f"paused: {_listed([said(b) for b in decision.paused])}"] if decision.paused else []
    for backlog in decision.refused:
        if backlog.refusal is not None:
            happened, _, run = backlog.refusal.parts()
            whose = "" if happened.startswith(f"{backlog.stream}:") else f"{backlog.stream}: "
            lines.append(f"{whose}{happened} Run: {run}")
    return "\n".join(lines)


def largest(backlogs: Sequence[Backlog]) -> str:
    """The largest of some backlogs in words."""
    if not backlogs:
        return "no backlog"
    return f"largest backlog: {said(max(backlogs, key=lambda b: b.offsets))}"


def said(backlog: Backlog) -> str:
    """Stream, backlog and lag."""
    lag = "?" if backlog.lag_seconds is None else f"{backlog.lag_seconds:,.0f} s"
    return f"{backlog.stream} {backlog.offsets:,} offsets, {lag}"


def _listed(things: Sequence[str]) -> str:
    more = f"; and {len(things) - LISTED:,} more" if len(things) > LISTED else ""
    return "; ".join(things[:LISTED]) + more
