"""The checks of all tables on a schedule, so that the UI shows them without anybody clicking."""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it decorates, and as types.
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from kdi_assets.components.asset_checks import check_evaluation, is_told_again
from kdi_assets.components.names import check_key
from kdi_assets.components.run_failures import RETRY_TAG
from kdi_assets.errors import Transient
from kdi_assets.monitoring.backlog_reader import read_backlogs
from kdi_assets.monitoring.checks.all_checks import found
from kdi_assets.monitoring.checks.finding import CheckResult
from kdi_assets.monitoring.checks.subject import CheckSubject
from kdi_assets.settings import Settings
from kdi_assets.stream.stream import COSTLY, CheckName, Stream
from resources.spark import SparkResource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = "check_tables"
HOURLY, DAILY = "7 * * * *", "37 2 * * *"
"""Beside the hour, when everybody else's schedules begin; the costly ones at night (UTC)."""
COSTLY_TAG = "kdi/costly_checks"
"""On the runs of the daily schedule, of which the instance carries out one at a time (``dagster.yaml``)."""
READING_TAG = "kdi/reading"
"""Whose table a run reads, or read when it was ended."""
NIGHTS = 100
Made = tuple[Stream, CheckName, CheckResult | Transient]


class CheckTables(dg.Config):
    """Which checks of which streams."""

    costly: bool = Field(default=False, description="Also those that need Spark; the audit reads whole tables.")
    streams: list[str] = Field(default=[], description="Names, as the documents give them to tables; empty: all.")


def table_check_job(streams: Collection[Stream]) -> dg.JobDefinition:
    """One job for the checks of all streams.

    Its op logs what it found. A job that selects the checks themselves would run the op of each table, and with it
    claim the pool of each: no stream would be drained while the tables of all of them are read.
    """

    @dg.op(name="make_checks")
    def make_checks(context: dg.OpExecutionContext, config: CheckTables, spark: SparkResource) -> None:
        chosen = [s for s in streams if not config.streams or s.name in config.streams]
        if config.costly:
            chosen = longest_unread_first(chosen, context.instance)
        lake, errors = Settings.from_environment().lake, []

        def reads(stream: Stream) -> None:
            context.instance.add_run_tags(context.run_id, {READING_TAG: stream.name})

        with spark.watched():
            for stream, name, finding in findings(
                chosen, lake=lake, session=spark.session, costly=config.costly, reads=reads
            ):
                if isinstance(finding, Transient):
                    errors.append(f"{name} of {stream.name} could not be made: {finding.parts()[0]}")
                    continue
                context.log_event(check_evaluation(stream, name, finding))  # type: ignore[arg-type]
                if finding.level == "error":
                    errors.append(f"{name} of {stream.name}: {finding.said}")
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


def longest_unread_first(streams: Sequence[Stream], instance: dg.DagsterInstance) -> list[Stream]:
    """The streams by when they were audited last, those that never were first.

    A run may be ended before it comes to all of them (``max_runtime_seconds``); the next one begins with the others.
    The stream that it was ended at counts as audited: else a table that takes longer than that would be first for ever.
    """
    records = instance.get_run_records(dg.RunsFilter(job_name=JOB, tags={COSTLY_TAG: "true"}), limit=NIGHTS)
    ended = {r.dagster_run.tags.get(READING_TAG): r.end_time or r.start_time or 0.0 for r in reversed(records)}
    audits = {stream.name: check_key(stream, "every_offset_accounted_for") for stream in streams}
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(audits.values()))
    made = {name: found[key] for name, key in audits.items() if key in found}
    audited = {name: r.event.timestamp for name, r in made.items() if r.event and not is_told_again(r.evaluation)}
    return sorted(streams, key=lambda s: max(audited.get(s.name, 0.0), ended.get(s.name, 0.0)))


def findings(
    streams: Sequence[Stream],
    *,
    lake: str,
    session: "Callable[[], SparkSession]",
    costly: bool,
    reads: Callable[[Stream], None] = lambda stream: None,
) -> Iterator[Made]:
    """The checks of the streams; those that need no Spark first, of all of them.

    The topics are looked at once for all, just before: a costly check may take hours, and what waited before it says
    nothing of what waits after it.

    Of a check that blocks and could not be made, the refusal (``measures.found``).

    Args:
        reads: Told of each stream before its costly checks.
    """
    asking = [s for s in streams if "backlog_after_drain" in s.check_names]
    backlogs = {b.stream: b for b in read_backlogs(asking, lake=lake)}
    for stream in streams:
        yield from _of_one(CheckSubject(stream, lake, session, backlog=backlogs.get(stream.name)), costly=False)
    for stream in streams if costly else ():
        reads(stream)
        yield from _of_one(CheckSubject(stream, lake, session), costly=True)


def _of_one(subject: CheckSubject, *, costly: bool) -> Iterator[Made]:
    for name in subject.stream.check_names:
        if (name in COSTLY) == costly:
            yield subject.stream, name, _made(name, subject)


def _made(name: CheckName, subject: CheckSubject) -> CheckResult | Transient:
    try:
        return found(name, subject)
    except Transient as refusal:
        return refusal


def check_schedules(job: dg.JobDefinition) -> list[dg.ScheduleDefinition]:
    """Hourly what needs no Spark, daily everything."""
    return [_schedule(job, "cheap_checks", HOURLY, costly=False), _schedule(job, "all_checks", DAILY, costly=True)]


def _schedule(job: dg.JobDefinition, name: str, cron: str, *, costly: bool) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=name,
        job=job,
        cron_schedule=cron,
        execution_timezone="UTC",
        run_config=dg.RunConfig({"make_checks": CheckTables(costly=costly)}),
        tags={COSTLY_TAG: "true"} if costly else None,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="All checks of all tables." if costly else "The checks of all tables that need no Spark.",
    )
