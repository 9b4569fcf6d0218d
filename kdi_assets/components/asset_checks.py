"""The checks of a table as Dagster sees them: what each says, which block, and what was found."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import dagster as dg

from kdi_assets.checks.finding import Finding
from kdi_assets.components.names import check_key, table_key
from kdi_assets.stream import COSTLY, CheckName, Stream

SAYS: Mapping[CheckName, str] = {
    "every_offset_accounted_for": "Every offset below the positions is in the table, a dead letter, a confirmed gap or "
    "a declared loss, and none is there twice. Reads the whole table with Spark.",
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
SEVERITY = {"warn": dg.AssetCheckSeverity.WARN, "error": dg.AssetCheckSeverity.ERROR}


def check_specs(stream: Stream) -> list[dg.AssetCheckSpec]:
    """The stream's checks; those that its document names block what is downstream."""
    return [
        dg.AssetCheckSpec(
            name,
            asset=table_key(stream),
            blocking=name in stream.checks.blocking,
            description=SAYS[name],
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


def check_evaluation(stream: Stream, name: CheckName, finding: Finding) -> dg.AssetCheckEvaluation:
    """The finding as the event of a run that is not about the asset."""
    return dg.AssetCheckEvaluation(
        asset_key=table_key(stream),
        check_name=name,
        passed=_passes(stream, name, finding),
        severity=_severity(finding),
        description=_said(stream, name, finding),
        metadata=_metadata(finding),
        blocking=name in stream.checks.blocking,
    )


def freshness_policy(stream: Stream) -> dg.FreshnessPolicy | None:
    """Dagster's own policy: by the age of the newest materialization, so an idle topic fails it.

    None for a stream that nobody drains: a pause is somebody's decision.
    """
    if stream.freshness is None or stream.status != "active":
        return None
    fail, warn = (timedelta(seconds=s) for s in (stream.freshness.fail_seconds, stream.freshness.warn_seconds))
    return dg.FreshnessPolicy.time_window(fail_window=fail, warn_window=warn)


def _passes(stream: Stream, name: CheckName, finding: Finding) -> bool:
    """A warning of a check that blocks passes: Dagster's conditions hold up what is downstream for any that does not,
    whatever its severity."""
    return finding.passed or (finding.level == "warn" and name in stream.checks.blocking)


def _said(stream: Stream, name: CheckName, finding: Finding) -> str:
    passes = finding.level == "warn" and _passes(stream, name, finding)
    return f"warning: {finding.said}" if passes else finding.said


def _severity(finding: Finding) -> dg.AssetCheckSeverity:
    return SEVERITY.get(finding.level, dg.AssetCheckSeverity.ERROR)


def _metadata(finding: Finding) -> dict[str, Any]:
    """Numbers as numbers, so that the UI plots them; lists as lines, the empty ones not at all."""
    return {**finding.numbers, **{name: "\n".join(lines) for name, lines in finding.lists.items() if lines}}
