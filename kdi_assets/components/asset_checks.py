"""The checks of a table as Dagster sees them: what each says, which block, what was found, and what still holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta

import dagster as dg
from dagster import DagsterInstance

from kdi_assets.components.names import check_key, table_key
from kdi_assets.monitoring.checks.finding import CheckResult
from kdi_assets.stream.stream import COSTLY, CheckName, Stream

SAYS: Mapping[CheckName, str] = {
    "every_offset_accounted_for": "Every offset below the positions is in the table, a dead letter, a confirmed gap or "
    "a declared loss, and none is there twice. Reads the whole table; needs Spark where that is not proved by counts.",
    "no_duplicate_coordinates": "No message is there twice in the dates that the last drains touched. Needs Spark.",
    "schema_as_declared": "The table has the columns that the document declares. Needs Spark, reads no data.",
    "positions_never_go_back": "No commit set a position below an earlier one, unless a RESTORE or `kdi resolve` did.",
    "dead_letter_rate": "The share of dead letters over the last 24 hours is within the stream's limit.",
    "dates_in_window": "All rows have dates within the stream's window, by the files' statistics.",
    "backlog_after_drain": "What waits is within `drain_when` after a drain, and drains keep up.",
    "table_health": "Files are not too small and too many, and the log is not too long.",
    "expectations": "Every message that became a row met what the document expects of it, over the last 24 hours.",
    "fresh": "No message waits longer than `freshness` allows; an idle topic is fresh.",
}
CHECKED_BY = "checked_by"


def check_specs(stream: Stream) -> list[dg.AssetCheckSpec]:
    """The stream's checks; those that its document names block what is downstream."""
    return [
        dg.AssetCheckSpec(
            name, asset=table_key(stream), blocking=name in stream.checks.blocking, description=SAYS[name]
        )
        for name in stream.check_names
    ]


def made_with_every_drain(stream: Stream) -> list[dg.AssetCheckKey]:
    """What a sensor's run checks after it drained: what blocks, and starts no Spark of its own, and expectations."""
    wanted = {*stream.checks.blocking, "expectations"} - {*COSTLY}
    return [check_key(stream, name) for name in stream.check_names if name in wanted]


def check_result(evaluation: dg.AssetCheckEvaluation) -> dg.AssetCheckResult:
    """What a check found as the result that a run of the asset gives."""
    return dg.AssetCheckResult(
        passed=evaluation.passed,
        asset_key=evaluation.asset_key,
        check_name=evaluation.check_name,
        severity=evaluation.severity,
        description=evaluation.description,
        metadata=evaluation.metadata,
    )


def check_evaluation(stream: Stream, name: CheckName, finding: CheckResult) -> dg.AssetCheckEvaluation:
    """The finding as the event of a run that is not about the asset."""
    blocking, warns = name in stream.checks.blocking, finding.level == "warn"
    # A warning of a check that blocks passes: Dagster's conditions hold up what is downstream for any that does not,
    # whatever its severity.
    passes_with_warning = warns and blocking
    # Numbers as numbers, so that the UI plots them; lists as lines, the empty ones not at all.
    lists = {name: "\n".join(lines) for name, lines in finding.lists.items() if lines}
    return dg.AssetCheckEvaluation(
        asset_key=table_key(stream),
        check_name=name,
        passed=finding.passed or passes_with_warning,
        severity=dg.AssetCheckSeverity.WARN if warns else dg.AssetCheckSeverity.ERROR,
        description=f"warning: {finding.said}" if passes_with_warning else finding.said,
        metadata={**finding.numbers, **lists},
        blocking=blocking,
    )


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
    for record in instance.event_log_storage.get_asset_check_execution_history(key, limit=1, status=results):
        if found := record.evaluation:
            return dg.AssetCheckEvaluation(  # not a copy: what it said of a partition, and when, is the earlier run's
                asset_key=found.asset_key,
                check_name=found.check_name,
                passed=found.passed,
                severity=found.severity,
                description=found.description,
                metadata={CHECKED_BY: dg.MetadataValue.dagster_run(record.run_id), **found.metadata},
                blocking=found.blocking,
            )
    return None


def is_told_again(evaluation: dg.AssetCheckEvaluation | None) -> bool:
    """Whether a verdict is an earlier run's."""
    return evaluation is not None and CHECKED_BY in evaluation.metadata


def freshness_policy(stream: Stream) -> dg.FreshnessPolicy | None:
    """Dagster's own policy: by the age of the newest materialization, so an idle topic fails it.

    None for a stream that nobody drains: a pause is somebody's decision.
    """
    if stream.freshness is None or stream.status != "active":
        return None
    fail, warn = (timedelta(seconds=s) for s in (stream.freshness.fail_seconds, stream.freshness.warn_seconds))
    return dg.FreshnessPolicy.time_window(fail_window=fail, warn_window=warn)
