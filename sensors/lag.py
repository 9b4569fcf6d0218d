"""The lag sensor of a cluster: look at brokers and tables, reconcile, decide, request, and say why."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Protocol

import dagster as dg

from kdi_assets.components.names import identifier, table_key
from kdi_assets.drain.look import Backlog, look_at
from kdi_assets.settings import Settings
from kdi_assets.stream import Stream
from sensors.in_flight import tables_in_flight
from sensors.memory import Memory, read_cursor, write_cursor
from sensors.policy import Decision, explain, progress, streams_to_drain
from sensors.reconcile import reconcile_all
from sensors.requests import run_requests, topic_observations, without_today

TICK_SECONDS = 1  # Dagster's daemon looks every 5 s; asked for 5 it ticks every 5 or 10


class Look(Protocol):
    """``kdi_assets.drain.look.look_at``; a test about Dagster alone passes another."""

    def __call__(self, streams: Sequence[Stream], *, lake: str) -> Sequence[Backlog]: ...


def lag_sensors(streams: Collection[Stream]) -> list[dg.SensorDefinition]:
    """One sensor per Kafka cluster, ``lag_<cluster>``, for all its streams."""
    ordered = sorted(streams, key=lambda s: (s.cluster.name, s.name))
    clusters = groupby(ordered, key=lambda s: s.cluster.name)
    return [lag_sensor(cluster, tuple(own), look=look_at) for cluster, own in clusters]


def lag_sensor(cluster: str, streams: Sequence[Stream], *, look: Look) -> dg.SensorDefinition:
    """The sensor that requests runs for streams over their ``drain_when``, packed into as few as Dagster takes."""
    by_name = {s.name: s for s in streams}

    @dg.sensor(
        name=f"lag_{identifier(cluster)}",
        # Not `target`: it makes one job of them all, which Dagster refuses as soon as two date windows differ.
        asset_selection=[table_key(s) for s in streams],
        minimum_interval_seconds=TICK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Drains the topics of cluster {cluster} whose backlog or lag reached `drain_when`, and tells of "
        "commits that a crash left untold.",
    )
    def lag(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        lake, now = Settings.from_environment().lake, datetime.now(UTC)
        remembered = read_cursor(context.cursor)
        memories = {name: remembered.get(name, Memory()) for name in by_name}
        untold, memories = reconcile_all(streams, lake=lake, instance=context.instance, memories=memories)
        decision = _decide(context, by_name, lake=lake, look=look, memories=memories, now=now)
        return _result(context, decision, by_name, untold=untold, memories=memories, now=now)

    return lag


def _decide(
    context: dg.SensorEvaluationContext,
    streams: Mapping[str, Stream],
    *,
    lake: str,
    look: Look,
    memories: Mapping[str, Memory],
    now: datetime,
) -> Decision:
    # In flight before the look as well as after: a run that ended in between has drained what was seen.
    before = tables_in_flight(context.instance)
    backlogs = look(list(streams.values()), lake=lake)
    running = {**tables_in_flight(context.instance), **before}
    return streams_to_drain(
        backlogs,
        limits={name: s.drain_when for name, s in streams.items()},
        in_flight={
            name: f"run {record.dagster_run.run_id[:8]} for {(now - record.create_timestamp).total_seconds():,.0f} s"
            for name, s in streams.items()
            if (record := running.get(table_key(s)))
        },
        memories=memories,
        now=now.timestamp(),
    )


def _result(
    context: dg.SensorEvaluationContext,
    decision: Decision,
    streams: Mapping[str, Stream],
    *,
    untold: Sequence[dg.AssetMaterialization],
    memories: Mapping[str, Memory],
    now: datetime,
) -> dg.SensorResult:
    requests = run_requests(decision.due, streams, now=now)
    requested = {key for request in requests for key in request.asset_selection or ()}
    drained = [b for b in decision.due if table_key(streams[b.stream]) in requested]
    after = {b.stream: memories[b.stream].requested(progress(b), now.timestamp()) for b in drained}
    told = [f"told of {len(untold)} dates that a commit touched and no event named"] if untold else []
    why = "\n".join([explain(decision), *without_today(decision.due, streams, now=now), *told])
    if requests:
        context.log.info(why)  # Dagster takes a reason only for a tick that requests nothing
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else why,
        cursor=write_cursor({**memories, **after}),
        asset_events=[*untold, *topic_observations(drained, streams)],
    )
