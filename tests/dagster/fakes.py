"""An engine that only says what a drain would: for tests about Dagster's behaviour alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import dagster as dg
from dagster import DagsterInstance, DagsterRun
from dagster._core.definitions.job_base import InMemoryJob  # what Dagster's daemon does needs its insides
from dagster._core.execution.api import execute_run
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

from kdi_assets.components.assets import Audit, table_asset
from kdi_assets.components.letters_asset import letters_asset
from kdi_assets.components.names import check_key, table_key
from kdi_assets.drain.backlog import Backlog, PartitionBacklog
from kdi_assets.drain.report import Commit, DrainReport
from kdi_assets.ledger.audit import AuditReport
from kdi_assets.replay.compared import Change
from kdi_assets.replay.replay_letters import replay_letters
from kdi_assets.replay.report import ReplayReport
from kdi_assets.sources.kafka import BrokerUnreachable
from kdi_assets.stream import CheckName, KafkaCluster, OffsetRange, Stream, TopicPartition
from resources.spark import SparkResource

UNREACHABLE = BrokerUnreachable(cluster="main", bootstrap_servers="127.0.0.1:1", detail="refused")
AN_ORIGIN = RemoteJobOrigin(RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("a location"), "a repository"), "a job")
"""Where a run comes from that is queued: Dagster wants to know, and nobody looks."""


def today() -> date:
    """The date in UTC; never kept from when a module was loaded, for a run of the tests may go past midnight."""
    return datetime.now(UTC).date()


def yesterday() -> date:
    return today() - timedelta(days=1)


def a_stream(table: str = "bronze/web_requests", **fields: Any) -> Stream:
    topic = table.rpartition("/")[2]
    main = KafkaCluster(name="main", bootstrap_servers="127.0.0.1:1")
    given = {"topic": topic, "record_ddl": "a int", "date_expression": "current_date()", "cluster": main, **fields}
    return Stream(table=table, **given)


def a_commit(version: int, rows: dict[date, int], **fields: Any) -> Commit:
    given = {"dead_letters": 0, "tombstones": 0, "gaps": 0, "bytes": 1024, **fields}
    covered = OffsetRange(TopicPartition("web_requests", 0), version * 100, version * 100 + sum(rows.values()))
    return Commit(version=version, attempt_id=f"attempt-{version}", ranges=(covered,), rows_by_date=rows, **given)


@dataclass
class ScriptedDrain:
    """Tells of its commits one by one, then ends as told: with a report, or with ``ending``."""

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
            settled=(),
            positions={TopicPartition(stream.topic, 0): 300},
            backlog_before=300,
            backlog_after=0,
            seconds=1.5,
            cpu_seconds=0.5,
        )


@dataclass
class ScriptedReplay:
    """Says what a replay of dates would have done, or ends with ``ending``."""

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


def an_audit(*, complete: bool) -> AuditReport:
    return AuditReport(complete=complete)


def no_audit(stream: Stream, **_unused: object) -> AuditReport:
    raise AssertionError(f"the check of {stream.name} was not selected")


def run(
    instance: DagsterInstance,
    stream: Stream,
    drain: ScriptedDrain,
    *,
    day: date | None = None,
    until: date | None = None,
    replay: ScriptedReplay | None = None,
    audit: Audit | None = None,
    tags: dict[str, str] | None = None,
) -> dg.ExecuteInProcessResult:
    """Materialize the asset under today's date, another one, or a range; with ``audit``, its check, too."""
    asset = table_asset(stream, drain=drain, replay=replay or ScriptedReplay(), audit=audit or no_audit)
    return _materialize(instance, [asset], day=day, until=until, checks=audit is not None, tags=tags)


def run_together(
    instance: DagsterInstance, drains: Sequence[tuple[Stream, ScriptedDrain]]
) -> dg.ExecuteInProcessResult:
    """Materialize several streams' assets in one run, as the sensor packs them."""
    return _materialize(instance, [table_asset(s, drain=drain, audit=no_audit) for s, drain in drains])


def _materialize(
    instance: DagsterInstance,
    assets: Sequence[dg.AssetsDefinition],
    *,
    day: date | None = None,
    until: date | None = None,
    checks: bool = False,
    tags: dict[str, str] | None = None,
) -> dg.ExecuteInProcessResult:
    selection = dg.AssetSelection.assets(*assets).without_checks()
    audits = [key for asset in assets for key in asset.check_keys if key.name == "every_offset_accounted_for"]
    return dg.materialize(
        assets,
        selection=selection | dg.AssetSelection.checks(*audits) if checks else selection,
        instance=instance,
        partition_key=None if until else (day or today()).isoformat(),
        resources={"spark": SparkResource()},
        tags={**(tags or {}), **(range_tags(day or today(), until) if until else {})},
        raise_on_error=False,
    )


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
    """A run of the stream's table, or of its letters, that nobody carries out; selected or as part of a whole job."""
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
    asset = table_asset(stream, drain=drain, audit=lambda *_, **__: an_audit(complete=True))
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
    """What the UI shows of a check."""
    key = check_key(stream, name)
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).get(key)
    return record.event.dagster_event.asset_check_evaluation_data if record and record.event else None  # type: ignore[union-attr]


def a_backlog(stream: Stream, offsets: int, *, lag: float | None = None) -> Backlog:
    """So many offsets wait behind a hundred that were drained, the oldest for ``lag`` seconds."""
    partition = PartitionBacklog(100, 100 + offsets, 0, lag_seconds=lag)
    return Backlog(stream.name, {TopicPartition(stream.topic, 0): partition}, offsets, lag, None, 0)
