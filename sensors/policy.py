"""Which streams are worth a run now, and why; the text of a tick. No Dagster, no clock, no I/O."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kdi_assets.documents.model.limits import time_has_come
from kdi_assets.documents.model.stream import DrainWhen, Stream, offsets_digest
from kdi_assets.errors import AGAIN, KdiError
from kdi_assets.operate.monitoring.backlog import Backlog
from kdi_assets.sensors.memory import Memory

FIRST_WAIT_SECONDS = 10.0
LONGEST_WAIT_SECONDS = 600.0
DOUBLINGS = 6
"""After so many, the longest wait is reached."""
RELEASE = 0.5
"""A stream that reached a limit is drained until its backlog is below this share of it."""
LISTED = 20
"""At most so many streams in a line, and lines of a kind: a tick of hundreds of streams stays readable."""


@dataclass(frozen=True, slots=True)
class Due:
    """A stream that is worth a run now, and why.

    Attributes:
        urgent: Retention is about to delete messages of the backlog.
        suspect: Its last run moved no position, so this one may not either.
        group: Its route group; streams of a group that share a run are drained with one read.
    """

    backlog: Backlog
    reason: str
    urgent: bool = False
    suspect: bool = False
    group: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class TickDecision:
    """The decision of a tick about every stream with a backlog or a refusal.

    Attributes:
        due: Worth a run now, the most urgent first.
        below: The backlog is below every limit.
        resting: Due, but a run was requested a moment ago; with the seconds until the next one.
        in_flight: An unfinished run drains the stream; with a text that names the run and its age.
        held: Due, but the last run moved no position; with the seconds until the next try.
        paused: The stream has a backlog, and its document pauses it.
        unknown: Not every topic partition was looked at to its end yet, and none of the others has a backlog.
        refused: The stream has a refusal: someone must decide, or the brokers must come back.
        catching_up: Names of streams that reached a limit and are not below half of it yet.
    """

    due: tuple[Due, ...] = ()
    below: tuple[Backlog, ...] = ()
    resting: tuple[tuple[Backlog, float], ...] = ()
    in_flight: tuple[tuple[Backlog, str], ...] = ()
    held: tuple[tuple[Backlog, float], ...] = ()
    paused: tuple[Backlog, ...] = ()
    unknown: tuple[Backlog, ...] = ()
    refused: tuple[Backlog, ...] = ()
    catching_up: frozenset[str] = frozenset()


def streams_to_drain(
    backlogs: Collection[Backlog],
    *,
    streams: Mapping[str, Stream],
    in_flight: Mapping[str, str],
    memories: Mapping[str, Memory],
    now: float,
) -> TickDecision:
    """Decide about every stream once.

    Args:
        streams: By name, with their limits.
        in_flight: Streams that an unfinished run drains, with a text about the run; they are not requested again.
        memories: The cursor's memory of every stream.
        now: Seconds since the epoch.
    """
    fine = [b for b in backlogs if b.refusal is None]
    active = [b for b in fine if streams[b.stream].status == "active"]
    free = [b for b in active if b.stream not in in_flight]
    reached = [d for b in free if (d := _due(b, streams[b.stream], memories[b.stream], now=now))]
    held = [(d.backlog, s) for d in reached if (s := hold_seconds(d.backlog, memories[d.backlog.stream], now=now))]
    resting = [(d.backlog, s) for d in reached if (s := _rest_seconds(d, streams, memories, now))]
    names, waiting = {d.backlog.stream for d in reached}, {b.stream for b, _ in (*held, *resting)}
    due = [d for d in reached if d.backlog.stream not in waiting]
    below = [b for b in free if b.offsets and b.stream not in names]
    shared = [d for d in _same_read(below, due, streams, memories) if not _rest_seconds(d, streams, memories, now)]
    shared_names = {d.backlog.stream for d in shared}
    return TickDecision(
        due=tuple(sorted((*due, *shared), key=_urgency)),
        below=tuple(b for b in below if b.stream not in shared_names),
        resting=tuple(resting),
        in_flight=tuple((b, in_flight[b.stream]) for b in active if b.stream in in_flight),
        held=tuple(held),
        paused=tuple(b for b in fine if streams[b.stream].status == "paused" and b.offsets),
        unknown=tuple(b for b in fine if not b.known),
        refused=tuple(b for b in backlogs if b.refusal is not None),
        # How far a run in flight gets is unknown, so its streams keep the flag.
        catching_up=frozenset(names) | {name for name in in_flight if name in memories and memories[name].catching_up},
    )


def _same_read(
    below: Collection[Backlog], due: Collection[Due], streams: Mapping[str, Stream], memories: Mapping[str, Memory]
) -> list[Due]:
    """Streams below their limits whose route group is read anyway: to drain them too costs little."""
    groups = {d.group: d.backlog.stream for d in due if d.group and not d.suspect}
    found = ((b, streams[b.stream].route_group) for b in below if memories[b.stream].positions != progress_digest(b))
    return [Due(b, f"in one pass with {groups[group]}", group=group) for b, group in found if group in groups]


def _due(backlog: Backlog, stream: Stream, memory: Memory, *, now: float) -> Due | None:
    if not backlog.offsets and backlog.renews is None and not backlog.needs_position_commit:
        return None
    suspect, limits, group = memory.positions == progress_digest(backlog), stream.drain_when, stream.route_group
    if backlog.renews is not None:
        why = "nothing arrived, and a shard has ended, or nobody looked for a part of the retention"
        return Due(backlog, why, suspect=suspect, group=group)
    if backlog.needs_position_commit:
        # A run commits its positions; until then "latest" moves with every message.
        return Due(backlog, "its positions are not committed yet", suspect=suspect, group=group)
    if loss := loss_near(backlog, limits):
        return Due(backlog, loss, urgent=True, suspect=suspect, group=group)
    share = RELEASE if memory.catching_up else 1.0
    reason = next((r for r in _reasons(backlog, limits, memory, share=share, now=now)), None)
    return Due(backlog, reason, suspect=suspect, group=group) if reason else None


def loss_near(backlog: Backlog, limits: DrainWhen) -> str | None:
    """A text if retention is about to delete messages of the backlog; ``None`` if not, or if that is unknown."""
    left = backlog.loss_near(limits.time_to_loss_seconds)
    return None if left is None else f"retention deletes messages in {left:,.0f} s"


def _reasons(backlog: Backlog, limits: DrainWhen, memory: Memory, *, share: float, now: float) -> Iterator[str]:
    """The limits that are reached, as texts; an unknown lag (only gaps wait) reaches none."""
    limit, lag = limits.backlog_messages, backlog.lag_seconds
    catching = "" if share == 1.0 else " (catching up)"
    if limit is not None and backlog.offsets >= limit * share:
        yield f"{limit:,} messages{catching}"
    if limits.lag_seconds is not None and lag is not None and lag >= limits.lag_seconds * share:
        yield f"{limits.lag_seconds:,.0f} s{catching}"
    if limits.backlog_bytes is not None and (backlog.bytes or 0) >= limits.backlog_bytes * share:
        yield f"{limits.backlog_bytes:,} bytes{catching}"
    if limits.cron is not None and _cron_reached(limits.cron, backlog, memory, now):
        yield f"cron {limits.cron}"


def _cron_reached(cron: str, backlog: Backlog, memory: Memory, now: float) -> bool:
    """Whether a message waits since before cron's last time, and no run was requested since, or none with progress."""
    waited = backlog.lag_seconds is None or time_has_come(cron, since=now - backlog.lag_seconds, now=now)
    undone = memory.positions == progress_digest(backlog)
    return waited and (undone or time_has_come(cron, since=now - seconds_since(memory.requested_at, now), now=now))


def hold_seconds(backlog: Backlog, memory: Memory, *, now: float) -> float:
    """Seconds without a request after a run that moved no position.

    The position decides, not the run's status: a run that was retried, cancelled or deleted may have committed.
    """
    if memory.positions != progress_digest(backlog):
        return 0.0
    wait = backoff_seconds(memory.runs_in_vain)
    if (left := backlog.loss_near(wait)) is not None:
        wait = left / 2  # retention is near: the next try may be the last
    return max(0.0, wait - seconds_since(memory.requested_at, now))


def backoff_seconds(runs_in_vain: int) -> float:
    """Seconds to wait after a run in vain: 10, doubled with each run in vain before it, at most 600."""
    # The number has no limit: a table may wait for someone for weeks.
    return float(min(FIRST_WAIT_SECONDS * 2 ** min(runs_in_vain, DOUBLINGS), LONGEST_WAIT_SECONDS))


class Rests:
    """What failed rests, for longer with each failure in a row; by a monotonic clock, for what a process remembers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, tuple[int, float]] = {}  # how many in a row, and when the last one was

    def failed(self, name: str) -> None:
        """It failed once more."""
        self._failures[name] = self._failures.get(name, (0, 0.0))[0] + 1, self._clock()

    def succeeded(self, name: str) -> None:
        """The next failure is the first one again."""
        self._failures.pop(name, None)

    def __contains__(self, name: str) -> bool:
        """Whether it rests now."""
        failures, at = self._failures.get(name, (0, 0.0))
        return failures > 0 and self._clock() < at + backoff_seconds(failures - 1)


def _rest_seconds(due: Due, streams: Mapping[str, Stream], memories: Mapping[str, Memory], now: float) -> float:
    """Seconds without a request, so that files do not get small; 0 if retention is near or the last run failed."""
    if due.urgent or due.suspect:
        return 0.0
    name = due.backlog.stream
    return max(0.0, streams[name].drain_when.min_gap_seconds - seconds_since(memories[name].requested_at, now))


def seconds_since(moment: float, now: float) -> float:
    """Seconds since a moment; infinite if that is in the future, because then a clock was wrong."""
    passed = now - moment
    return max(0.0, passed) if passed > -FIRST_WAIT_SECONDS else math.inf


def progress_digest(backlog: Backlog) -> str:
    """A digest of the committed positions; "no positions" before the first commit.

    Before that commit, a start of "latest" moves with every message, without progress. A renewal moves no position: its
    progress is that the moment does.
    """
    if backlog.renews is not None:
        return f"seen until {backlog.renews}"
    if backlog.needs_position_commit:
        return "no positions"
    return offsets_digest({tp: partition.position for tp, partition in backlog.topic_partitions.items()})


def _urgency(due: Due) -> tuple[bool, float, int]:
    backlog = due.backlog
    return not due.urgent, -(backlog.lag_seconds or 0.0), -backlog.offsets


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
        [f"not known yet: {join_limited([b.stream for b in decision.unknown])}"] if decision.unknown else [],
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
            told = happened_and_next(backlog.refusal).removeprefix(f"{backlog.stream}: ")
            streams.setdefault(told, []).append(backlog.stream)
    return [f"{join_limited(names)}: {happened}" for happened, names in streams.items()]


def happened_and_next(refusal: KdiError) -> str:
    """What happened and what to run; where a person would type the same command again, the next tick asks again."""
    happened, _, run = refusal.message_parts()
    if run.startswith(AGAIN):
        return f"{happened} The next tick asks again{run.removeprefix(AGAIN)}"
    return f"{happened} Run: {run}"


def backlog_text(backlog: Backlog) -> str:
    """Stream, backlog and lag."""
    lag = "?" if backlog.lag_seconds is None else f"{backlog.lag_seconds:,.0f} s"
    return f"{backlog.stream} {backlog.offsets:,} offsets, {lag}"


def join_limited(items: Sequence[str], separator: str = "; ") -> str:
    """The first ``LISTED`` items, and the number of the others."""
    more = [f"and {len(items) - LISTED:,} more"] if len(items) > LISTED else []
    return separator.join([*items[:LISTED], *more])
