"""An engine that only reports drains: for tests about Dagster's behaviour alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import dagster as dg
from dagster import DagsterInstance, DagsterRun
from dagster._core.definitions.job_base import InMemoryJob  # the daemon's steps need its internals
from dagster._core.execution.api import execute_run
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

from kdi_assets.components.dead_letters_asset import letters_asset
from kdi_assets.components.names import check_key, table_key
from kdi_assets.components.table_asset import Audit, table_asset
from kdi_assets.documents.model.stream import CheckName, Cluster, OffsetRange, Stream, TopicPartition
from kdi_assets.errors import Terminal, Transient
from kdi_assets.messages.kafka.errors import BrokerUnreachable
from kdi_assets.operate.monitoring.backlog import Backlog, PartitionBacklog
from kdi_assets.resources.spark import SparkResource
from kdi_assets.streams.audit.audit import AuditReport
from kdi_assets.streams.drain.report import Commit, DrainReport
from kdi_assets.streams.ledger.entry import LedgerEntry, RangeCounts
from kdi_assets.streams.replay.replay_letters import replay_letters
from kdi_assets.streams.replay.report import ReplayReport
from kdi_assets.streams.replay.row_diff import Change

UNREACHABLE = BrokerUnreachable(cluster="main", bootstrap_servers="127.0.0.1:1", detail="refused")
AN_ORIGIN = RemoteJobOrigin(RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("a location"), "a repository"), "a job")
"""The origin of a queued run: Dagster requires one, and nobody reads it."""

Selected = dg.AssetKey | dg.AssetCheckKey


def today() -> date:
    """The date in UTC; computed at each call, because a test run may pass midnight."""
    return datetime.now(UTC).date()


def yesterday() -> date:
    return today() - timedelta(days=1)


def a_stream(table: str = "bronze/web_requests", **fields: Any) -> Stream:
    topic = table.rpartition("/")[2]
    main = Cluster(name="main", bootstrap_servers="127.0.0.1:1")
    given = {"topic": topic, "record_ddl": "a int", "date_expression": "current_date()", "cluster": main, **fields}
    return Stream(table=table, **given)


def an_entry(
    version: int, rows: dict[date, int], *, dead_letters: int = 0, tombstones: int = 0, filtered: int = 0, **fields: Any
) -> LedgerEntry:
    tp = TopicPartition("web_requests", 0)
    covered = OffsetRange(tp, version * 100, version * 100 + sum(rows.values()))
    counts = RangeCounts(covered, covered.offset_count, dead_letters, tombstones, filtered=filtered)
    return LedgerEntry(
        version=version,
        kind="drain",
        app_id="web_requests",
        attempt_id=f"attempt-{version}",
        topic="web_requests",
        topic_id="t",
        table_id="u",
        positions={tp: covered.end},
        ranges=(counts,),
        rows_by_date=rows,
        **{"bytes": 1024, **fields},
    )


def a_commit(version: int, rows: dict[date, int], **fields: Any) -> Commit:
    return Commit.of(an_entry(version, rows, **fields))


class MustDecide(Terminal):
    stream: str
    position: int = 0

    def message_parts(self) -> tuple[str, str, str]:
        return "offsets are gone.", "nothing was written.", "kdi resolve"


class ComesBack(Transient):
    cluster: str

    def message_parts(self) -> tuple[str, str, str]:
        return "no answer.", "nothing was written.", "again"


@dataclass
class ScriptedDrain:
    """Reports its commits one by one, then ends: with a report, or with ``ending``."""

    commits: Sequence[Commit] = ()
    ending: BaseException | None = None
    run_ids: list[str] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)

    def __call__(
        self, stream: Stream, *, run_id: str, on_commit: Callable[[Commit], None], **_unused: object
    ) -> DrainReport:
        self.run_ids.append(run_id)
        self.streams.append(stream.name)
        for commit in self.commits:
            on_commit(commit)
        if self.ending is not None:
            raise self.ending
        return DrainReport(
            stream=stream.name,
            commits=tuple(self.commits),
            position_commits=(),
            positions={TopicPartition(stream.topic, 0): 300},
            backlog_before=300,
            backlog_after=0,
            seconds=1.5,
            cpu_seconds=0.5,
        )


@dataclass
class ScriptedReplay:
    """Reports what a replay of dates would have done, or ends with ``ending``."""

    commit: Commit | None = None
    ending: BaseException | None = None
    asked: list[tuple[date, date]] = field(default_factory=list)

    def __call__(self, stream: Stream, *, first: date, last: date, **_unused: object) -> ReplayReport:
        self.asked.append((first, last))
        if self.ending is not None:
            raise self.ending
        rows, removed = (self.commit.rows_by_date, self.commit.removed_by_date) if self.commit else ({}, {})
        changes: dict[Change, int] = {"moved": 2} if self.commit else {}
        outcomes = {"row": 5, "dead_letter": 1}
        return ReplayReport(stream.name, outcomes, first, last, rows, removed, changes, commit=self.commit)


def no_audit(stream: Stream, **_unused: object) -> AuditReport:
    raise AssertionError(f"the check of {stream.name} was not selected")


def audited(*, complete: bool) -> Audit:
    """An audit with this result for any table."""
    return lambda *_, **__: AuditReport(complete=complete)


def assets_of(defs: dg.Definitions) -> list[dg.AssetsDefinition]:
    return [asset for asset in defs.assets or () if isinstance(asset, dg.AssetsDefinition)]


def materialize(
    instance: DagsterInstance,
    assets: Sequence[dg.AssetsDefinition],
    *selected: Selected,
    day: date | str | None = None,
    tags: Mapping[str, str] | None = None,
) -> dg.ExecuteInProcessResult:
    """A run of the selection, by default of all assets and no check; its result shows how it failed."""
    checks = [key for key in selected if isinstance(key, dg.AssetCheckKey)]
    keys = [key for key in selected if isinstance(key, dg.AssetKey)]
    of_assets = dg.AssetSelection.assets(*(keys if selected else assets)).without_checks()
    return dg.materialize(
        assets,
        selection=of_assets | dg.AssetSelection.checks(*checks) if checks else of_assets,
        instance=instance,
        partition_key=str(day) if day else None,
        resources={"spark": SparkResource()},
        tags=dict(tags or {}),
        raise_on_error=False,
    )


def run(
    instance: DagsterInstance,
    stream: Stream,
    drain: ScriptedDrain,
    *,
    day: date | None = None,
    until: date | None = None,
    replay: ScriptedReplay | None = None,
    audit: Audit | None = None,
    tags: Mapping[str, str] | None = None,
) -> dg.ExecuteInProcessResult:
    """Materialize the asset under today's date, another one, or a range; with ``audit``, its check, too."""
    asset, first = table_asset(stream, drain=drain, replay=replay or ScriptedReplay(), audit=audit or no_audit), day
    selected: list[Selected] = [table_key(stream)]
    selected += [check_key(stream, "every_offset_accounted_for")] if audit else []
    if until:
        return materialize(instance, [asset], *selected, tags={**(tags or {}), **range_tags(first or today(), until)})
    return materialize(instance, [asset], *selected, day=first or today(), tags=tags)


def events(instance: DagsterInstance, key: dg.AssetKey) -> dict[str, dict[str, Any]]:
    """Metadata of the newest materialization of each date."""
    records = instance.fetch_materializations(key, limit=100).records
    found = [record.asset_materialization for record in reversed(records)]
    return {e.partition or "": {n: v.value for n, v in e.metadata.items()} for e in found if e is not None}


def observed(instance: DagsterInstance, key: dg.AssetKey) -> dict[str, Any]:
    """Metadata of the only observation."""
    (record,) = instance.fetch_observations(key, limit=10).records
    assert record.asset_observation is not None
    return {name: value.value for name, value in record.asset_observation.metadata.items()}


def failure(result: dg.ExecuteInProcessResult) -> tuple[str, dict[str, object]]:
    """Description and metadata of the run's failed step, as the UI shows them."""
    (event,) = [e for e in result.all_events if e.event_type_value == "STEP_FAILURE"]
    data = event.step_failure_data.user_failure_data
    assert data is not None
    return data.description or "", {name: value.value for name, value in data.metadata.items()}


def will_retry(instance: DagsterInstance, result: dg.ExecuteInProcessResult) -> bool:
    """The tag that Dagster's retries read."""
    record = instance.get_run_record_by_id(result.run_id)
    assert record is not None
    return record.dagster_run.tags["dagster/will_retry"] == "true"


def tick(
    instance: DagsterInstance, defs: dg.Definitions, cursor: str | None = None, *, name: str = "lag_main"
) -> dg.SensorExecutionData:
    """Evaluate a sensor of a code location as the daemon does; by default the lag sensor."""
    context = dg.build_sensor_context(instance, cursor=cursor, definitions=defs, sensor_name=name)
    return defs.get_repository_def().get_sensor_def(name).evaluate_tick(context)


def execute_request(instance: DagsterInstance, defs: dg.Definitions, request: dg.RunRequest) -> None:
    """Run what a tick requested, without its checks."""
    selected = frozenset(request.asset_selection or ())
    job = defs.resolve_implicit_global_asset_job_def()  # the job of a request for assets
    created = instance.create_run_for_job(job, tags=request.tags, asset_selection=selected)
    assert execute_run(InMemoryJob(job), created._replace(asset_check_selection=frozenset()), instance).success


def range_tags(first: date, last: date) -> dict[str, str]:
    """The tags of a run over a range of dates, as a backfill starts it."""
    bounds = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    return {name: day.isoformat() for name, day in bounds.items()}


def unfinished_run(
    instance: DagsterInstance,
    stream: Stream,
    *,
    status: str = "STARTED",
    selected: bool = True,
    letters: bool = False,
    tags: Mapping[str, str] | None = None,
) -> DagsterRun:
    """A run of the stream's table, or of its letters, that nobody executes; selected or as part of a whole job."""
    of_letters = letters_asset(stream, replay=replay_letters)
    asset = of_letters if letters else table_asset(stream, drain=ScriptedDrain(), audit=no_audit)
    defs = dg.Definitions(assets=[asset], resources={"spark": SparkResource()})
    return instance.create_run_for_job(
        defs.resolve_implicit_global_asset_job_def(),
        status=dg.DagsterRunStatus(status),
        remote_job_origin=AN_ORIGIN,
        asset_selection=frozenset(asset.keys) if selected else None,
        tags=dict(tags or {"dagster/partition": today().isoformat()}),
    )


def retry(
    instance: DagsterInstance, stream: Stream, drain: ScriptedDrain, *, root: dg.ExecuteInProcessResult
) -> DagsterRun:
    """Run the stream's asset again as Dagster retries it: with the partition and the id of the root run."""
    asset = table_asset(stream, drain=drain, audit=audited(complete=True))
    defs = dg.Definitions(assets=[asset], resources={"spark": SparkResource()}, executor=dg.in_process_executor)
    job = defs.resolve_implicit_global_asset_job_def()
    lineage = {"dagster/root_run_id": root.run_id, "dagster/parent_run_id": root.run_id}
    created = instance.create_run_for_job(
        job,
        tags={"dagster/partition": root.dagster_run.tags["dagster/partition"], **lineage},
        root_run_id=root.run_id,
        parent_run_id=root.run_id,
        asset_selection=frozenset({table_key(stream)}),
    )
    execute_run(InMemoryJob(job), created, instance)
    ended = instance.get_run_by_id(created.run_id)
    assert ended is not None
    return ended


def latest_check(instance: DagsterInstance, stream: Stream, name: CheckName) -> dg.AssetCheckEvaluation | None:
    """What the UI shows for a check."""
    key = check_key(stream, name)
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).get(key)
    return record.event.dagster_event.asset_check_evaluation_data if record and record.event else None  # type: ignore[union-attr]


def a_backlog(stream: Stream, offsets: int, *, lag: float | None = None) -> Backlog:
    """A backlog of this many offsets after a hundred drained ones; the oldest waits ``lag`` seconds."""
    partition = PartitionBacklog(100, 100 + offsets, 0, lag_seconds=lag)
    return Backlog(stream.name, {TopicPartition(stream.topic, 0): partition}, offsets, lag, None, 0)
