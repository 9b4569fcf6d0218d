"""Runs that have not ended: of which assets, which of them drain, and whose turn it is.

Drains of a stream wait for each other: of two at once, one would have done its work for nothing. A run that only
replays dates, or dead letters, holds up no drain: their commits pass each other by. Dagster's pools cannot tell the two
apart, for a pool belongs to an op, and the op of a table does both.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from datetime import UTC, date, datetime

import dagster as dg
from dagster import DagsterInstance

from kdi_assets.components.names import table_key
from kdi_assets.components.run_date import dates_meant
from kdi_assets.stream import Stream

REQUESTED_TAG = "kdi/requested_at"
"""When a sensor decided on the run; Dagster creates it a moment later, which may be tomorrow."""
REPLAYING_TAG = "kdi/replaying"
"""On a run, the tables, with commas, that it has drained if it drains, and whose dates it replays since."""
BACKFILL_TAG = "dagster/backfill"
MAX_RUNTIME_TAG = "dagster/max_runtime"
REPLAY_SECONDS = 86_400
"""How long a run may take that replays, unless its tags say otherwise. The instance's own limit is for drains: one
whose process nobody hears of any more would keep its stream from being drained."""
RANGE_TAGS = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 600.0


def requested_at(instance: DagsterInstance, run: dg.DagsterRun) -> datetime:
    """When the root run was requested, in UTC: what a retry does was asked for then, and what a backfill's run does
    when somebody asked for the backfill, which Dagster turns into runs later."""
    root = instance.get_run_record_by_id(run.root_run_id or run.run_id)
    record = root or instance.get_run_record_by_id(run.run_id)  # someone may have deleted the root
    if record is None:
        return datetime.now(UTC)
    tags = record.dagster_run.tags
    if tag := tags.get(REQUESTED_TAG):
        return datetime.fromisoformat(tag)
    if (backfill_id := tags.get(BACKFILL_TAG)) and (backfill := instance.get_backfill(backfill_id)):
        return datetime.fromtimestamp(backfill.backfill_timestamp, UTC)
    return record.create_timestamp.astimezone(UTC)


def assets_of(instance: DagsterInstance, run: dg.DagsterRun) -> frozenset[dg.AssetKey]:
    """The assets that a run will materialize."""
    if run.asset_selection:
        return frozenset(run.asset_selection)
    # Without a selection it is all assets of a job; what that meant is logged when the run is created.
    planned = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
    events = (record.event_log_entry.dagster_event for record in planned.records)
    return frozenset(event.asset_key for event in events if event is not None and event.asset_key is not None)


def drained_by(instance: DagsterInstance, run: dg.DagsterRun) -> frozenset[dg.AssetKey]:
    """Of the assets that a run will materialize, those that it drains, or has not finished draining, if they are
    streams' tables."""
    if not _drains(instance, run):
        return frozenset()
    replaying = _replaying(run)
    return frozenset(key for key in assets_of(instance, run) if key.to_user_string() not in replaying)


def now_replaying(context: dg.AssetExecutionContext, stream: Stream) -> None:
    """Note on the run that from here on it holds up no drain of the stream, and may take longer than one."""
    run = context.instance.get_run_by_id(context.run.run_id) or context.run
    tables = {*_replaying(run), table_key(stream).to_user_string()}
    longer = {MAX_RUNTIME_TAG: str(REPLAY_SECONDS)} if MAX_RUNTIME_TAG not in run.tags else {}
    context.instance.add_run_tags(run.run_id, {REPLAYING_TAG: ",".join(sorted(tables)), **longer})


def wait_for_turn(context: dg.AssetExecutionContext, streams: Sequence[Stream]) -> None:
    """Return once no run drains one of the streams that started before this one, or after ten minutes.

    The sensor requests no second drain; someone who clicks may, and so may a retry. None waits for a run that waits for
    it, because all go by the order in which they started. Nothing but work is saved by it: of two drains at once one
    finds that nothing is left. So it ends, for a run whose process is gone may count as running for hours.
    """
    keys, told, until = {table_key(stream) for stream in streams}, "", time.monotonic() + LONGEST_WAIT_SECONDS
    while (earlier := _earlier_drain(context.instance, keys, context.run.run_id)) and time.monotonic() < until:
        if earlier != told:
            minutes = f"at most {LONGEST_WAIT_SECONDS / 60:.0f} minutes"
            context.log.info(f"waits until run {earlier[:8]} has ended, {minutes}: it drains what this one is to drain")
            told = earlier
        time.sleep(WAIT_SECONDS)


def _earlier_drain(instance: DagsterInstance, keys: Collection[dg.AssetKey], run_id: str) -> str | None:
    running = instance.get_run_records(
        dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING])
    )
    since = {r.dagster_run.run_id: (r.start_time, r.dagster_run.run_id) for r in running if r.start_time is not None}
    if run_id not in since:
        return None  # being ended
    before = [r.dagster_run for r in running if since.get(r.dagster_run.run_id, since[run_id]) < since[run_id]]
    return next((run.run_id for run in before if not drained_by(instance, run).isdisjoint(keys)), None)


def _drains(instance: DagsterInstance, run: dg.DagsterRun) -> bool:
    first, last = (run.tags.get(tag) or run.tags.get("dagster/partition") for tag in RANGE_TAGS)
    try:
        days = [date.fromisoformat(key) for key in (first, last) if key]
    except ValueError:
        return True  # partitions of something else
    if len(days) < 2:
        return True
    return dates_meant(days[0], days[1], requested=requested_at(instance, run)).drains_under is not None


def _replaying(run: dg.DagsterRun) -> set[str]:
    return {name for name in run.tags.get(REPLAYING_TAG, "").split(",") if name}
