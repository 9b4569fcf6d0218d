"""A run of the asset that drains, and Dagster told of every commit after it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Protocol

import dagster as dg

from kdi_assets.components import events, letters_events
from kdi_assets.components.column_facts import column_facts
from kdi_assets.components.standing_failures import standing_failures
from kdi_assets.drain.look import look
from kdi_assets.drain.report import Commit, DrainReport
from kdi_assets.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REQUESTED_TAG = "kdi/requested_at"
"""When a sensor decided on the run; Dagster creates it a moment later, which may be tomorrow."""
BACKFILL_TAG = "dagster/backfill"


class Drain(Protocol):
    """``kdi_assets.drain.drain.drain``; a test about Dagster alone passes another."""

    def __call__(
        self,
        stream: Stream,
        *,
        lake: str,
        session: Callable[[], SparkSession],
        run_id: str,
        report: Callable[[str], None],
        on_commit: Callable[[Commit], None],
    ) -> DrainReport: ...


def drain_and_tell(
    context: dg.AssetExecutionContext,
    stream: Stream,
    day: date,
    *,
    drain: Drain,
    lake: str,
    session: Callable[[], SparkSession],
) -> None:
    """Drain the stream; one materialization per touched date after each commit, one observation at the end.

    Args:
        day: Where the observation is shown.

    Raises:
        KdiError: What the drain refuses; what it committed before is told.
    """
    # Commit by commit, and each only after it: a date told of stays told of, whatever happens to the run later. What a
    # crash leaves untold in between, the sensor's reconcile finds in the table's log.
    report = drain(
        stream,
        lake=lake,
        session=session,
        run_id=context.run.run_id,
        report=context.log.info,
        on_commit=lambda commit: tell(context, stream, commit, lake=lake),
    )
    lag_after = look(stream, lake).lag_seconds if report.backlog_after else 0.0
    observation = events.drain_observation(stream, report, lake=lake, day=day.isoformat(), lag_after=lag_after)
    context.log_event(observation)
    context.log.info(events.in_words(stream, report))


def tell(context: dg.AssetExecutionContext, stream: Stream, commit: Commit, *, lake: str) -> None:
    """Log the materializations of one commit: those of the table, and of its dead letters."""
    tell_of_rows(context, stream, commit, lake=lake)
    for event in letters_events.materializations(stream, commit, lake=lake):
        context.log_event(event)


def tell_of_rows(context: dg.AssetExecutionContext, stream: Stream, commit: Commit, *, lake: str) -> None:
    """Log the materializations of the table; say how many rows Dagster's partitions have no date for."""
    if not commit.touched:
        return
    facts = column_facts(stream, lake, version=commit.version, days=commit.touched)
    for failure in standing_failures(context.instance, stream, but=context.selected_asset_check_keys):
        context.log_event(failure)
    letters = events.letters_metadata(stream, [commit], lake=lake)
    for event in events.materializations(stream, commit, facts={**letters, **facts.of_table}, by_date=facts.by_date):
        context.log_event(event)
    if hidden := events.rows_without_partition(stream, commit):
        context.log.warning(f"{stream.name}: {hidden:,} rows have dates outside the window; they are in the table")


def requested_at(context: dg.AssetExecutionContext) -> datetime:
    """When the root run was requested, in UTC: what a retry does was asked for then, and what a backfill's run does
    when somebody asked for the backfill, which Dagster turns into runs later."""
    instance: dg.DagsterInstance = context.instance
    root = instance.get_run_record_by_id(context.run.root_run_id or context.run.run_id)
    record = root or instance.get_run_record_by_id(context.run.run_id)  # someone may have deleted the root
    if record is None:
        return datetime.now(UTC)
    tags = record.dagster_run.tags
    if tag := tags.get(REQUESTED_TAG):
        return datetime.fromisoformat(tag)
    if (backfill_id := tags.get(BACKFILL_TAG)) and (backfill := instance.get_backfill(backfill_id)):
        return datetime.fromtimestamp(backfill.backfill_timestamp, UTC)
    return record.create_timestamp.astimezone(UTC)
