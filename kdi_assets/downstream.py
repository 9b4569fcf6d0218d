"""What is built on a stream's table: when an asset of one's own runs, and for which dates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
from dagster import AutomationCondition

from kdi_assets.components.load import load_streams, select_streams
from kdi_assets.components.names import dates

if TYPE_CHECKING:
    from dagster import DagsterInstance

NEW_DATA, FAILED, CHECK_FAILED = "new upstream data", "failed, tried again every hour", "a blocking check failed"
EVERY_HOUR = "0 * * * *"


def on_new_upstream_data() -> AutomationCondition[dg.AssetKey]:
    """Run an asset for every date, week or whole table of which an upstream table got new data.

    Nothing is requested for data that was there before the sensor first saw the asset; a failed date is requested again
    at every full hour; as long as a blocking check of a direct upstream fails, nothing is. Parts can be exchanged by
    label, as ``on_new_upstream_data().replace("failed, tried again every hour", …)``.
    """
    # Neither `eager()` nor `any_deps_updated()`: both lose an update that comes while the asset is requested or runs.
    # No other condition may stand inside this `any_deps_match`: Dagster tells which of update and request came later by
    # the times of the events, and its boolean conditions do not hand these on.
    new_data = AutomationCondition.any_deps_match(AutomationCondition.newly_updated()).since(
        AutomationCondition.newly_requested()
    )
    failed = AutomationCondition.execution_failed() & AutomationCondition.cron_tick_passed(EVERY_HOUR)
    held = AutomationCondition.any_deps_match(BlockingCheckFailed()).with_label(CHECK_FAILED)
    wanted = new_data.with_label(NEW_DATA) | failed.with_label(FAILED)
    # Outside of `since`, so that what is held is remembered and requested later.
    condition = wanted & ~AutomationCondition.in_progress() & ~held
    return condition.with_label("on_new_upstream_data")


def dates_of(stream: str) -> dg.DailyPartitionsDefinition:
    """The dates of a stream's table, for an asset that is built date by date: the same dates, or some would be missed.

    Args:
        stream: As the command line takes it: the table's path, or its last part, or the topic.

    Raises:
        UnknownStream: No document describes it.
        AmbiguousStream: Several fit.
    """
    (selected,) = select_streams(load_streams(), [stream])
    return dates(selected)


class BlockingCheckFailed(AutomationCondition[dg.AssetKey]):
    """A blocking check of the asset failed when it last ended, whatever was materialized since.

    Dagster's own ``check_failed`` forgets the failure with the next materialization, and ``check_passed`` is true only
    of a check that ran after it: a drain does not repair a table, and does not audit it. A check that is running, was
    skipped or crashed says nothing new.
    """

    @property
    def requires_cursor(self) -> bool:
        return False

    @property
    def description(self) -> str:
        return "A blocking check of the asset failed when it last ended"

    def evaluate(self, context: dg.AutomationContext[dg.AssetKey]) -> dg.AutomationResult[dg.AssetKey]:
        graph, instance = context.asset_graph, context.asset_graph_view.instance
        blocking = (check for check in graph.get(context.key).check_keys if graph.get(check).blocking)
        failed = any(_failed(instance, check) for check in blocking)
        return dg.AutomationResult(context, context.candidate_subset if failed else context.get_empty_subset())


def _failed(instance: DagsterInstance, check: dg.AssetCheckKey) -> bool:
    from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus as Status

    ended = instance.event_log_storage.get_asset_check_execution_history(
        check, limit=1, status={Status.SUCCEEDED, Status.FAILED}
    )
    evaluations = [record.evaluation for record in ended if record.status is Status.FAILED]
    return any(e is None or e.severity == dg.AssetCheckSeverity.ERROR for e in evaluations)
