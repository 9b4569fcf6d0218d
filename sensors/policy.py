"""Which streams are worth a run now, and how to say it. No Dagster, no clock, no I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kdi_assets.drain.look import Backlog
from kdi_assets.stream import DrainWhen
from sensors.memory import Memory, digest

FIRST_WAIT_SECONDS = 10.0
LONGEST_WAIT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Decision:
    """What a tick makes of every stream that has something to say; a stream without a backlog is in none of these.

    Attributes:
        due: Worth a run now, the longest waiting first.
        below: Have a backlog under both limits.
        in_flight: A run that has not finished drains them; which, and for how long: one that died unseen holds them.
        held: Due, but the last run moved no position: seconds until the next try.
        refused: Have a refusal; someone must decide, or the brokers must come back.
    """

    due: tuple[Backlog, ...] = ()
    below: tuple[Backlog, ...] = ()
    in_flight: tuple[tuple[Backlog, str], ...] = ()
    held: tuple[tuple[Backlog, float], ...] = ()
    refused: tuple[Backlog, ...] = ()


def streams_to_drain(
    backlogs: Collection[Backlog],
    *,
    limits: Mapping[str, DrainWhen],
    in_flight: Mapping[str, str],
    memories: Mapping[str, Memory],
    now: float,
) -> Decision:
    """Judge every stream once.

    Args:
        limits: Per stream when a backlog is worth a run.
        in_flight: Streams that an unfinished run drains, and which; requested again they would pile up behind it.
        memories: What the cursor remembers of every stream.
        now: Seconds since the epoch.
    """
    fine = [b for b in backlogs if b.refusal is None]
    free = [b for b in fine if b.stream not in in_flight]
    # An unsettled stream is due at once: a run commits its positions, and until then "latest" moves on.
    reached = [b for b in free if is_due(b, limits[b.stream]) or b.unsettled]
    waits = {b.stream: hold_seconds(b, memories[b.stream], now=now) for b in reached}
    return Decision(
        due=tuple(sorted((b for b in reached if not waits[b.stream]), key=_urgency)),
        below=tuple(b for b in free if b.offsets and b not in reached),
        in_flight=tuple((b, in_flight[b.stream]) for b in fine if b.stream in in_flight),
        held=tuple((b, waits[b.stream]) for b in reached if waits[b.stream]),
        refused=tuple(b for b in backlogs if b.refusal is not None),
    )


def is_due(backlog: Backlog, limits: DrainWhen) -> bool:
    """Whether either limit is reached; an unknown lag (only gaps are waiting) reaches none."""
    lag = backlog.lag_seconds
    return backlog.offsets >= limits.backlog_messages or (lag is not None and lag >= limits.lag_seconds)


def hold_seconds(backlog: Backlog, memory: Memory, *, now: float) -> float:
    """How long to leave a stream alone whose last run moved no position: 10 s, doubled with each, at most 10 minutes.

    The position decides, not the run's status: a run that was retried, cancelled or deleted says nothing certain of
    the table.
    """
    if memory.positions != progress(backlog):
        return 0.0
    wait: float = min(FIRST_WAIT_SECONDS * 2.0**memory.futile, LONGEST_WAIT_SECONDS)
    return max(0.0, memory.requested_at + wait - now)


def progress(backlog: Backlog) -> str:
    """A short text that is another one as soon as any committed position moved.

    Of an unsettled stream nothing is committed, and what a start of "latest" would be moves without anyone's doing.
    """
    if backlog.unsettled:
        return "unsettled"
    return digest({tp: seen.position for tp, seen in backlog.topic_partitions.items()})


def _urgency(backlog: Backlog) -> tuple[float, int]:
    return -(backlog.lag_seconds or 0.0), -backlog.offsets


def explain(decision: Decision) -> str:
    """One line per group that has streams, and one per refusal; the first names the largest backlog."""
    idle = (*decision.below, *(b for b, _ in decision.in_flight), *(b for b, _ in decision.held))
    lines = [f"due: {_listed(decision.due)}" if decision.due else f"nothing due; {largest(idle)}"]
    lines += [f"in flight: {_said(b)}, {run}" for b, run in decision.in_flight]
    lines += [f"{b.stream}: the last run moved no position, next try in {wait:.0f} s" for b, wait in decision.held]
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
    return f"largest backlog: {_said(max(backlogs, key=lambda b: b.offsets))}"


def _listed(backlogs: Sequence[Backlog]) -> str:
    return "; ".join(_said(b) for b in backlogs)


def _said(backlog: Backlog) -> str:
    lag = "?" if backlog.lag_seconds is None else f"{backlog.lag_seconds:,.0f} s"
    return f"{backlog.stream} {backlog.offsets:,} offsets, {lag}"
