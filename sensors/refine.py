"""The refine sensor: log missing events, find tables that are behind, and request one run for all their levels.

It goes by the tables' logs, not by Dagster's events: what is new upstream is requested until it is consumed, whoever
committed it. One run refines a table and all that is made of it, whatever the number of dates; an automation condition
would request a run for each date, and each level at a later tick.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime

import dagster as dg
from pydantic import TypeAdapter

from kdi_assets.components.asset_checks import failed_blocking_checks
from kdi_assets.components.names import table_key
from kdi_assets.components.refined_checks import checks_of_each_run
from kdi_assets.components.refined_groups import RefinedGroup, refined_groups
from kdi_assets.components.table_run import REQUESTED_TAG
from kdi_assets.config.refined_documents import upstream_first
from kdi_assets.errors import Transient
from kdi_assets.ledger.latest_version import LatestVersions, LogCache
from kdi_assets.monitoring.refined_status import RefinedStatus, read_refined_status
from kdi_assets.settings import Settings
from kdi_assets.stream.refined_table import RefinedTableSpec
from kdi_assets.stream.stream import Stream
from kdi_assets.wording import duration
from sensors.in_flight import assets_in_flight
from sensors.memory import read_json
from sensors.reconcile_refined import RefinedMemory, missing_refined_events
from sensors.refine_policy import (
    Decision,
    between_times,
    is_time,
    progress,
    remembered,
    wait_seconds,
    what_happened,
    why_due,
    with_downstream,
)

NAME = "refine"
TICK_SECONDS = 1  # Dagster's daemon looks every 5 s
ReadStatus = Callable[[RefinedTableSpec, str], RefinedStatus]
_CURSOR = TypeAdapter(dict[str, RefinedMemory])


def refine_sensors(tables: Collection[RefinedTableSpec], streams: Collection[Stream]) -> list[dg.SensorDefinition]:
    """The sensor of all refined tables; an empty list without any."""
    return [refine_sensor(tables, streams, read=StatusReader())] if tables else []


def refine_sensor(
    tables: Collection[RefinedTableSpec], streams: Collection[Stream], *, read: ReadStatus
) -> dg.SensorDefinition:
    """The sensor that requests runs for refined tables that are behind, or whose ``cron`` has come."""
    tick = _Tick(upstream_first(tables), {s.table: s for s in streams}, refined_groups(tables, streams), read)

    @dg.sensor(
        name=NAME,
        asset_selection=[table_key(table) for table in tables],
        minimum_interval_seconds=TICK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Refines tables with something new upstream, and in the same run what is made of them. Logs the "
        "events of commits that a crash left without them.",
    )
    def refine(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return tick(context)

    return refine


class StatusReader:
    """Reads the status of tables; again only if a table or one of its upstream tables has a new commit."""

    def __init__(self, read: ReadStatus = read_refined_status) -> None:
        self._read, self._versions = read, LogCache[int](LatestVersions())
        self._known: dict[str, RefinedStatus] = {}

    def __call__(self, table: RefinedTableSpec, lake: str) -> RefinedStatus:
        known = self._known.get(table.name)
        if known and known.plan and not known.is_behind and self._unchanged(known, lake):
            return known
        status = self._known[table.name] = self._read(table, lake)
        if status.plan:
            for uri, version in _versions(status, lake).items():
                self._versions.keep(uri, version, version=version)
        return status

    def _unchanged(self, known: RefinedStatus, lake: str) -> bool:
        return all(self._versions.current(uri) == version for uri, version in _versions(known, lake).items())


def _versions(status: RefinedStatus, lake: str) -> dict[str, int]:
    """By URI, the versions that the status was read at."""
    if status.plan is None:
        return {}
    upstream = {changes.uri: changes.version for changes in status.plan.upstreams}
    return {**upstream, status.table.table_uri(lake): status.plan.version}


class _Tick:
    """One evaluation of the sensor, with the caches that the process keeps between ticks."""

    def __init__(
        self,
        tables: Sequence[RefinedTableSpec],
        streams: Mapping[str, Stream],
        groups: Sequence[RefinedGroup],
        read: ReadStatus,
    ) -> None:
        self._tables, self._streams, self._groups, self._read = tables, streams, groups, read
        self._partitions = {table.name: group.partitions for group in groups for table in group.tables}
        self._reconciled: LogCache[int] = LogCache(LatestVersions())

    def __call__(self, context: dg.SensorEvaluationContext) -> dg.SensorResult:
        lake, now = Settings.from_environment().lake, datetime.now(UTC)
        memories = read_json(_CURSOR, context.cursor)
        for table in self._tables:
            if table.cron and not memories.get(table.name, RefinedMemory()).looked_at:
                memories[table.name] = RefinedMemory(looked_at=round(now.timestamp(), 1))  # from now on, not at once
        # Runs are read before the logs: a run that ends in between has committed what the logs then show.
        in_flight = set(assets_in_flight(context.instance))
        missing = self._missing_events(context.instance, lake, memories, in_flight)
        decisions = self._decisions(context.instance, lake, memories, in_flight, now)
        requests = list(self._requests(decisions, now))
        requested = {key for request in requests for key in request.asset_selection or ()}
        for table in self._tables:
            memories[table.name] = remembered(table, decisions[table.name], memories[table.name], requested, now)
        late = [f"logged {len(missing)} events of commits that no run logged"] if missing else []
        reason = "\n".join([f"{name}: {decision.text}" for name, decision in decisions.items() if decision.text] + late)
        if requests:
            context.log.info(reason)  # Dagster takes a reason only from a tick that requests nothing
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else reason or "every refined table is up to date",
            cursor=_CURSOR.dump_json(memories, exclude_defaults=True).decode(),
            asset_events=missing,
        )

    def _missing_events(
        self,
        instance: dg.DagsterInstance,
        lake: str,
        memories: dict[str, RefinedMemory],
        in_flight: Collection[dg.AssetKey],
    ) -> list[dg.AssetMaterialization]:
        """The events that Dagster lacks; the memories are set to what they are once these are logged."""
        missing = []
        for table in self._tables:
            memory, uri = memories.get(table.name, RefinedMemory()), table.table_uri(lake)
            # An unfinished run may be about to log events of its commit.
            if table_key(table) not in in_flight and self._reconciled.current(uri) != memory.reconciled:
                partitions = self._partitions[table.name]
                events, memory = missing_refined_events(table, lake, instance, memory, partitions=partitions)
                self._reconciled.keep(uri, memory.reconciled, version=memory.reconciled)
                missing += events
            memories[table.name] = memory
        return missing

    def _decisions(
        self,
        instance: dg.DagsterInstance,
        lake: str,
        memories: Mapping[str, RefinedMemory],
        in_flight: Collection[dg.AssetKey],
        now: datetime,
    ) -> dict[str, Decision]:
        decisions = {}
        for table in self._tables:
            memory = memories[table.name]
            if table_key(table) in in_flight:
                decisions[table.name] = Decision("a run is in flight", waits=True, looked=False)
            elif is_time(table, memory, now):
                decisions[table.name] = self._decide(table, self._read(table, lake), memory, instance, now)
            elif memory.progress and wait_seconds(memory, now) <= 0:
                decision = self._decide(table, self._read(table, lake), memory, instance, now)
                decisions[table.name] = between_times(decision)
            else:
                decisions[table.name] = Decision("", looked=False)
        return decisions

    def _decide(
        self,
        table: RefinedTableSpec,
        status: RefinedStatus,
        memory: RefinedMemory,
        instance: dg.DagsterInstance,
        now: datetime,
    ) -> Decision:
        if isinstance(status.refusal, Transient):
            # A time of its cron counts once the table could be read.
            return Decision(what_happened(status.refusal, table), looked=False)
        if not status.refusal and not status.is_behind:
            return Decision("")
        if held := self._held_by(table, instance):
            return Decision(f"held: a blocking check of {held} failed", waits=True, looked=False)
        now_at = progress(status)
        suspect = memory.requested_at > 0 and memory.progress == now_at
        if suspect and (left := wait_seconds(memory, now)) > 0:
            return Decision(f"the last run committed nothing; the next one in {duration(left)}", waits=True)
        # A refusal that a retry cannot help makes a run too: it fails, and the UI shows why.
        text = what_happened(status.refusal, table) if status.refusal else why_due(status)
        return Decision(text, due=True, suspect=suspect, progress=now_at)

    def _held_by(self, table: RefinedTableSpec, instance: dg.DagsterInstance) -> str:
        """An upstream table whose blocking check failed; empty if there is none."""
        streams = (self._streams[u.table] for u in table.upstreams if u.table in self._streams)
        return next((s.table for s in streams if failed_blocking_checks(instance, s)), "")

    def _requests(self, decisions: Mapping[str, Decision], now: datetime) -> Iterable[dg.RunRequest]:
        """One run for all tables of the same dates, and one for each that may fail again."""
        healthy: dict[object, list[RefinedTableSpec]] = {}
        for group in self._groups:
            wanted = with_downstream(group, decisions)
            for table in wanted:
                if decisions[table.name].suspect:
                    yield _request(group, [table], decisions, now)
            rest = [table for table in wanted if not decisions[table.name].suspect]
            healthy.setdefault(group.window, []).extend(rest)
        for window, tables in healthy.items():
            if tables:
                yield _request(next(g for g in self._groups if g.window == window), tables, decisions, now)


def _request(
    group: RefinedGroup, tables: Sequence[RefinedTableSpec], decisions: Mapping[str, Decision], now: datetime
) -> dg.RunRequest:
    # No run key: Dagster never forgets a key, and would drop the second request after a failed run.
    today = now.date().isoformat()
    why = "; ".join(f"{t.name}: {decisions[t.name].text}" for t in tables if decisions[t.name].due)
    return dg.RunRequest(
        asset_selection=[table_key(table) for table in tables],
        # None would select every check, and the comparison with a recomputation reads whole dates.
        asset_check_keys=[key for table in tables for key in checks_of_each_run(table)],
        partition_key=today if group.window else None,
        tags={REQUESTED_TAG: now.isoformat(), "kdi/why": why[:1000]},
    )
