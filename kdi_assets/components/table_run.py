"""A run of a table's asset: it drains, replays, or does both, by its dates."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import TYPE_CHECKING

import dagster as dg

from kdi_assets.components.drain_run import Drain, drain_and_tell, requested_at
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
