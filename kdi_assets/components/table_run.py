"""A run of a table's asset: it drains, replays, or does both, by its dates."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import TYPE_CHECKING

import dagster as dg

from kdi_assets.components.drain_run import BACKFILL_TAG, Drain, drain_and_tell, requested_at
from kdi_assets.components.names import table_key
from kdi_assets.components.replay_run import ReplayDates, replay_and_tell
from kdi_assets.components.run_date import RunDates, dates_meant
from kdi_assets.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def meant_by(context: dg.AssetExecutionContext) -> RunDates:
    """What the run is to do."""
    keys = context.partition_key_range
    return dates_meant(date.fromisoformat(keys.start), date.fromisoformat(keys.end), requested=requested_at(context))


def run_and_tell(
    context: dg.AssetExecutionContext,
    stream: Stream,
    meant: RunDates,
    *,
    drain: Drain,
    replay: ReplayDates,
    lake: str,
    session: Callable[[], SparkSession],
) -> None:
    """Do it; a run that drains and replays drains first, so that what is new does not wait for what is old.

    Raises:
        KdiError: What is refused; what was committed before is told.
    """
    if meant.drains_under:
        drain_and_tell(context, stream, meant.drains_under, drain=drain, lake=lake, session=session)
    if meant.replays:
        first, last = meant.replays
        replay_and_tell(context, stream, first, last, replay=replay, lake=lake, session=session)
    if BACKFILL_TAG in context.run.tags:
        tell_of_the_rest(context, stream)


def tell_of_the_rest(context: dg.AssetExecutionContext, stream: Stream) -> None:
    """Log a materialization of each date of the run that got and lost nothing.

    Only a backfill needs it: one that ends without an event of a date counts that date, and itself, as failed.
    """
    told = dates_told(context, stream)
    for day in context.partition_keys:
        if day not in told:
            # No attempt and no data version: it is of no commit, and the date is what it was.
            context.log_event(dg.AssetMaterialization(table_key(stream), partition=day, metadata={"rows_added": 0}))


def dates_told(context: dg.AssetExecutionContext, stream: Stream) -> set[str | None]:
    """The dates of the table that the run has told of so far."""
    events = context.instance.get_records_for_run(context.run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    logged = (record.event_log_entry.asset_materialization for record in events.records)
    return {e.partition for e in logged if e is not None and e.asset_key == table_key(stream)}
