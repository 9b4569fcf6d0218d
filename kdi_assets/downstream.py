"""What is built on a stream's table: when an asset of one's own runs, and for which dates."""

from __future__ import annotations

import dagster as dg
from dagster import AutomationCondition

from kdi_assets.components.names import dates
from kdi_assets.config.loader import load_streams, select_streams

LABEL = "on_new_upstream_data"
FAILED = "failed, tried again every hour"
EVERY_HOUR = "0 * * * *"


def on_new_upstream_data() -> AutomationCondition[dg.AssetKey]:
    """Run an asset for every date, week or whole table of which an upstream table got new data.

    Nothing is requested for data that was there before the sensor first saw the asset. What is held, because a blocking
    check of an upstream failed, is requested when the check has passed. A date whose run failed is requested again at
    every full hour; ``.replace("failed, tried again every hour", …)`` sets another condition in the place of that.
    """
    # Neither `eager()` nor `any_deps_updated()`: both lose an update that comes while the asset is requested or runs.
    # No other condition may stand inside this `any_deps_match`: Dagster tells which of update and request came later by
    # the times of the events, and its boolean conditions do not hand these on.
    new_data = AutomationCondition.any_deps_match(AutomationCondition.newly_updated()).since(
        AutomationCondition.newly_requested()
    )
    failed = AutomationCondition.execution_failed() & AutomationCondition.cron_tick_passed(EVERY_HOUR)
    wanted = new_data.with_label("new upstream data") | failed.with_label(FAILED)
    # In progress and held outside of `since`: there, what is not requested now would be forgotten.
    condition = wanted & ~AutomationCondition.in_progress() & ~_held()
    return condition.with_label(LABEL)


def _held() -> AutomationCondition[dg.AssetKey | dg.AssetCheckKey]:
    """A blocking check of a direct upstream failed, or its verdict is still to come.

    Not "has not passed", as Dagster's ``all_deps_blocking_checks_passed``: drains are not audited one by one.
    """
    no_verdict = AutomationCondition.in_progress() | AutomationCondition.execution_failed()
    held = AutomationCondition.any_checks_match(AutomationCondition.check_failed() | no_verdict, blocking_only=True)
    return AutomationCondition.any_deps_match(held).with_label("a blocking check failed, or is not through")


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
