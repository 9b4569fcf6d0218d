"""Batches on clusters of EMR in Dagster: an asset that runs one, its schedule, and what ends a cluster left behind.

A Python file beside the documents declares one: ``defs = emr_batch(EmrBatch(...))``. What the cluster commits becomes
events of the tables by the sensors that log commits made without Dagster (``reconcile.py``).
"""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it decorates, and as types.
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import dagster as dg
from dagster import DagsterInstance

from kdi_assets.components.run_failures import refusals_as_failures
from kdi_assets.documents.loading.loader import defs_folder, load_folder
from kdi_assets.errors import KdiError
from kdi_assets.operate.monitoring.backlog_reader import read_backlogs
from kdi_assets.operate.monitoring.follower_rows import read_follower_rows
from kdi_assets.runtime.emr.batch import EmrBatch
from kdi_assets.runtime.emr.clusters import BatchCluster, end_cluster, live_clusters, run_to_its_end
from kdi_assets.runtime.threads import start_in_thread
from kdi_assets.sensors.default_status import described, schedule_status, sensor_status
from kdi_assets.sensors.in_flight import UNFINISHED, assets_in_flight
from kdi_assets.settings import Settings
from kdi_assets.wording import counted

TICK_SECONDS = 60
LOOK_SECONDS = 30.0
"""How long the schedule looks at what is due, before a batch begins in any case."""
GRACE_SECONDS = 120.0
"""So long after the end of a run its cluster is left: a retry of the run, which comes within seconds, takes it over."""
ROOT_TAG = "dagster/root_run_id"
RESUME_TAGS = ("dagster/is_resume_retry", "dagster/is_asset_resume_retry")
"""One is true of Dagster's own retry (by default; not with strategy ``ALL_STEPS``) and of "Re-execute from failure" in
the UI, none of other runs."""


def emr_batch(batch: EmrBatch, *, poll_seconds: float = 30.0) -> dg.Definitions:
    """The asset ``emr/NAME``, its schedule ``emr_NAME``, and the sensor ``emr_NAME_left_behind``.

    Args:
        poll_seconds: Between two looks at a cluster.
    """
    asset = _asset(batch, poll_seconds)
    return dg.Definitions(assets=[asset], schedules=[_schedule(batch, asset)], sensors=[_sensor(batch)])


def _asset(batch: EmrBatch, poll_seconds: float) -> dg.AssetsDefinition:
    @dg.asset(
        key=["emr", batch.name],
        group_name="emr",
        kinds={"emr"},
        pool=f"emr_{batch.name}",
        description="Starts a cluster of EMR, which drains all streams, refines all tables, and ends.",
    )
    def ended_cluster(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        with refusals_as_failures(context):
            ended = run_to_its_end(
                batch,
                context.run.run_id,
                attempts={r.dagster_run.run_id for r in attempts(context.instance, context.run.run_id)},
                resumes=resumes(context.instance, context.run),
                lake=Settings.from_environment().lake,
                report=context.log.info,
                poll_seconds=poll_seconds,
            )
        return dg.MaterializeResult(
            metadata={
                "cluster": dg.MetadataValue.url(ended.page),
                "cluster_minutes": round(ended.minutes, 1),
                "normalized_instance_hours": ended.instance_hours,
            }
        )

    return ended_cluster


def _schedule(batch: EmrBatch, asset: dg.AssetsDefinition) -> dg.ScheduleDefinition:
    @dg.schedule(
        name=f"emr_{batch.name}",
        target=[asset],
        cron_schedule=batch.cron,
        execution_timezone="UTC",
        default_status=schedule_status(),
        description=described(f"Runs the batch {batch.name}, unless one runs already or nothing is due."),
    )
    def begin(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        if running := assets_in_flight(context.instance).get(asset.key):
            return dg.SkipReason(f"run {running.dagster_run.run_id[:8]} of the batch has not ended")
        if nothing_is_due(context.log.warning):
            return dg.SkipReason("nothing is due: no stream has a backlog, and no refined table is behind")
        return dg.RunRequest()

    return begin


def nothing_is_due(report: Callable[[str], None]) -> bool:
    """Whether a batch would find nothing to do, by the documents of this location; false if that cannot be seen."""
    try:
        # With a time limit: Dagster ends a tick after a minute, and then no batch would begin.
        return start_in_thread(_nothing_waits, name="due for EMR").result(LOOK_SECONDS)
    except Exception as unseen:  # noqa: BLE001 - said; a batch for nothing costs less than one that never begins
        report(f"what is due was not seen, so the batch begins: {type(unseen).__name__}: {unseen}")
        return False


def _nothing_waits() -> bool:
    settings, documents = Settings.from_environment(), load_folder(defs_folder())
    lake, home, refined = settings.lake, settings.home, list(documents.refined.values())
    streams = [stream for stream in documents.streams.values() if stream.status != "retired"]
    if not (streams or refined):
        return False
    for backlog in read_backlogs(streams, lake=lake):
        if backlog.offsets or backlog.refusal or backlog.needs_position_commit or not backlog.known:
            return False
    rows = read_follower_rows(refined, lake=lake, home=home, now=datetime.now(UTC))
    return all(row.state in ("OK", "not begun") for row in rows)


def _sensor(batch: EmrBatch) -> dg.SensorDefinition:
    @dg.sensor(
        name=f"emr_{batch.name}_left_behind",
        minimum_interval_seconds=TICK_SECONDS,
        default_status=sensor_status(),
        description=described("Ends clusters of the batch whose run is over, or that work for longer than they may."),
    )
    def end_left_behind(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        live, lines, refused = live_clusters(batch), list[str](), list[KdiError]()
        for cluster in live:
            try:
                lines += _end_if_left_behind(batch, cluster, context.instance)
            except KdiError as refusal:  # the others are to end all the same
                refused.append(refusal)
        for line in lines:
            context.log.info(line)
        if refused:
            raise refused[0]
        return dg.SkipReason("\n".join([f"{counted(len(live), 'cluster')} of the batch", *lines]))

    return end_left_behind


def _end_if_left_behind(batch: EmrBatch, cluster: BatchCluster, instance: DagsterInstance) -> Iterator[str]:
    """End a cluster that no run watches any more, and say so."""
    runs = attempts(instance, cluster.run_id)
    if not runs:
        yield f"{cluster.id} was started by a run that this Dagster does not know: left alone"
        return
    overdue = (datetime.now(UTC) - cluster.created).total_seconds() - 60 * batch.most_minutes
    if overdue < GRACE_SECONDS and any(_may_watch(run) for run in runs):
        return
    end_cluster(cluster.id)
    yield f"ended {cluster.id}, which run {cluster.run_id[:8]} left behind"


def _may_watch(run: dg.RunRecord) -> bool:
    """Whether the run has not ended, or ended so lately that a retry may come."""
    return run.dagster_run.status in UNFINISHED or time.time() - (run.end_time or 0.0) < GRACE_SECONDS


def attempts(instance: DagsterInstance, run_id: str) -> list[dg.RunRecord]:
    """The run, and all runs of which one is a retry of the other; empty if the instance does not know it."""
    run = instance.get_run_by_id(run_id)
    if run is None:
        return []
    root = run.root_run_id or run_id
    first = instance.get_run_records(dg.RunsFilter(run_ids=[root]))
    return [*first, *instance.get_run_records(dg.RunsFilter(tags={ROOT_TAG: root}))]


def resumes(instance: DagsterInstance, run: dg.DagsterRun) -> dict[str, datetime]:
    """The failed runs with which a run goes on, and when each was created; none if it starts from the beginning."""
    found: dict[str, datetime] = {}
    while run.parent_run_id and any(run.tags.get(tag) == "true" for tag in RESUME_TAGS):
        record = instance.get_run_record_by_id(run.parent_run_id)
        if record is None or record.dagster_run.is_success:  # it was deleted, or the tag is a copy of the parent's
            break
        run = record.dagster_run
        found[run.run_id] = record.create_timestamp
    return found
