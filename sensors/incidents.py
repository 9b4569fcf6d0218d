"""Incidents: what to tell when it begins, and again when it is over. No Dagster, no I/O, no clock."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError, Transient
from kdi_assets.operate.monitoring.backlog import Backlog, State
from kdi_assets.operate.monitoring.table_facts import TableFacts
from kdi_assets.sensors.memory import Memory, TrackedIncident
from kdi_assets.sensors.other_deployments import SAFE, place
from kdi_assets.sensors.policy import happened_and_next, loss_near, progress_digest

LEAST_DEAD_LETTERS = 10
"""With fewer dead letters their share means nothing."""
MOMENT_SECONDS = 60.0
"""How long an incident that may heal by itself (a broker restarts, a run is retried) lasts before it is told; and
how long a told incident must be over before its end is told, so that one that comes and goes is one."""
RUN_SECONDS, RUN_FACTOR = 600.0, 3.0
"""A run commits at its end, so while one is in flight the positions stand still: at most so long, or so many times the
run's expected length, that is not an incident."""


class IncidentKind(StrEnum):
    """Kinds of incidents; the values are part of the webhook's messages."""

    STANDS_STILL = "stands_still"
    LOSS_NEAR = "loss_near"
    DEAD_LETTERS = "dead_letters"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    RUNS_FAIL = "runs_fail"
    OVER_BUDGET = "over_budget"
    OTHER_DEPLOYMENT = "other_deployment"
    NEW_TOPICS = "new_topics"


@dataclass(frozen=True, slots=True)
class Incident:
    """Something is wrong with a stream now.

    Attributes:
        detail: Text; equal for streams that share one cause.
        patience_seconds: How long it must last before it is told.
    """

    detail: str
    patience_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Notice:
    """The beginning or the end of an incident.

    Attributes:
        key: Kind and stream, ``stands_still:bronze/orders``.
        since: When a tick first saw the incident, in seconds since the epoch.
        incident: ``None``: it is over.
    """

    key: str
    since: float
    incident: Incident | None = None

    @property
    def kind(self) -> str:
        """The value of an ``IncidentKind``."""
        return self.key.partition(":")[0]

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self.key.partition(":")[2]


CurrentIncidents = Mapping[str, Incident | None]
"""By key, the incident, or ``None`` if there is none. A key that is not in it is unknown now, and keeps its state."""
Kinds = Iterator[tuple[IncidentKind, Incident | None]]


def current_incidents(
    backlogs: Sequence[Backlog],
    *,
    streams: Mapping[str, Stream],
    in_flight: Collection[str],
    memories: Mapping[str, Memory],
    tables: Mapping[str, TableFacts],
) -> CurrentIncidents:
    """Find the incidents of every stream.

    Args:
        in_flight: Streams that an unfinished run drains.
        memories: The cursor's memory of every stream.
        tables: Facts from the logs; without the streams whose log cannot be read.
    """
    current: dict[str, Incident | None] = {}
    for backlog in backlogs:
        stream, table = streams[backlog.stream], tables.get(backlog.stream)
        running = backlog.stream in in_flight
        of_backlog = _of_backlog(backlog, stream, running=running)
        kinds = [*of_refusal(backlog.refusal), *of_backlog, *_of_table(table, stream)]
        kinds += _of_other_deployment(memories[backlog.stream])
        if not running:  # the result of an unfinished run is unknown
            kinds += _of_runs(backlog, stream, memories[backlog.stream])
        current |= {f"{kind}:{backlog.stream}": incident for kind, incident in kinds}
    return current


def of_refusal(refusal: KdiError | None) -> Kinds:
    """The incidents of what a look at a stream or a table was refused with; ``None``: it was not refused."""
    if isinstance(refusal, Transient):
        # REFUSED stays unknown: while nothing answers, nobody knows whether something must be decided.
        yield IncidentKind.UNREACHABLE, Incident(refusal.message_parts()[0], MOMENT_SECONDS)
        return
    yield IncidentKind.UNREACHABLE, None
    yield IncidentKind.REFUSED, Incident(happened_and_next(refusal)) if refusal else None


def _of_backlog(backlog: Backlog, stream: Stream, *, running: bool) -> Kinds:
    if backlog.known and not (backlog.offsets and backlog.time_to_loss_seconds is None):
        yield IncidentKind.LOSS_NEAR, _loss(backlog, stream)
    if backlog.refusal is None and backlog.word is not None:  # with a refusal, that is the incident
        stands = stream.status == "active" and backlog.word in (State.STOP, State.STALL)
        run_seconds = max(RUN_SECONDS, RUN_FACTOR * backlog.pace.seconds_for(backlog.offsets))
        detail = f"{backlog.word.value}: {_waiting(backlog)}"
        incident = Incident(detail, run_seconds if running else MOMENT_SECONDS)
        yield IncidentKind.STANDS_STILL, incident if stands else None


def _loss(backlog: Backlog, stream: Stream) -> Incident | None:
    near = loss_near(backlog, stream.drain_when)
    if near is None:
        return None
    if stream.status == "paused":
        return Incident(f"{near}, and the stream is paused: {_waiting(backlog)}")
    # This tick requests a run for the stream; if that helps, there is nothing to tell.
    patience = min(MOMENT_SECONDS, (backlog.time_to_loss_seconds or 0.0) / 2)
    return Incident(f"{near}: {_waiting(backlog)}", patience if backlog.refusal is None else 0.0)


def _of_table(table: TableFacts | None, stream: Stream) -> Kinds:
    if table is not None and (budget := stream.checks.cpu_seconds_a_day) is not None:
        used = table.cpu_seconds_today  # from 0 again at each midnight (UTC): so it is told once a day at most
        spent = f"today's drains used {used:,.0f} CPU seconds; the budget of a day is {budget:,.0f}"
        yield IncidentKind.OVER_BUDGET, Incident(spent) if used > budget else None
    if table is None or not table.messages_1h:
        return  # without messages the share is unknown
    letters, messages, limit = table.dead_letters_1h, table.messages_1h, stream.checks.dead_letter_rate
    detail = f"{letters:,} of {messages:,} messages of the last hour are dead letters; the limit is {limit:.2%}"
    above_limit = letters >= LEAST_DEAD_LETTERS and letters > limit * messages
    yield IncidentKind.DEAD_LETTERS, Incident(detail) if above_limit else None


def _of_runs(backlog: Backlog, stream: Stream, memory: Memory) -> Kinds:
    """The position decides, as in ``policy.hold_seconds``: a run that moved none did nothing, whatever its status."""
    if backlog.refusal is not None:
        return
    waits = stream.status == "active" and (backlog.offsets or backlog.needs_position_commit)
    no_progress = waits and memory.requested_at and memory.positions == progress_digest(backlog)
    runs = f"the last {memory.runs_in_vain + 1:,} runs" if memory.runs_in_vain else "the last run"
    yield IncidentKind.RUNS_FAIL, Incident(f"{runs} moved no position", MOMENT_SECONDS) if no_progress else None


def _of_other_deployment(memory: Memory) -> Kinds:
    detail = f"{place(memory.other)} drains it too. {SAFE}" if memory.other else ""
    yield IncidentKind.OTHER_DEPLOYMENT, Incident(detail) if memory.other else None


def _waiting(backlog: Backlog) -> str:
    oldest = "" if backlog.lag_seconds is None else f", the oldest message for {backlog.lag_seconds:,.0f} s"
    return f"{backlog.offsets:,} offsets wait{oldest}"


def track(
    known: Mapping[str, TrackedIncident], current: CurrentIncidents, *, streams: Collection[str], now: float
) -> dict[str, TrackedIncident]:
    """The incidents to keep in the cursor: those that begin, go on, or ended and whose end is not told yet.

    Args:
        known: The cursor's incidents, by key.
        streams: Names of all streams; incidents of others are over.
        now: Seconds since the epoch.
    """
    tracked = dict(known)
    removed: CurrentIncidents = {key: None for key in known if key.partition(":")[2] not in streams}
    for key, incident in {**current, **removed}.items():
        before = tracked.get(key)
        if incident is not None:
            tracked[key] = replace(before, over=0) if before else TrackedIncident(since=int(now))
        elif before and before.told:
            tracked[key] = replace(before, over=before.over or int(now))
        else:
            tracked.pop(key, None)
    return tracked


def notices(tracked: Mapping[str, TrackedIncident], current: CurrentIncidents, *, now: float) -> list[Notice]:
    """The notices that are due now."""
    due = []
    for key, one in sorted(tracked.items()):
        incident = current.get(key)
        if incident and not one.told and now - one.since >= incident.patience_seconds:
            due.append(Notice(key, one.since, incident))
        if one.over and now - one.over >= MOMENT_SECONDS:
            due.append(Notice(key, one.since))
    return due


def after_delivery(tracked: Mapping[str, TrackedIncident], delivered: Sequence[Notice]) -> dict[str, TrackedIncident]:
    """The incidents to keep after these notices were delivered."""
    ended = {one.key for one in delivered if one.incident is None}
    began = {one.key for one in delivered if one.incident is not None}
    return {key: replace(one, told=one.told or key in began) for key, one in tracked.items() if key not in ended}
