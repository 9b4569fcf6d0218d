"""When what is made of tables runs: assets that users build as soon as their tables have new data; and our tables."""

from __future__ import annotations

import dagster as dg
from dagster import AutomationCondition

LABEL = "on_new_upstream_data"
FAILED = "failed, tried again every hour"
EVERY_HOUR = "0 * * * *"


def on_new_upstream_data() -> AutomationCondition[dg.AssetKey]:
    """Request a partition of an asset (a date, a week, or the whole table) when its upstream table has new data.

    Data from before the first evaluation of the asset requests nothing. While a blocking check of an upstream table
    fails, requests wait until it passes. A date whose run failed is requested again at every full hour;
    ``.replace("failed, tried again every hour", …)`` replaces that by another condition.
    """
    # Neither `eager()` nor `any_deps_updated()`: both lose an update that comes while the asset is requested or runs.
    # This `any_deps_match` takes no other condition inside: Dagster compares the times of update and request, and its
    # boolean conditions do not pass the times on.
    new_data = AutomationCondition.any_deps_match(AutomationCondition.newly_updated()).since(
        AutomationCondition.newly_requested()
    )
    return _unless_busy_or_held(new_data.with_label("new upstream data") | _failed())


def _failed() -> AutomationCondition[dg.AssetKey]:
    failed = AutomationCondition.execution_failed() & AutomationCondition.cron_tick_passed(EVERY_HOUR)
    return failed.with_label(FAILED)


def _unless_busy_or_held(wanted: AutomationCondition[dg.AssetKey]) -> AutomationCondition[dg.AssetKey]:
    # Outside of `since`: inside, what is not requested now would be forgotten.
    condition = wanted & ~AutomationCondition.in_progress() & ~_held()
    return condition.with_label(LABEL)


def _held() -> AutomationCondition[dg.AssetKey | dg.AssetCheckKey]:
    """A blocking check of a direct upstream failed, or is being made.

    Not "has not passed", as in Dagster's ``all_deps_blocking_checks_passed``: not every drain is audited.
    """
    no_result = AutomationCondition.in_progress() | AutomationCondition.execution_failed()
    held = AutomationCondition.any_checks_match(AutomationCondition.check_failed() | no_result, blocking_only=True)
    return AutomationCondition.any_deps_match(held).with_label("a blocking check failed, or is not through")


def when_followed(cron: str | None) -> str:
    """When the follow sensor requests a refined or served table, in words."""
    return f"at {cron} (cron, UTC)" if cron else "something is new upstream"
