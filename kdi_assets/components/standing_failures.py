"""A failed check that blocks stands until it passes, whatever is drained in between."""

from __future__ import annotations

from collections.abc import Collection

import dagster as dg
from dagster import DagsterInstance

from kdi_assets.components.names import check_key
from kdi_assets.stream import Stream

CHECKED_BY = "checked_by"


def standing_failures(
    instance: DagsterInstance, stream: Stream, *, but: Collection[dg.AssetCheckKey] = ()
) -> list[dg.AssetCheckEvaluation]:
    """The newest results of the blocking checks, of those that failed: to be told *before* new materializations.

    Dagster takes a check's result for outdated as soon as something is materialized after it, unless the same run told
    both. A drain repairs nothing: without this, the next one would release what the failure holds.

    Args:
        but: Checks that the run makes itself.
    """
    keys = [key for name in stream.checks.blocking if (key := check_key(stream, name)) not in but]
    return [failure for key in keys for failure in _newest_if_failed(instance, key)]


def _newest_if_failed(instance: DagsterInstance, key: dg.AssetCheckKey) -> list[dg.AssetCheckEvaluation]:
    from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus as Status

    results = {Status.SUCCEEDED, Status.FAILED}
    newest = instance.event_log_storage.get_asset_check_execution_history(key, limit=1, status=results)
    failed = [(record.evaluation, record.run_id) for record in newest if record.status is Status.FAILED]
    return [_again(evaluation, run_id) for evaluation, run_id in failed if evaluation is not None]


def _again(evaluation: dg.AssetCheckEvaluation, run_id: str) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=evaluation.asset_key,
        check_name=evaluation.check_name,
        passed=False,
        severity=evaluation.severity,
        description=evaluation.description,
        metadata={CHECKED_BY: dg.MetadataValue.dagster_run(run_id), **evaluation.metadata},
        blocking=evaluation.blocking,
    )
