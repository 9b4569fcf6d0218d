"""The text of a tick: why it requested runs, and why it requested no others."""

from __future__ import annotations

from collections.abc import Sequence

from kdi_assets.monitoring.backlog import Backlog
from sensors.policy import TickDecision

LISTED = 20
"""At most so many streams in a line, and lines of a kind: a tick of hundreds of streams stays readable."""


def explain(decision: TickDecision) -> str:
    """One line per group that has streams, and one per refusal; the first names the largest backlog."""
    not_due = (
        *decision.below,
        *decision.paused,
        *(b for group in (decision.in_flight, decision.held, decision.resting) for b, _ in group),
    )
    due = [f"{backlog_text(d.backlog)} (limit: {d.reason})" for d in decision.due]
    largest = f"largest backlog: {backlog_text(max(not_due, key=lambda b: b.offsets))}" if not_due else "no backlog"
    lines = [f"due: {join_limited(due)}" if due else f"nothing due; {largest}"]
    for group in (
        [f"in flight: {backlog_text(b)}, {run}" for b, run in decision.in_flight],
        [f"{b.stream}: the last run was requested a moment ago, next in {s:.0f} s" for b, s in decision.resting],
        [f"{b.stream}: the last run moved no position, next try in {s:.0f} s" for b, s in decision.held],
        [f"paused: {join_limited([backlog_text(b) for b in decision.paused])}"] if decision.paused else [],
        _refusals(decision.refused),
    ):
        lines += group[:LISTED]
        lines += [f"and {len(group) - LISTED:,} more like this"] if len(group) > LISTED else []
    return "\n".join(lines)


def _refusals(refused: Sequence[Backlog]) -> list[str]:
    """A line for each refusal; streams with the same one, e.g. of a cluster that is down, share the line."""
    streams: dict[str, list[str]] = {}
    for backlog in refused:
        if backlog.refusal is not None:
            happened, _, run = backlog.refusal.parts()
            streams.setdefault(f"{happened.removeprefix(f'{backlog.stream}: ')} Run: {run}", []).append(backlog.stream)
    return [f"{join_limited(names)}: {happened}" for happened, names in streams.items()]


def backlog_text(backlog: Backlog) -> str:
    """Stream, backlog and lag."""
    lag = "?" if backlog.lag_seconds is None else f"{backlog.lag_seconds:,.0f} s"
    return f"{backlog.stream} {backlog.offsets:,} offsets, {lag}"


def join_limited(items: Sequence[str], separator: str = "; ") -> str:
    """The first ``LISTED`` items, and the number of the others."""
    more = [f"and {len(items) - LISTED:,} more"] if len(items) > LISTED else []
    return separator.join([*items[:LISTED], *more])
