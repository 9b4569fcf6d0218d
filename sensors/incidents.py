"""Incidents: what somebody must be told of, once, and once more when it is over. No Dagster, no I/O, no clock."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kdi_assets.errors import Transient
from kdi_assets.monitoring.backlog import Backlog, State
from kdi_assets.monitoring.table_facts import TableFacts
from kdi_assets.stream.stream import Stream
from sensors.memory import Followed, Memory
from sensors.policy import loss_near, progress

LEAST_DEAD_LETTERS = 10
"""Where there are fewer, their share says nothing."""
MOMENT_SECONDS = 60.0
"""What may heal by itself (a broker restarts, a run is tried again) is told of after so long. And what was told of is
called over when it has been for so long: what comes and goes is one incident."""
RUN_SECONDS, RUN_FACTOR = 600.0, 3.0
"""A run in flight commits when it ends: so long, or so many times its expected length, it is not taken for a stop."""


class IncidentKind(StrEnum):
    """Kinds of incidents; the value is what programs are told."""

    STANDS_STILL = "stands_still"
    LOSS_NEAR = "loss_near"
    DEAD_LETTERS = "dead_letters"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    RUNS_FAIL = "runs_fail"


@dataclass(frozen=True, slots=True)
class Incident:
    """Something is wrong with a stream now.

    Attributes:
        detail: In words; the same for streams that share one cause.
        patience_seconds: How long it must last before somebody is told.
    """

    detail: str
    patience_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class News:
    """What to tell.

    Attributes:
        place: Kind and stream, ``stands_still:bronze/orders``.
        since: When it was first seen, in seconds since the epoch.
        incident: ``None``: it is over.
    """

    place: str
    since: float
    incident: Incident | None = None

    @property
    def kind(self) -> str:
        """As programs are told it."""
        return self.place.partition(":")[0]

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self.place.partition(":")[2]


Judged = Mapping[str, Incident | None]
"""By place what is wrong, or ``None`` where nothing is; what cannot be told now is not in it, and stays as it was."""


def judge(
    backlogs: Sequence[Backlog],
    *,
    streams: Mapping[str, Stream],
    in_flight: Collection[str],
    memories: Mapping[str, Memory],
    tables: Mapping[str, TableFacts],
) -> Judged:
    """Judge every stream.

    Args:
        in_flight: Streams that an unfinished run drains.
        memories: What the cursor remembers of every stream.
        tables: What the logs say; without the streams whose log cannot be read.
    """
    judged: dict[str, Incident | None] = {}
    for backlog in backlogs:
        stream, table = streams[backlog.stream], tables.get(backlog.stream)
        runs = backlog.stream in in_flight
        own = [*_of_refusal(backlog), *_of_backlog(backlog, stream, runs=runs), *_of_table(table, stream)]
        if not runs:  # what a run does that has not ended nobody knows
            own += _of_runs(backlog, stream, memories[backlog.stream])
        judged |= {f"{kind}:{backlog.stream}": incident for kind, incident in own}
    return judged


Announced = Iterator[tuple[IncidentKind, Incident | None]]


def _of_refusal(backlog: Backlog) -> Announced:
    refusal = backlog.refusal
    if isinstance(refusal, Transient):
        # Whether something must be decided as well cannot be seen now.
        yield IncidentKind.UNREACHABLE, Incident(refusal.parts()[0], MOMENT_SECONDS)
        return
    yield IncidentKind.UNREACHABLE, None
    happened, _, run = refusal.parts() if refusal else ("", "", "")
    yield IncidentKind.REFUSED, Incident(f"{happened} Run: {run}") if refusal else None


def _of_backlog(backlog: Backlog, stream: Stream, *, runs: bool) -> Announced:
    if backlog.known and not (backlog.offsets and backlog.time_to_loss_seconds is None):
        yield IncidentKind.LOSS_NEAR, _loss(backlog, stream)
    if backlog.refusal is None and backlog.word is not None:  # else the refusal is what is wrong
        stands = stream.status == "active" and backlog.word in (State.STOP, State.STALL)
        patience = max(RUN_SECONDS, RUN_FACTOR * backlog.pace.seconds_for(backlog.offsets)) if runs else MOMENT_SECONDS
        detail = f"{backlog.word.value}: {_waiting(backlog)}"
        yield IncidentKind.STANDS_STILL, Incident(detail, patience) if stands else None


def _loss(backlog: Backlog, stream: Stream) -> Incident | None:
    near = loss_near(backlog, stream.drain_when)
    if near is None:
        return None
    if stream.status == "paused":
        return Incident(f"{near}, and the stream is paused: {_waiting(backlog)}")
    # The sensor starts a run for it at this very tick; if that helps, nobody need know.
    patience = min(MOMENT_SECONDS, (backlog.time_to_loss_seconds or 0.0) / 2)
    return Incident(f"{near}: {_waiting(backlog)}", patience if backlog.refusal is None else 0.0)


def _of_table(table: TableFacts | None, stream: Stream) -> Announced:
    if table is None or not table.messages_1h:
        return  # without a message, nothing says that they are better now
    letters = table.dead_letters_1h
    limit = stream.checks.dead_letter_rate
    bad = letters >= LEAST_DEAD_LETTERS and letters > limit * table.messages_1h
    detail = (
        f"{letters:,} of {table.messages_1h:,} messages of the last hour are dead letters; the limit is {limit:.2%}"
    )
    yield IncidentKind.DEAD_LETTERS, Incident(detail) if bad else None


def _of_runs(backlog: Backlog, stream: Stream, memory: Memory) -> Announced:
    """The position decides, as for the holds: a run that moved none did nothing, whatever its status says."""
    if backlog.refusal is not None:
        return
    waits = stream.status == "active" and (backlog.offsets or backlog.unsettled)
    futile = waits and memory.requested_at and memory.positions == progress(backlog)
    detail = (
        f"the last {memory.futile + 1:,} runs moved no position" if memory.futile else "the last run moved no position"
    )
    yield IncidentKind.RUNS_FAIL, Incident(detail, MOMENT_SECONDS) if futile else None


def _waiting(backlog: Backlog) -> str:
    oldest = "" if backlog.lag_seconds is None else f", the oldest message for {backlog.lag_seconds:,.0f} s"
    return f"{backlog.offsets:,} offsets wait{oldest}"


def follow(
    known: Mapping[str, Followed], judged: Judged, *, streams: Collection[str], now: float
) -> dict[str, Followed]:
    """What to remember of incidents: those that go on, began, or came to an end that nobody was told of yet.

    Args:
        known: What was remembered, by place.
        streams: Names of all streams; incidents of others are over.
        now: Seconds since the epoch.
    """
    after = dict(known)
    gone: Judged = {place: None for place in known if place.partition(":")[2] not in streams}
    for place, incident in {**judged, **gone}.items():
        before = after.get(place)
        if incident is not None:
            after[place] = replace(before, over=0) if before else Followed(since=int(now))
        elif before and before.told:
            after[place] = replace(before, over=before.over or int(now))
        else:
            after.pop(place, None)
    return after


def news(followed: Mapping[str, Followed], judged: Judged, *, now: float) -> list[News]:
    """What somebody must be told of now."""
    found = []
    for place, one in sorted(followed.items()):
        incident = judged.get(place)
        if incident and not one.told and now - one.since >= incident.patience_seconds:
            found.append(News(place, one.since, incident))
        if one.over and now - one.over >= MOMENT_SECONDS:
            found.append(News(place, one.since))
    return found


def told(followed: Mapping[str, Followed], told: Sequence[News]) -> dict[str, Followed]:
    """What to remember after these news reached somebody."""
    over = {n.place for n in told if n.incident is None}
    begun = {n.place for n in told if n.incident is not None}
    return {
        place: replace(one, told=one.told or place in begun) for place, one in followed.items() if place not in over
    }
