"""The job and the schedules that make the checks of all tables, so that the UI shows results without a click."""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it decorates, and as types.
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from kdi_assets.components.asset_checks import check_evaluation, made_at
from kdi_assets.components.names import check_key
from kdi_assets.components.run_failures import RETRY_TAG
from kdi_assets.documents.model.stream import COSTLY, CheckName, Stream
from kdi_assets.errors import Transient
from kdi_assets.operate.monitoring.backlog_reader import read_backlogs
from kdi_assets.operate.monitoring.checks.all_checks import run_check
from kdi_assets.operate.monitoring.checks.finding import CheckResult
from kdi_assets.operate.monitoring.checks.subject import CheckSubject
from kdi_assets.resources.dagster_internals import latest_evaluations
from kdi_assets.resources.spark import SparkResource
from kdi_assets.sensors.default_status import described, schedule_status
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = "check_tables"
HOURLY, DAILY = "7 * * * *", "37 2 * * *"
"""Not at the full hour, when other schedules start; the costly checks at night (UTC)."""
COSTLY_TAG = "kdi/costly_checks"
"""On runs of the daily schedule; the instance carries out one of them at a time (``dagster.yaml``)."""
READING_TAG = "kdi/reading"
"""The stream whose table a run reads, or was reading when it was ended."""
RUNS_READ = 100


class CheckTables(dg.Config):
    """Which checks of which streams."""

    costly: bool = Field(default=False, description="Also the checks that need Spark; the audit reads whole tables.")
    streams: list[str] = Field(default=[], description="Names, as the documents give them to tables; empty: all.")


def table_check_job(streams: Collection[Stream]) -> dg.JobDefinition:
    """One job for the checks of all streams.

    Its op logs the results itself. A job that selects the checks would run the op of each table and claim each pool:
    no stream would be drained while all tables are read.
    """

    @dg.op(name="make_checks")
    def make_checks(context: dg.OpExecutionContext, config: CheckTables, spark: SparkResource) -> None:
        selected = [s for s in streams if not config.streams or s.name in config.streams]
        if config.costly:
            selected = least_recently_audited_first(selected, context.instance)
        with spark.watched(context.log.info):
            errors = _log_checks(context, selected, session=spark.session, costly=config.costly)
        if errors:
            raise dg.Failure(
                description="\n".join([f"{len(errors)} checks found an error, or could not be made:", *errors]),
                allow_retries=False,
            )

    return dg.JobDefinition(
        name=JOB,
        graph_def=dg.GraphDefinition(name=JOB, node_defs=[make_checks]),
        resource_defs={"spark": SparkResource().get_resource_definition()},
        executor_def=dg.in_process_executor,
        description="Makes the checks of all tables; fails if one of them finds an error.",
        tags={RETRY_TAG: "false"},
    )


def _log_checks(
    context: dg.OpExecutionContext,
    streams: Sequence[Stream],
    *,
    session: "Callable[[], SparkSession]",
    costly: bool,
) -> list[str]:
    """Make the checks and log each result; return a line for each error."""
    errors, lake = [], Settings.from_environment().lake
    for stream, name, result in run_checks(
        streams,
        lake=lake,
        session=session,
        costly=costly,
        before_costly=lambda s: context.instance.add_run_tags(context.run_id, {READING_TAG: s.name}),
    ):
        if isinstance(result, Transient):
            errors.append(f"{name} of {stream.name} could not be made: {result.message_parts()[0]}")
            continue
        context.log_event(check_evaluation(stream, name, result))  # type: ignore[arg-type]
        if result.level == "error":
            errors.append(f"{name} of {stream.name}: {result.description}")
    return errors


def least_recently_audited_first(streams: Sequence[Stream], instance: dg.DagsterInstance) -> list[Stream]:
    """The streams by the time of their last audit, those without one first.

    A run may be ended before it reaches all of them (``max_runtime_seconds``); the next run begins with the others.
    The stream that it was reading then counts as audited, or a table that takes too long would be first forever.
    """
    records = instance.get_run_records(dg.RunsFilter(job_name=JOB, tags={COSTLY_TAG: "true"}), limit=RUNS_READ)
    ended = {r.dagster_run.tags.get(READING_TAG): r.end_time or r.start_time or 0.0 for r in reversed(records)}
    keys = {stream.name: check_key(stream, "every_offset_accounted_for") for stream in streams}
    latest = latest_evaluations(instance, list(keys.values()))
    made = {name: latest[key] for name, key in keys.items() if key in latest}
    audited = {name: made_at(found, logged_at=at) for name, (found, at) in made.items() if found}
    return sorted(streams, key=lambda s: max(audited.get(s.name, 0.0), ended.get(s.name, 0.0)))


def run_checks(
    streams: Sequence[Stream],
    *,
    lake: str,
    session: "Callable[[], SparkSession]",
    costly: bool,
    before_costly: Callable[[Stream], None] = lambda stream: None,
) -> Iterator[tuple[Stream, CheckName, CheckResult | Transient]]:
    """Make the checks of the streams: first, for all streams, those that need no Spark.

    The backlogs of all streams are read once, before the costly checks: these can take hours.

    Args:
        before_costly: Called with each stream before its costly checks.

    Returns:
        Results; the refusal for a blocking check that could not be made (``all_checks.found``).
    """
    with_backlog = [s for s in streams if "backlog_after_drain" in s.check_names]
    backlogs = {b.stream: b for b in read_backlogs(with_backlog, lake=lake)}
    for stream in streams:
        yield from _of_one(CheckSubject(stream, lake, session, backlog=backlogs.get(stream.name)), costly=False)
    for stream in streams if costly else ():
        before_costly(stream)
        yield from _of_one(CheckSubject(stream, lake, session), costly=True)


def _of_one(subject: CheckSubject, *, costly: bool) -> Iterator[tuple[Stream, CheckName, CheckResult | Transient]]:
    for name in subject.stream.check_names:
        if (name in COSTLY) == costly:
            try:
                result: CheckResult | Transient = run_check(name, subject)
            except Transient as refusal:
                result = refusal
            yield subject.stream, name, result


def check_schedules(job: dg.JobDefinition) -> list[dg.ScheduleDefinition]:
    """Every hour the checks that need no Spark, every day all checks."""
    return [_schedule(job, "cheap_checks", HOURLY, costly=False), _schedule(job, "all_checks", DAILY, costly=True)]


def _schedule(job: dg.JobDefinition, name: str, cron: str, *, costly: bool) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=name,
        job=job,
        cron_schedule=cron,
        execution_timezone="UTC",
        run_config=dg.RunConfig({"make_checks": CheckTables(costly=costly)}),
        tags={COSTLY_TAG: "true"} if costly else None,
        default_status=schedule_status(),
        description=described(
            "All checks of all tables." if costly else "The checks of all tables that need no Spark."
        ),
    )
