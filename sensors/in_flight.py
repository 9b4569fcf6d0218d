"""Which tables an unfinished run is about, however it was started."""

from __future__ import annotations

import dagster as dg
from dagster import DagsterInstance

UNFINISHED = (
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)


def tables_in_flight(instance: DagsterInstance) -> dict[dg.AssetKey, dg.RunRecord]:
    """The assets that queued and running runs will materialize, each with its oldest run.

    It does not matter what started them: a sensor, the UI, the command line.
    """
    newest_first = instance.get_run_records(dg.RunsFilter(statuses=UNFINISHED))
    return {key: record for record in newest_first for key in _planned(instance, record.dagster_run)}


def _planned(instance: DagsterInstance, run: dg.DagsterRun) -> frozenset[dg.AssetKey]:
    if run.asset_selection:
        return frozenset(run.asset_selection)
    # Without a selection it is all assets of a job; what that meant is logged when the run is created.
    planned = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
    events = (record.event_log_entry.dagster_event for record in planned.records)
    return frozenset(event.asset_key for event in events if event is not None and event.asset_key is not None)
