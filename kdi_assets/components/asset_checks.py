"""A table's checks in Dagster: specs, results as events, and failed results that must stay in force."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg
from dagster import DagsterInstance

from kdi_assets.components.names import check_key, table_key
from kdi_assets.documents.model.limits import FreshnessLimits
from kdi_assets.documents.model.stream import COSTLY, CheckName, Stream
from kdi_assets.operate.monitoring.checks.finding import NO_TABLE, CheckResult, Level
from kdi_assets.resources.dagster_internals import latest_evaluations, newest_evaluations

DESCRIPTIONS: Mapping[CheckName, str] = {
    "every_offset_accounted_for": "Every offset below the positions is in the table, a dead letter, a confirmed gap or "
    "a declared loss, and none is there twice. Reads the whole table; needs Spark if counts alone do not prove it.",
    "no_duplicate_coordinates": "No message is in the table twice, in the dates of the last drains. Needs Spark.",
    "schema_as_declared": "The table has the columns that the document declares. Needs Spark, reads no data.",
    "positions_never_go_back": "No commit set a position below an earlier one, except a RESTORE or `kdi resolve`.",
    "dead_letter_rate": "The share of dead letters over the last 24 hours is within the stream's limit.",
    "dates_in_window": "All rows have dates within the stream's window, by the files' statistics.",
    "backlog_after_drain": "The backlog after a drain is within `drain_when`, and drains keep up.",
    "table_health": "The table does not have too many small files, and its log is not too long.",
    "expectations": "Every message of the last 24 hours that became a row met the document's expectations.",
    "cpu_seconds_a_day": "The drains of the day (UTC) used no more CPU seconds than the document's budget.",
    "fresh": "No message waits longer than `freshness` allows; an idle topic is fresh.",
}
CHECKED_BY, CHECKED_AT = "checked_by", "checked_at"
REPEATED_FOR = timedelta(days=2)
"""For how long drains repeat a result that passed: the daily run makes all checks, and one of its runs may fail."""
AUDIT: CheckName = "every_offset_accounted_for"
LoggedLevel = tuple[Level, float]


def check_specs(stream: Stream) -> list[dg.AssetCheckSpec]:
    """The stream's checks; the document names those that block downstream assets."""
    return [
        dg.AssetCheckSpec(
            name, asset=table_key(stream), blocking=name in stream.checks.blocking, description=DESCRIPTIONS[name]
        )
        for name in stream.check_names
    ]


def checks_of_each_drain(stream: Stream) -> list[dg.AssetCheckKey]:
    """The checks that a sensor's run makes after the drain: those that need no Spark.

    Dagster shows no result of a check once a later run materializes the asset, so each drain makes them again. The
    budget of CPU seconds would read all commits of the day each time, and have a share in what it counts.
    """
    return [check_key(stream, name) for name in stream.check_names if name not in (*COSTLY, "cpu_seconds_a_day")]


def checks_of_first_drain(instance: DagsterInstance, streams: Collection[Stream]) -> dict[str, list[dg.AssetCheckKey]]:
    """By stream, the checks that need Spark, if the audit has not seen an offset of its table yet."""
    audits = {check_key(stream, AUDIT): stream for stream in streams}
    latest = latest_evaluations(instance, list(audits))
    # A run that ended before it made the audit made it in vain: the daily run makes it, not the next drain again.
    seen = {key for key, (made, _) in latest.items() if made is None or not _saw_no_offset(made)}
    return {
        stream.name: [check_key(stream, name) for name in stream.check_names if name in COSTLY]
        for key, stream in audits.items()
        if key not in seen
    }


def _saw_no_offset(audit: dg.AssetCheckEvaluation) -> bool:
    offsets = audit.metadata.get("offsets")
    return NO_TABLE.description in (audit.description or "") or (offsets is not None and offsets.value == 0)


def latest_levels(instance: DagsterInstance, keys: Sequence[dg.AssetCheckKey]) -> dict[dg.AssetCheckKey, LoggedLevel]:
    """The level of the latest result of each check, and when it was logged, in seconds since the epoch."""
    latest = latest_evaluations(instance, keys)
    return {key: (level_of(made), at) for key, (made, at) in latest.items() if made is not None}


def level_of(evaluation: dg.AssetCheckEvaluation) -> Level:
    """The level of the result that became this event."""
    if evaluation.severity == dg.AssetCheckSeverity.WARN:  # a blocking check passes with a warning
        return "warn"
    return "passed" if evaluation.passed else "error"


def check_result(evaluation: dg.AssetCheckEvaluation) -> dg.AssetCheckResult:
    """The evaluation as a result, which a run of the asset yields."""
    return dg.AssetCheckResult(
        passed=evaluation.passed,
        asset_key=evaluation.asset_key,
        check_name=evaluation.check_name,
        severity=evaluation.severity,
        description=evaluation.description,
        metadata=evaluation.metadata,
    )


def check_evaluation(stream: Stream, name: CheckName, result: CheckResult) -> dg.AssetCheckEvaluation:
    """The result as an event, which other runs and sensors log."""
    return evaluation_of(check_key(stream, name), result, blocking=name in stream.checks.blocking)


def evaluation_of(key: dg.AssetCheckKey, result: CheckResult, *, blocking: bool = False) -> dg.AssetCheckEvaluation:
    """The result of any table's check as an event."""
    warns = result.level == "warn"
    # A blocking check passes with a warning: Dagster's conditions hold downstream assets for any blocking check that
    # does not pass, whatever its severity.
    passes_with_warning = warns and blocking
    # Numbers stay numbers, so that the UI plots them; lists become lines.
    lists = {name: "\n".join(lines) for name, lines in result.lists.items() if lines}
    return dg.AssetCheckEvaluation(
        asset_key=key.asset_key,
        check_name=key.name,
        passed=result.passed or passes_with_warning,
        severity=dg.AssetCheckSeverity.WARN if warns else dg.AssetCheckSeverity.ERROR,
        description=f"warning: {result.description}" if passes_with_warning else result.description,
        metadata={**result.numbers, **lists},
        blocking=blocking,
    )


def passes_to_repeat(
    instance: DagsterInstance, stream: Stream, *, excluding: Collection[dg.AssetCheckKey] = ()
) -> list[dg.AssetCheckEvaluation]:
    """The latest evaluations that passed, of checks that a drain does not make: to be logged again at its end.

    Dagster shows a check as not evaluated once a later run materializes the asset: without the repeated results, those
    that need Spark until the daily run. A drain repairs nothing, and accounts for its messages itself.

    Args:
        excluding: Checks that the run makes itself.
    """
    since = (datetime.now(UTC) - REPEATED_FOR).timestamp()
    # A check that a run is to make is not repeated: the newest result counts, and that of the run is older than ours.
    newest = latest_evaluations(instance, _keys(stream, excluding)).items()
    passed = [key for key, (made, _) in newest if made and level_of(made) == "passed"]
    latest = [made for key in passed if (made := latest_evaluation(instance, key))]
    return [made for made in latest if level_of(made) == "passed" and made_at(made) > since]


def _keys(stream: Stream, excluding: Collection[dg.AssetCheckKey]) -> list[dg.AssetCheckKey]:
    return [key for name in stream.check_names if (key := check_key(stream, name)) not in excluding]


def failed_meanwhile(instance: DagsterInstance, repeated: dg.AssetCheckEvaluation) -> dg.AssetCheckEvaluation | None:
    """A failure that another run logged just before ``repeated``, which hides it: to be logged again at once."""
    _, *before = newest_evaluations(instance, repeated.asset_check_key, limit=2)
    return _again(*before[0]) if before and not before[0][0].passed else None


def failed_checks(
    instance: DagsterInstance,
    stream: Stream,
    *,
    excluding: Collection[dg.AssetCheckKey] = (),
    not_of_run: str | None = None,
) -> list[dg.AssetCheckEvaluation]:
    """The latest evaluations that did not pass, to be logged again *before* new materializations.

    Dagster ignores a check's result once a later run materializes the asset. Without the repeated result, each drain
    would hide the failure, and release the downstream assets that a blocking one holds.

    Args:
        excluding: Checks that the run makes itself.
        not_of_run: Without those that this run logged.
    """
    # One question for all: most checks passed. Of one that a run is to make, the result before may be a failure.
    newest = latest_evaluations(instance, _keys(stream, excluding)).items()
    suspects = [key for key, (made, _) in newest if made is None or not made.passed]
    failed = [newest_evaluations(instance, key, limit=1) for key in suspects]
    return [_again(*made[0]) for made in failed if made and not made[0][0].passed and made[0][1] != not_of_run]


def failed_blocking_checks(instance: DagsterInstance, stream: Stream) -> list[dg.AssetCheckEvaluation]:
    """The latest evaluations that hold downstream assets."""
    keys = [check_key(stream, name) for name in stream.checks.blocking]
    return [latest for key in keys if (latest := latest_evaluation(instance, key)) and not latest.passed]


def latest_evaluation(instance: DagsterInstance, key: dg.AssetCheckKey) -> dg.AssetCheckEvaluation | None:
    """The latest evaluation of a check, to be logged again; it names the run that made it. ``None`` without one."""
    latest = newest_evaluations(instance, key, limit=1)
    return _again(*latest[0]) if latest else None


def _again(made: dg.AssetCheckEvaluation, run_id: str, at: float) -> dg.AssetCheckEvaluation:
    by, when = dg.MetadataValue.dagster_run(run_id), dg.MetadataValue.timestamp(at)
    return dg.AssetCheckEvaluation(  # no copy: partition and target belong to the earlier run
        asset_key=made.asset_key,
        check_name=made.check_name,
        passed=made.passed,
        severity=made.severity,
        description=made.description,
        # Of a result that was repeated before, the metadata have its first run and time.
        metadata={CHECKED_BY: by, CHECKED_AT: when, **made.metadata},
        blocking=made.blocking,
    )


def made_at(evaluation: dg.AssetCheckEvaluation, *, logged_at: float = 0.0) -> float:
    """When an evaluation was made, in seconds since the epoch: of a repeated one, before it was logged."""
    first = evaluation.metadata.get(CHECKED_AT)
    return first.value if isinstance(first, dg.TimestampMetadataValue) else logged_at


def freshness_policy(stream: Stream) -> dg.FreshnessPolicy | None:
    """The policy of a stream's table, which an idle topic fails; none if the stream is not active, so not drained."""
    return freshness_window(stream.freshness) if stream.status == "active" else None


def freshness_window(limits: FreshnessLimits | None) -> dg.FreshnessPolicy | None:
    """Dagster's own policy, which goes by the latest materialization."""
    if limits is None:
        return None
    fail, warn = (timedelta(seconds=s) for s in (limits.fail_seconds, limits.warn_seconds))
    return dg.FreshnessPolicy.time_window(fail_window=fail, warn_window=warn)
