"""What a check found last, told again: a failed one that blocks stands until it passes, whatever is drained."""

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
    return [verdict for key in keys if (verdict := newest_verdict(instance, key)) and not verdict.passed]


def newest_verdict(instance: DagsterInstance, key: dg.AssetCheckKey) -> dg.AssetCheckEvaluation | None:
    """The newest result of a check, to be told again: with the run that found it. ``None`` if it was never made."""
    from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus as Status

    results = {Status.SUCCEEDED, Status.FAILED}
    newest = instance.event_log_storage.get_asset_check_execution_history(key, limit=1, status=results)
    found = [_again(record.evaluation, record.run_id) for record in newest if record.evaluation is not None]
    return found[0] if found else None


def is_told_again(evaluation: dg.AssetCheckEvaluation | None) -> bool:
    """Whether a verdict is an earlier run's."""
    return evaluation is not None and CHECKED_BY in evaluation.metadata


def _again(evaluation: dg.AssetCheckEvaluation, run_id: str) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=evaluation.asset_key,
        check_name=evaluation.check_name,
        passed=evaluation.passed,
        severity=evaluation.severity,
        description=evaluation.description,
        metadata={CHECKED_BY: dg.MetadataValue.dagster_run(run_id), **evaluation.metadata},
        blocking=evaluation.blocking,
    )
