"""Which assets an unfinished run will materialize, however it was started."""

from __future__ import annotations

from collections.abc import Mapping

import dagster as dg
from dagster import DagsterInstance
from dagster import DagsterRunStatus as Status

from kdi_assets.components.names import letters_key, table_key
from kdi_assets.components.table_run import BACKFILL_TAG
from kdi_assets.documents.model.stream import Stream

QUEUED = (Status.NOT_STARTED, Status.QUEUED)
UNFINISHED = (*QUEUED, Status.STARTING, Status.STARTED, Status.CANCELING)


def run_in_flight(stream: Stream, in_flight: Mapping[dg.AssetKey, dg.RunRecord]) -> dg.RunRecord | None:
    """The run that will commit to the stream's table: drain it, or replay its dates or its dead letters.

    Args:
        in_flight: As returned by ``assets_in_flight``.
    """
    return in_flight.get(table_key(stream)) or in_flight.get(letters_key(stream))


def assets_in_flight(instance: DagsterInstance) -> dict[dg.AssetKey, dg.RunRecord]:
    """The assets that queued and running runs will materialize, each with its oldest run.

    Queued runs of a backfill do not count: they wait for each other, for hours, and a drain that is requested meanwhile
    is started before them.
    """
    newest_first = instance.get_run_records(dg.RunsFilter(statuses=UNFINISHED))
    return {
        key: record
        for record in newest_first
        if not (BACKFILL_TAG in record.dagster_run.tags and record.dagster_run.status in QUEUED)
        for key in _planned_assets(instance, record.dagster_run)
    }


def _planned_assets(instance: DagsterInstance, run: dg.DagsterRun) -> frozenset[dg.AssetKey]:
    if run.asset_selection:
        return frozenset(run.asset_selection)
    # A run without a selection covers all assets of its job; Dagster logs these when it creates the run.
    planned = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
    events = (record.event_log_entry.dagster_event for record in planned.records)
    return frozenset(event.asset_key for event in events if event is not None and event.asset_key is not None)
