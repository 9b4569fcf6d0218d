"""Which assets an unfinished run is about, however it was started."""

from __future__ import annotations

from collections.abc import Mapping

import dagster as dg
from dagster import DagsterInstance

from kdi_assets.components.names import letters_key, table_key
from kdi_assets.components.table_run import BACKFILL_TAG
from kdi_assets.stream.stream import Stream

UNFINISHED = (
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)


def run_of(stream: Stream, in_flight: Mapping[dg.AssetKey, dg.RunRecord]) -> dg.RunRecord | None:
    """The run that will commit to the stream's table: drain it, or replay its dates or its dead letters.

    Args:
        in_flight: As ``assets_in_flight`` gives them.
    """
    return in_flight.get(table_key(stream)) or in_flight.get(letters_key(stream))


def assets_in_flight(instance: DagsterInstance) -> dict[dg.AssetKey, dg.RunRecord]:
    """The assets that queued and running runs will materialize, each with its oldest run.

    It does not matter what started them: a sensor, the UI, the command line. But of a backfill only what has begun:
    its runs wait for each other, for hours, and a drain that is requested meanwhile goes before them.
    """
    newest_first = instance.get_run_records(dg.RunsFilter(statuses=UNFINISHED))
    return {
        key: record
        for record in newest_first
        if not _waits_in_backfill(record.dagster_run)
        for key in _planned(instance, record.dagster_run)
    }


def _waits_in_backfill(run: dg.DagsterRun) -> bool:
    return BACKFILL_TAG in run.tags and run.status in (dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.QUEUED)


def _planned(instance: DagsterInstance, run: dg.DagsterRun) -> frozenset[dg.AssetKey]:
    if run.asset_selection:
        return frozenset(run.asset_selection)
    # Without a selection it is all assets of a job; what that meant is logged when the run is created.
    planned = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
    events = (record.event_log_entry.dagster_event for record in planned.records)
    return frozenset(event.asset_key for event in events if event is not None and event.asset_key is not None)
