"""The jobs and schedules that keep tables in shape: one run for all tables of a group, in one Spark session."""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it decorates, and as types.
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from kdi_assets.components import names
from kdi_assets.components.run_failures import RETRY_TAG
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.served_table import ServedTableSpec
from kdi_assets.documents.model.stream import Stream
from kdi_assets.operate.upkeep.document_upkeep import Document, DocumentUpkeep, keep_document, plan_upkeep
from kdi_assets.operate.upkeep.table_upkeep import TableUpkeep
from kdi_assets.operate.upkeep.unconsumed import Followers
from kdi_assets.resources.spark import SparkResource
from kdi_assets.sensors.default_status import described, schedule_status
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOURLY, DAILY = "23 * * * *", "11 3 * * *"
"""Compaction every hour, everything at night (UTC); not at the times of the checks."""
POOL = "upkeep"
"""Of all upkeep: one run at a time, and never in the way of a drain, whose pool is its stream's."""
PRIORITY = {"dagster/priority": "-10"}
"""Runs of upkeep start when no drain waits for a slot."""


class KeepTables(dg.Config):
    """Which tables are kept in shape, and how thoroughly."""

    thorough: bool = Field(default=False, description="Also VACUUM and the clean-up of logs, which list all files.")
    tables: list[str] = Field(default=[], description="Names, as the documents give them to tables; empty: all.")


def upkeep_jobs(documents: Collection[Document], served: Collection[ServedTableSpec] = ()) -> list[dg.JobDefinition]:
    """A job for each group of tables, of streams and refined tables.

    Args:
        served: Rows that are kept no longer wait for them, as for the refined tables among the documents.
    """
    refined = tuple(d for d in documents if isinstance(d, RefinedTableSpec))
    groups: dict[str, list[Document]] = {}
    for document in documents:
        retired = isinstance(document, Stream) and document.status == "retired"
        if document.upkeep.scheduled and not retired:
            groups.setdefault(names.group(document) or "", []).append(document)
    return [_job(group, own, refined, tuple(served)) for group, own in sorted(groups.items())]


def _job(
    group: str,
    documents: Collection[Document],
    refined: tuple[RefinedTableSpec, ...],
    served: tuple[ServedTableSpec, ...],
) -> dg.JobDefinition:
    name = f"upkeep_{group}" if group else "upkeep"

    @dg.op(name=f"{name}_op", pool=POOL)
    def keep(context: dg.OpExecutionContext, config: KeepTables, spark: SparkResource) -> None:
        selected = [d for d in documents if not config.tables or d.name in config.tables]
        errors: list[str] = []
        followers = Followers(refined, served, Settings.from_environment().home)
        with spark.watched(context.log.info):
            for found in keep_documents(selected, followers, session=spark.session, thorough=config.thorough):
                if found.expiry and found.expiry.is_overdue:
                    context.log.warning(found.expiry.line(found.name))
                    errors.append(found.expiry.line(found.name))
                elif found.expiry:
                    context.log.info(found.expiry.line(found.name))
                for event in observations(found):
                    context.log_event(event)
                errors += [str(error) for error in found.all_errors]
        if errors:
            raise dg.Failure(description="\n".join(["upkeep is not complete:", *errors]), allow_retries=False)

    return dg.JobDefinition(
        name=name,
        graph_def=dg.GraphDefinition(name=name, node_defs=[keep]),
        resource_defs={"spark": SparkResource().get_resource_definition()},
        executor_def=dg.in_process_executor,
        description="Compacts small files; at night also VACUUM, clean-up of logs, and rows that are kept no longer.",
        tags={RETRY_TAG: "false", **PRIORITY},
    )


def keep_documents(
    documents: Collection[Document], followers: Followers, *, session: "Callable[[], SparkSession]", thorough: bool
) -> Iterator[DocumentUpkeep]:
    """Do the upkeep of each document, as a schedule may. A failure of one does not stop the others."""
    lake = Settings.from_environment().lake
    for document in documents:
        now = datetime.now(UTC)
        planned = plan_upkeep(document, lake, now=now, thorough=thorough, followers=followers)
        if planned.expiry:
            planned = replace(planned, expiry=planned.expiry.unless_clock_is_wrong(document.name, now=now))
        yield keep_document(document, lake, planned, session=session, now=now, followers=followers)


def observations(found: DocumentUpkeep) -> Iterator[dg.AssetObservation]:
    """What was done to the tables, at their assets; tables where nothing was due are left out.

    A date that is kept no longer gets an observation of its own: it stays materialized, and nothing that is made of it
    is out of date.
    """
    if found.expiry and (entry := found.expiry.committed):
        key = dg.AssetKey(found.name.split("/"))
        for day, rows in entry.removed_by_date.items():
            metadata: dict[str, Any] = {"kept_no_longer": f"dates before {entry.kept_from}", "rows_removed": rows}
            metadata["delta_version"] = entry.version
            yield dg.AssetObservation(key, partition=day.isoformat(), metadata=metadata)
    cleaned = found.clean_up
    log = {"log_commits_removed": cleaned.removed, "log_commits_archived": cleaned.copied} if cleaned else {}
    for number, table in enumerate(found.tables):
        of_log = log if number == 0 else {}
        if table.compacted or table.vacuumed or table.checkpoint or any(of_log.values()):
            yield dg.AssetObservation(dg.AssetKey(table.table.split("/")), metadata={**_metadata(table), **of_log})


def _metadata(table: TableUpkeep) -> Mapping[str, Any]:
    before, after = table.before, table.after
    of_vacuum = (
        {"files_vacuumed": table.vacuumed.files, "bytes_vacuumed": table.vacuumed.bytes} if table.vacuumed else {}
    )
    return {
        "upkeep": "done",
        "table_version": table.version,
        "files_before": before.files,
        "files_after": after.files,
        "bytes_before": before.bytes,
        "bytes_after": after.bytes,
        "small_files_before": before.small,
        "small_files_after": after.small,
        "compacted": dg.MetadataValue.json(list(table.compacted)),
        **of_vacuum,
    }


def upkeep_schedules(jobs: Collection[dg.JobDefinition]) -> list[dg.ScheduleDefinition]:
    """For each job: compaction every hour, everything every night."""
    return [
        _schedule(job, name, cron, thorough=thorough)
        for job in jobs
        for name, cron, thorough in (("compaction", HOURLY, False), ("nightly", DAILY, True))
    ]


def _schedule(job: dg.JobDefinition, name: str, cron: str, *, thorough: bool) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=f"{job.name}_{name}",
        job=job,
        cron_schedule=cron,
        execution_timezone="UTC",
        run_config=dg.RunConfig({f"{job.name}_op": KeepTables(thorough=thorough)}),
        default_status=schedule_status(),
        description=described(
            "Everything: compaction, VACUUM, clean-up of logs." if thorough else "Compaction of small files."
        ),
    )
