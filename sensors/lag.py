"""The lag sensor of a cluster: look at brokers and tables, reconcile, decide, request, and say why."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import dagster as dg

from kdi_assets.components.asset_checks import standing_failures
from kdi_assets.components.names import identifier, table_key
from kdi_assets.monitoring.backlog import Backlog
from kdi_assets.monitoring.backlog_reader import BacklogReader, ReadBacklogs, by_cluster
from kdi_assets.settings import Settings
from kdi_assets.stream.stream import Stream
from sensors.alerts import Alerts
from sensors.explain import explain
from sensors.in_flight import assets_in_flight, run_of
from sensors.memory import Memories, Memory, read_cursor, write_cursor
from sensors.observe import Observations
from sensors.policy import TickDecision, progress, streams_to_drain
from sensors.reconcile import reconcile_all
from sensors.requests import run_requests, without_today
from sensors.table_log import TableLogs

RECONCILE_SECONDS = 10.0
TICK_SECONDS = 1  # Dagster's daemon looks every 5 s; asked for 5 it ticks every 5 or 10
WAIT_SECONDS = 4.0
"""How long a tick that requests nothing waits for a run to end: what came meanwhile is requested in it, and not in the
next, which under a steady load is half of its period earlier. It ends before the daemon would have it begin again."""
ASK_SECONDS = 0.5


def lag_sensors(streams: Collection[Stream]) -> list[dg.SensorDefinition]:
    """One sensor per Kafka cluster, ``lag_<cluster>``, for all its streams but the retired ones."""
    clusters = by_cluster(s for s in streams if s.status != "retired")
    # A tick does not wait for leaders: the next one comes in five seconds.
    # Nor do they all wait for runs: the daemon ticks a few sensors at a time, or one by one.
    share = WAIT_SECONDS / max(1, len(clusters))
    return [
        lag_sensor(c, own, look=BacklogReader(leader_seconds=0.0), wait_seconds=share) for c, own in clusters.items()
    ]


def lag_sensor(
    cluster: str, streams: Sequence[Stream], *, look: ReadBacklogs, wait_seconds: float = 0.0
) -> dg.SensorDefinition:
    """The sensor that requests runs for streams over their ``drain_when``, packed into as few as Dagster takes.

    Args:
        wait_seconds: How long a tick may last for a run to end that keeps it from requesting another.
    """
    tick = _Tick(cluster, streams, look, wait_seconds)

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
        return tick(context)

    return lag


class _Tick:
    """What the sensor does every few seconds, and what it need not find out anew each time."""

    def __init__(self, cluster: str, streams: Sequence[Stream], look: ReadBacklogs, wait_seconds: float) -> None:
        self._streams, self._by_name, self._look = streams, {s.name: s for s in streams}, look
        self._wait_seconds = wait_seconds
        self._logs, self._observations, self._alerts = TableLogs(), Observations(), Alerts(cluster)

    def __call__(self, context: dg.SensorEvaluationContext) -> dg.SensorResult:
        lake, until = Settings.from_environment().lake, time.monotonic() + self._wait_seconds
        remembered = read_cursor(context.cursor)
        untold, memories = self._reconciled(lake, context.instance, remembered)
        if untold:
            until = 0.0  # told late already, and a run that goes on meanwhile may tell of newer ones
        now, backlogs, in_flight, decision = self._decided(lake, context.instance, memories)
        while decision.in_flight and not decision.due and self._one_ended(context.instance, in_flight, until):
            now, backlogs, in_flight, decision = self._decided(lake, context.instance, memories)
        requests = run_requests(decision.due, self._by_name, now=now)
        incidents, alerted = self._alerts(
            backlogs, streams=self._by_name, in_flight=in_flight, memories=memories, known=remembered.incidents, now=now
        )
        early = without_today(decision.due, self._by_name, now=now)
        why = "\n".join([explain(decision), *early, *_told(untold), *alerted])
        if requests:
            context.log.info(why)  # Dagster takes a reason only for a tick that requests nothing
        after = _remembered(decision, memories, self._by_name, requests=requests, now=now)
        observed = self._observations.of(backlogs, self._by_name, now=now.timestamp())
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else why,
            cursor=write_cursor(Memories(after, incidents)),
            asset_events=[*_told_before(untold, self._by_name, context), *untold, *observed],
        )

    def _reconciled(
        self, lake: str, instance: dg.DagsterInstance, remembered: Memories
    ) -> tuple[list[dg.AssetMaterialization], dict[str, Memory]]:
        """Events that Dagster lacks, and what to remember of each stream then."""
        # Within a time: without its cursor, a sensor of hundreds would read whole logs until Dagster ends the tick.
        turn = self._logs.in_turn(self._streams, seconds=RECONCILE_SECONDS)
        memories = {name: remembered.of(name) for name in self._by_name}
        return reconcile_all(turn, lake=lake, instance=instance, memories=memories, read=self._logs.read_piece)

    def _decided(
        self, lake: str, instance: dg.DagsterInstance, memories: Mapping[str, Memory]
    ) -> tuple[datetime, Sequence[Backlog], dict[str, str], TickDecision]:
        """The moment, what waits then, the streams that a run is about, and what to make of it."""
        now = datetime.now(UTC)
        # In flight before the look as well as after: a run that ended in between has drained what was seen.
        before = assets_in_flight(instance)
        backlogs = self._look(self._streams, lake=lake)
        in_flight = _in_flight(self._streams, {**assets_in_flight(instance), **before}, now=now)
        decision = streams_to_drain(
            backlogs, streams=self._by_name, in_flight=in_flight, memories=memories, now=now.timestamp()
        )
        return now, backlogs, in_flight, decision

    def _one_ended(self, instance: dg.DagsterInstance, in_flight: Collection[str], until: float) -> bool:
        """Wait until a run has ended that was about one of the streams; false if none did in time."""
        while time.monotonic() + ASK_SECONDS < until:
            time.sleep(ASK_SECONDS)
            running = assets_in_flight(instance)
            if not all(run_of(self._by_name[name], running) for name in in_flight):
                return True
        return False


def _in_flight(
    streams: Sequence[Stream], running: Mapping[dg.AssetKey, dg.RunRecord], *, now: datetime
) -> dict[str, str]:
    return {
        s.name: f"run {record.dagster_run.run_id[:8]} for {(now - record.create_timestamp).total_seconds():,.0f} s"
        for s in streams
        if (record := run_of(s, running))
    }


def _told_before(
    untold: Sequence[dg.AssetMaterialization], streams: Mapping[str, Stream], context: dg.SensorEvaluationContext
) -> list[dg.AssetCheckEvaluation]:
    about = {event.asset_key for event in untold}
    return [f for s in streams.values() if table_key(s) in about for f in standing_failures(context.instance, s)]


def _told(untold: Sequence[dg.AssetMaterialization]) -> list[str]:
    return [f"told of {len(untold)} dates that a commit touched and no event named"] if untold else []


def _remembered(
    decision: TickDecision,
    memories: Mapping[str, Memory],
    streams: Mapping[str, Stream],
    *,
    requests: Sequence[dg.RunRequest],
    now: datetime,
) -> dict[str, Memory]:
    requested = {key for request in requests for key in request.asset_selection or ()}
    after = {n: replace(memory, catching_up=n in decision.catching_up) for n, memory in memories.items()}
    drained = [d.backlog for d in decision.due if table_key(streams[d.backlog.stream]) in requested]
    return {**after, **{b.stream: after[b.stream].requested(progress(b), now.timestamp()) for b in drained}}
