"""The follow sensor: log missing events, find followers that are behind, and request runs; announce what no run has.

It goes by the tables' logs and the databases, not by Dagster's events: what is new upstream is requested until it is
consumed, whoever committed it. One run refines a table and all that is made of it, whatever the number of dates; an
automation condition would request a run for each date, and each level at a later tick.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import dagster as dg
from pydantic import TypeAdapter

from kdi_assets.components.asset_checks import failed_blocking_checks
from kdi_assets.components.names import table_key
from kdi_assets.components.refined_checks import checks_of_each_run
from kdi_assets.components.refined_groups import RefinedGroup, refined_groups
from kdi_assets.components.table_run import REQUESTED_TAG
from kdi_assets.delta.versions import LatestVersions, LogCache
from kdi_assets.documents.loading.refined_documents import upstream_first
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.served_table import ServedTableSpec
from kdi_assets.documents.model.stream import Stream
from kdi_assets.operate.monitoring.follower_rows import announced_streams
from kdi_assets.sensors.announcements import Announcers
from kdi_assets.sensors.default_status import described, sensor_status
from kdi_assets.sensors.follow_policy import (
    FollowDecision,
    cron_has_come,
    decide,
    held,
    outside_cron,
    packs,
    remembered,
    rests,
    wait_seconds,
    with_downstream,
)
from kdi_assets.sensors.followers import Follower, IdleTables, RefinedFollower, ServedFollower, StatusReader
from kdi_assets.sensors.in_flight import assets_in_flight
from kdi_assets.sensors.memory import FollowerMemory, read_json
from kdi_assets.sensors.policy import seconds_since
from kdi_assets.sensors.reconcile_refined import missing_refined_events
from kdi_assets.sensors.requests import PARTITION_TAG, requested_assets
from kdi_assets.sensors.table_log import Turns
from kdi_assets.sensors.waiting import PatientTick
from kdi_assets.settings import Settings

NAME = "follow"
UP_TO_DATE = "every table is up to date"
TICK_SECONDS = 1  # Dagster's daemon looks every 5 s
_CURSOR = TypeAdapter(dict[str, FollowerMemory])


def follow_sensors(
    refined: Collection[RefinedTableSpec], served: Collection[ServedTableSpec], streams: Collection[Stream]
) -> list[dg.SensorDefinition]:
    """The sensor of all refined and served tables, and of streams that announce; an empty list without any."""
    followers: list[RefinedFollower | ServedFollower] = [RefinedFollower(table) for table in upstream_first(refined)]
    followers += [ServedFollower(table) for table in served]
    return [follow_sensor(followers, streams)] if followers or announced_streams(streams) else []


def follow_sensor(
    followers: Sequence[RefinedFollower | ServedFollower],
    streams: Collection[Stream],
    *,
    versions: LatestVersions | None = None,
) -> dg.SensorDefinition:
    """The sensor that requests runs for followers that are behind, or whose ``cron`` has come.

    Args:
        followers: Refined tables before those that are made of them.
    """
    tick = _FollowTick(followers, streams, versions or LatestVersions())

    @dg.sensor(
        name=NAME,
        asset_selection=[follower.key for follower in followers] or None,
        minimum_interval_seconds=TICK_SECONDS,
        default_status=sensor_status(),
        description=described(
            "Refines and serves tables with something new upstream; tables that are made of each other are refined in "
            "one run. Logs the events of commits that a crash left without them, and announces commits that no run "
            "announced."
        ),
    )
    def follow(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return tick(context)

    return follow


@dataclass(frozen=True, slots=True)
class _TickInputs:
    """What a tick has read before it decides.

    Attributes:
        memories: By the follower's name; what the cursor is at the end of the tick.
        in_flight: The assets of unfinished runs.
    """

    instance: dg.DagsterInstance
    lake: str
    now: datetime
    memories: dict[str, FollowerMemory]
    in_flight: Mapping[dg.AssetKey, dg.RunRecord]

    def memory(self, name: str) -> FollowerMemory:
        return self.memories.get(name, FollowerMemory())


class _FollowTick:
    """One evaluation of the sensor, with the caches that the process keeps between ticks."""

    def __init__(
        self,
        followers: Sequence[RefinedFollower | ServedFollower],
        streams: Collection[Stream],
        versions: LatestVersions,
    ) -> None:
        self._followers, self._streams = followers, {stream.table: stream for stream in streams}
        refined = [follower.table for follower in followers if isinstance(follower, RefinedFollower)]
        self._refined = upstream_first(refined)
        self._groups = refined_groups(self._refined, streams)
        self._partitions = {table.name: group.partitions for group in self._groups for table in group.tables}
        self._read, self._announcers = StatusReader(versions), Announcers(versions)
        self._announcing = announced_streams(streams)
        read = (upstream for follower in followers for upstream in follower.upstreams)
        self._idle = IdleTables(versions, [*self._refined, *self._announcing, *read])
        self._reconciled: LogCache[int] = LogCache(versions)
        self._turns = Turns()
        self._at_work = threading.Lock()
        self._patient = PatientTick(UP_TO_DATE)

    def __call__(self, context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return self._patient(lambda cursor: self._look(cursor, context), context)

    def _look(self, cursor: str | None, context: dg.SensorEvaluationContext) -> dg.SensorResult:
        # Dagster gives a tick up after a minute; its thread works on, and two would announce the same at once.
        if not self._at_work.acquire(blocking=False):
            return dg.SensorResult(skip_reason="the tick before is still at work", cursor=cursor)
        try:
            return self._decide_all(cursor, context)
        finally:
            self._at_work.release()

    def _decide_all(self, cursor: str | None, context: dg.SensorEvaluationContext) -> dg.SensorResult:
        lake, now, instance = Settings.from_environment().lake, datetime.now(UTC), context.instance
        memories = read_json(_CURSOR, cursor)
        for follower in self._followers:
            memory = memories.get(follower.name, FollowerMemory())
            if follower.cron and (not memory.looked_at or seconds_since(memory.looked_at, now.timestamp()) == math.inf):
                # From now on, not at once.
                memories[follower.name] = replace(memory, looked_at=round(now.timestamp(), 1))
        # Runs are read before the logs: a run that ends in between has committed what the logs then show.
        inputs = _TickInputs(instance, lake, now, memories, assets_in_flight(instance))
        self._idle.update(instance, inputs.in_flight, lake)
        missing = self._missing_events(inputs)
        decisions = self._decisions(inputs)
        requests = list(self._requests(decisions, now))
        requested = requested_assets(requests)
        for follower in self._followers:
            name = follower.name
            inputs.memories[name] = remembered(follower, decisions[name], inputs.memory(name), requested, now)
            if follower.key in requested:
                self._read.forget(follower)  # the run may end before the next tick
        announced = self._announcers.catch_up(self._announcing, lake=lake, in_flight=inputs.in_flight)
        late = [f"logged {len(missing)} events of commits that no run logged"] if missing else []
        told = [f"{name}: {decision.text}" for name, decision in decisions.items() if decision.text]
        reason = "\n".join([*told, *self._before_dates(decisions, now), *late, *announced])
        if requests:
            context.log.info(reason)  # Dagster takes a reason only from a tick that requests nothing
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else reason or UP_TO_DATE,
            cursor=_CURSOR.dump_json(inputs.memories, exclude_defaults=True).decode(),
            asset_events=missing,
        )

    def _missing_events(self, inputs: _TickInputs) -> list[dg.AssetMaterialization]:
        """The events that Dagster lacks; the memories are set to what they are once these are logged."""
        missing = []
        for table in self._turns.take(self._refined):
            memory, uri = inputs.memory(table.name), table.table_uri(inputs.lake)
            # An unfinished run may be about to log events of its commit.
            if table_key(table) not in inputs.in_flight and self._reconciled.current(uri) != memory.reconciled:
                partitions = self._partitions[table.name]
                events, memory = missing_refined_events(
                    table, inputs.lake, inputs.instance, memory, partitions=partitions
                )
                self._reconciled.keep(uri, memory.reconciled, version=memory.reconciled)
                missing += events
            inputs.memories[table.name] = memory
        return missing

    def _decisions(self, inputs: _TickInputs) -> dict[str, FollowDecision]:
        decisions = {}
        for follower in self._followers:
            memory = inputs.memory(follower.name)
            if follower.key in inputs.in_flight:
                self._read.forget(follower)
                decisions[follower.name] = FollowDecision("a run is in flight", waits=True, looked=False)
            elif cron_has_come(follower, memory, inputs.now):
                decisions[follower.name] = self._decide(follower, memory, inputs)
            elif memory.progress and wait_seconds(memory, inputs.now) <= 0:
                decisions[follower.name] = outside_cron(self._decide(follower, memory, inputs), memory)
            else:
                decisions[follower.name] = FollowDecision("", looked=False)
        return decisions

    def _decide(self, follower: Follower, memory: FollowerMemory, inputs: _TickInputs) -> FollowDecision:
        """What to do about a follower. Of one that may not run, nothing is read, however much is new upstream."""
        known = self._read.last(follower)
        wanted = known is None or known.is_behind or known.refusal is not None
        if wanted and (by := self._held_by(follower, inputs.instance)):
            return held(by)
        # The last run committed nothing, unless someone else has.
        if known and wanted and memory.progress == known.progress:
            left = wait_seconds(memory, inputs.now)
            if left > 0 and not self._read.has_committed(follower, inputs.lake):
                return rests(left)
            if left <= 0:
                self._read.forget(follower)  # someone may have mended what no log shows, such as a right in a database
        decision = decide(follower, self._read(follower, inputs.lake), memory, inputs.now)
        if decision.due and not wanted and (by := self._held_by(follower, inputs.instance)):
            return held(by)
        return decision

    def _held_by(self, follower: Follower, instance: dg.DagsterInstance) -> str:
        """An upstream table whose blocking check failed; empty if there is none."""
        streams = (self._streams[u.table] for u in follower.upstreams if u.table in self._streams)
        return next((stream.table for stream in streams if failed_blocking_checks(instance, stream)), "")

    def _requests(self, decisions: Mapping[str, FollowDecision], now: datetime) -> Iterable[dg.RunRequest]:
        """As few runs as Dagster allows; one for each table that may fail again, and for each served table."""
        healthy: dict[str, RefinedGroup] = {}
        for group in self._groups:
            if not group.has_begun(now.date()):
                continue  # Dagster would refuse the tick; `_before_dates` names its tables
            for table in with_downstream(group, decisions):
                if decisions[table.name].suspect:
                    yield _request([table], decisions, now, dated=group.window is not None)
                else:
                    healthy[table.name] = group
        for dated in (True, False):
            wanted = {name: group for name, group in healthy.items() if (group.window is not None) is dated}
            for tables in packs(self._refined, wanted):
                yield _request(tables, decisions, now, dated=dated)
        for follower in self._followers:
            if isinstance(follower, ServedFollower) and decisions[follower.name].due:
                yield _serve_request(follower, decisions[follower.name], now)

    def _before_dates(self, decisions: Mapping[str, FollowDecision], now: datetime) -> list[str]:
        """A line for each table that is due and cannot be requested because its dates have not begun."""
        return [
            f"{table.name}: its dates begin on {group.window[0]}; no run before that"
            for group in self._groups
            if group.window and not group.has_begun(now.date())
            for table in group.tables
            if decisions[table.name].due
        ]


def _request(
    tables: Sequence[RefinedTableSpec], decisions: Mapping[str, FollowDecision], now: datetime, *, dated: bool
) -> dg.RunRequest:
    # No run key: Dagster never forgets a key, and would drop the second request after a failed run.
    today = now.date().isoformat()
    why = "; ".join(f"{t.name}: {decisions[t.name].text}" for t in tables if decisions[t.name].due)
    return dg.RunRequest(
        asset_selection=[table_key(table) for table in tables],
        # None would select every check, and the comparison with a recomputation reads whole dates.
        asset_check_keys=[key for table in tables for key in checks_of_each_run(table)],
        partition_key=today if dated else None,
        # Dagster refuses a request for assets with different partitions, unless its partition is resolved already.
        tags={REQUESTED_TAG: now.isoformat(), "kdi/why": why[:1000], **({PARTITION_TAG: today} if dated else {})},
    )


def _serve_request(follower: ServedFollower, decision: FollowDecision, now: datetime) -> dg.RunRequest:
    why = f"{follower.name}: {decision.text}"
    # Drains go first: databases wait longer than retention does.
    tags = {REQUESTED_TAG: now.isoformat(), "kdi/why": why[:1000], "dagster/priority": "-1"}
    return dg.RunRequest(asset_selection=[follower.key], asset_check_keys=[], tags=tags)
