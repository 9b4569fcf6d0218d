"""What a tick says: why it started what it started, and why nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from kdi_assets.monitoring.backlog import Backlog
from sensors.policy import TickDecision

LISTED = 20
"""Streams that a line names, and lines of a kind; a tick of hundreds must stay readable, and Dagster keeps many."""


def explain(decision: TickDecision) -> str:
    """One line per group that has streams, and one per refusal; the first names the largest backlog."""
    idle = (
        *decision.below,
        *decision.paused,
        *(b for group in (decision.in_flight, decision.held, decision.resting) for b, _ in group),
    )
    due = [f"{said(d.backlog)} (limit: {d.reason})" for d in decision.due]
    largest = f"largest backlog: {said(max(idle, key=lambda b: b.offsets))}" if idle else "no backlog"
    lines = [f"due: {listed(due)}" if due else f"nothing due; {largest}"]
    for group in (
        [f"in flight: {said(b)}, {run}" for b, run in decision.in_flight],
        [f"{b.stream}: the last run was requested a moment ago, next in {s:.0f} s" for b, s in decision.resting],
        [f"{b.stream}: the last run moved no position, next try in {s:.0f} s" for b, s in decision.held],
        [f"paused: {listed([said(b) for b in decision.paused])}"] if decision.paused else [],
        _refusals(decision.refused),
    ):
        lines += group[:LISTED]
        lines += [f"and {len(group) - LISTED:,} more like this"] if len(group) > LISTED else []
    return "\n".join(lines)


def _refusals(refused: Sequence[Backlog]) -> list[str]:
    """A line for each refusal; streams that share one, as of a cluster that is gone, share the line."""
    streams: dict[str, list[str]] = {}
    for backlog in refused:
        if backlog.refusal is not None:
            happened, _, run = backlog.refusal.parts()
            streams.setdefault(f"{happened.removeprefix(f'{backlog.stream}: ')} Run: {run}", []).append(backlog.stream)
    return [f"{listed(names)}: {happened}" for happened, names in streams.items()]


def said(backlog: Backlog) -> str:
    """Stream, backlog and lag."""
    lag = "?" if backlog.lag_seconds is None else f"{backlog.lag_seconds:,.0f} s"
    return f"{backlog.stream} {backlog.offsets:,} offsets, {lag}"


def listed(things: Sequence[str], between: str = "; ") -> str:
    """The first of them, and how many there are beside."""
    more = [f"and {len(things) - LISTED:,} more"] if len(things) > LISTED else []
    return between.join([*things[:LISTED], *more])
