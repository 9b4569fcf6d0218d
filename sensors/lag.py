"""The lag sensor of a cluster: log missing events, read backlogs, decide, request runs, and say why."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

import dagster as dg

from kdi_assets.components.asset_checks import checks_of_first_drain, failed_checks
from kdi_assets.components.names import identifier, table_key
from kdi_assets.delta.versions import LatestVersions
from kdi_assets.documents.model.stream import Stream
from kdi_assets.operate.monitoring.backlog import Backlog
from kdi_assets.operate.monitoring.backlog_reader import BacklogReader, ReadBacklogs, StillIdle, by_cluster
from kdi_assets.runtime.driver.drivers import running_drivers
from kdi_assets.sensors import other_deployments
from kdi_assets.sensors.alerts import Alerts
from kdi_assets.sensors.default_status import described, sensor_status
from kdi_assets.sensors.in_flight import assets_in_flight, run_in_flight
from kdi_assets.sensors.memory import Memories, Memory, TrackedIncident, read_cursor, write_cursor
from kdi_assets.sensors.observe import Observations
from kdi_assets.sensors.policy import TickDecision, explain, progress_digest, streams_to_drain
from kdi_assets.sensors.reconcile import reconcile_all
from kdi_assets.sensors.requests import before_window, requested_assets, run_requests
from kdi_assets.sensors.table_log import TableLogs, Turns
from kdi_assets.sensors.waiting import PatientTick
from kdi_assets.settings import Settings

TICK_SECONDS = 1  # Dagster's daemon looks every 5 s; with 5 here, a tick comes every 5 or 10 s
WAIT_SECONDS = 4.0
"""How long a tick that requests nothing waits for a run to end. It then requests what came meanwhile: the next tick
would do so half a period later, on average. The wait ends before the daemon would start the next tick."""
POLL_SECONDS = 0.5
COMMITS_OF_NEW_TABLE = 20
"""A table with no more commits has the checks that need Spark with its drain, if it did not have them yet."""


def lag_sensors(streams: Collection[Stream]) -> list[dg.SensorDefinition]:
    """One sensor per Kafka cluster, ``lag_<cluster>``, for all its streams that are not retired."""
    clusters = by_cluster(s for s in streams if s.status != "retired")
    # The sensors share the wait: the daemon evaluates a few of them at a time, or one after the other.
    wait_seconds = WAIT_SECONDS / max(1, len(clusters))
    sensors = []
    for cluster, own in clusters.items():
        versions = LatestVersions()
        # No wait for a leader election either: the next tick comes in five seconds.
        read = BacklogReader(leader_seconds=0.0, versions=versions)
        still = read.still_idle
        sensors.append(
            lag_sensor(cluster, own, read_backlogs=read, still_idle=still, wait_seconds=wait_seconds, versions=versions)
        )
    return sensors


def lag_sensor(
    cluster: str,
    streams: Sequence[Stream],
    *,
    read_backlogs: ReadBacklogs,
    still_idle: StillIdle = lambda streams, *, lake: False,
    wait_seconds: float = 0.0,
    versions: LatestVersions | None = None,
) -> dg.SensorDefinition:
    """The sensor that requests runs for streams over their ``drain_when``, in as few runs as Dagster allows.

    Args:
        still_idle: Of the reader of ``read_backlogs``; by default each look of a tick reads all backlogs.
        wait_seconds: How long a tick may wait for the end of a run that keeps it from requesting another.
        versions: Those of ``read_backlogs``: what it looked at is not looked at again.
    """
    tick = _LagTick(cluster, streams, read_backlogs, still_idle, wait_seconds, versions or LatestVersions())

    @dg.sensor(
        name=f"lag_{identifier(cluster)}",
        # Not `target`: that makes one job of all tables, which Dagster refuses if two date windows differ.
        asset_selection=[table_key(s) for s in streams],
        minimum_interval_seconds=TICK_SECONDS,
        default_status=sensor_status(),
        description=described(
            f"Drains the topics of cluster {cluster} whose backlog or lag reached `drain_when`, and logs the "
            "events of commits that a crash left without them."
        ),
    )
    def lag(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return tick(context)

    return lag


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """What is known at one moment, and the decision; ``in_flight``: stream to a text about its run."""

    now: datetime
    backlogs: Sequence[Backlog]
    in_flight: Mapping[str, str]
    decision: TickDecision


class _LagTick:
    """One evaluation of the sensor, with the caches that the process keeps between ticks."""

    def __init__(
        self,
        cluster: str,
        streams: Sequence[Stream],
        read_backlogs: ReadBacklogs,
        still_idle: StillIdle,
        wait_seconds: float,
        versions: LatestVersions,
    ) -> None:
        self._streams, self._by_name, self._read_backlogs = streams, {s.name: s for s in streams}, read_backlogs
        self._still_idle = still_idle
        self._wait_seconds = wait_seconds
        self._logs, self._turns, self._observations = TableLogs(versions), Turns(), Observations()
        self._alerts = Alerts(cluster, versions=versions)
        self._patient = PatientTick(explain(TickDecision()))

    def __call__(self, context: dg.SensorEvaluationContext) -> dg.SensorResult:
        lake = Settings.from_environment().lake
        still_idle = partial(self._still_idle, self._streams, lake=lake)
        return self._patient(lambda cursor: self._look(cursor, context), context, still_idle=still_idle)

    def _look(self, after: str | None, context: dg.SensorEvaluationContext) -> dg.SensorResult:
        settings, deadline = Settings.from_environment(), time.monotonic() + self._wait_seconds
        cursor = read_cursor(after)

        missing, memories = self._missing_events(settings.lake, context.instance, cursor)
        evaluation = self._evaluate(settings.lake, context.instance, memories)
        # With missing events no wait: they are late already, and a run that ends meanwhile may log newer ones.
        while not missing and self._run_ended(evaluation, context.instance, deadline):
            evaluation = self._evaluate(settings.lake, context.instance, memories)
        now, decision = evaluation.now, evaluation.decision
        drivers = 0 if settings.driver == "own" else len(running_drivers(settings.home))
        requests = self._requests(evaluation, memories, context.instance, drivers=drivers)
        incidents, alerts = self._incidents(evaluation, memories, cursor.incidents, settings)

        late = [f"logged {len(missing)} events of commits that no run logged"] if missing else []
        early = before_window(decision.due, self._by_name, now=now)
        others = other_deployments.lines(memories, now=now.timestamp())
        reason = "\n".join([explain(decision), *others, *early, *late, *alerts])
        if requests:
            context.log.info(reason)  # Dagster takes a reason only from a tick that requests nothing
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else reason,
            cursor=write_cursor(Memories(self._memories_after(decision, memories, requests, now), incidents)),
            asset_events=[
                *self._failed_checks(missing, context.instance),  # before the materializations that would outdate them
                *missing,
                *self._observations.due(evaluation.backlogs, self._by_name, now=now.timestamp()),
            ],
        )

    def _missing_events(
        self, lake: str, instance: dg.DagsterInstance, cursor: Memories
    ) -> tuple[list[dg.AssetMaterialization], dict[str, Memory]]:
        """Events that Dagster lacks, and the memory of each stream once they are logged."""
        streams = self._turns.take(self._streams)
        now = time.time()
        memories = {name: other_deployments.forget_old(cursor.of(name), now=now) for name in self._by_name}
        return reconcile_all(streams, lake=lake, instance=instance, memories=memories, read=self._logs.read_new_entries)

    def _evaluate(self, lake: str, instance: dg.DagsterInstance, memories: Mapping[str, Memory]) -> _Evaluation:
        now = datetime.now(UTC)
        # Runs are read before the backlogs and after: a run that ended in between has drained some of what was read.
        before = assets_in_flight(instance)
        backlogs = self._read_backlogs(self._streams, lake=lake)
        runs = {**assets_in_flight(instance), **before}
        in_flight = {
            s.name: f"run {record.dagster_run.run_id[:8]} for {(now - record.create_timestamp).total_seconds():,.0f} s"
            for s in (self._streams if runs else ())
            if (record := run_in_flight(s, runs))
        }
        decision = streams_to_drain(
            backlogs, streams=self._by_name, in_flight=in_flight, memories=memories, now=now.timestamp()
        )
        return _Evaluation(now, backlogs, in_flight, decision)

    def _requests(
        self, evaluation: _Evaluation, memories: Mapping[str, Memory], instance: dg.DagsterInstance, *, drivers: int
    ) -> list[dg.RunRequest]:
        due = evaluation.decision.due
        # An old table may be large: if Dagster does not know its audit, as after the loss of its database, the daily
        # run makes it.
        names = [d.backlog.stream for d in due]
        new = [self._by_name[name] for name in names if memories[name].reconciled < COMMITS_OF_NEW_TABLE]
        first_checks = checks_of_first_drain(instance, new)
        return run_requests(due, self._by_name, now=evaluation.now, first_checks=first_checks, drivers=max(1, drivers))

    def _incidents(
        self,
        evaluation: _Evaluation,
        memories: Mapping[str, Memory],
        known: Mapping[str, TrackedIncident],
        settings: Settings,
    ) -> tuple[Mapping[str, TrackedIncident], list[str]]:
        """The incidents to keep, and what was sent or could not be.

        Without a webhook none is kept, so that a webhook that is set later gets all that is wrong then.
        """
        if not settings.alert_webhook:
            return {}, []
        return self._alerts(
            evaluation.backlogs,
            settings=settings,
            streams=self._by_name,
            in_flight=evaluation.in_flight,
            memories=memories,
            known=known,
            now=evaluation.now,
        )

    def _run_ended(self, evaluation: _Evaluation, instance: dg.DagsterInstance, deadline: float) -> bool:
        """Wait for the end of a run that prevents a request; false if there is none, or it does not end in time."""
        if evaluation.decision.due or not evaluation.decision.in_flight:
            return False
        while time.monotonic() + POLL_SECONDS < deadline:
            time.sleep(POLL_SECONDS)
            runs = assets_in_flight(instance)
            if not all(run_in_flight(self._by_name[name], runs) for name in evaluation.in_flight):
                return True
        return False

    def _failed_checks(
        self, missing: Sequence[dg.AssetMaterialization], instance: dg.DagsterInstance
    ) -> list[dg.AssetCheckEvaluation]:
        keys = {event.asset_key for event in missing}
        streams = self._streams if keys else ()
        return [e for s in streams if table_key(s) in keys for e in failed_checks(instance, s)]

    def _memories_after(
        self, decision: TickDecision, memories: Mapping[str, Memory], requests: Sequence[dg.RunRequest], now: datetime
    ) -> dict[str, Memory]:
        after = dict(memories)
        for name, memory in memories.items():
            if memory.catching_up != (name in decision.catching_up):
                after[name] = replace(memory, catching_up=not memory.catching_up)
        requested = requested_assets(requests)
        drained = [d.backlog for d in decision.due if table_key(self._by_name[d.backlog.stream]) in requested]
        return after | {b.stream: after[b.stream].requested(progress_digest(b), now.timestamp()) for b in drained}
