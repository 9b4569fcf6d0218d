"""Checks of a refined table: expectations, order of changes, is it up to date, does a recomputation have its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import dagster as dg

from kdi_assets.components.asset_checks import evaluation_of, latest_evaluation
from kdi_assets.components.names import table_key
from kdi_assets.components.refined_run import RefinedRun
from kdi_assets.documents.model.refined_modes import Upsert
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.audit.audit import RefinedAudit
from kdi_assets.follow.refine.entry import RefineEntry
from kdi_assets.follow.refine.row_errors import RowsUnmet
from kdi_assets.operate.monitoring.checks.finding import CheckResult, not_checked
from kdi_assets.operate.monitoring.refined_status import up_to_date
from kdi_assets.wording import counted

EXPECTATIONS, IN_ORDER, UP_TO_DATE, EQUAL = "expectations", "changes_in_order", "up_to_date", "equal_to_recomputation"
DESCRIPTIONS: Mapping[str, str] = {
    EXPECTATIONS: "All rows of the last refinement met the document's expectations.",
    IN_ORDER: "Most changes of the last refinement were newer than the rows of their keys.",
    UP_TO_DATE: "Nothing that is new upstream waits for longer than `freshness` allows.",
    EQUAL: "Some dates, computed again from the upstream tables, have the same rows. Needs Spark, and is made only on "
    "demand.",
}


def check_names(table: RefinedTableSpec) -> list[str]:
    """The checks of the table."""
    names = [EXPECTATIONS] if table.expectations else []
    names += [IN_ORDER] if isinstance(table.mode, Upsert) else []
    return [*names, *([UP_TO_DATE] if table.freshness else []), EQUAL]


def refined_check_key(table: RefinedTableSpec, name: str) -> dg.AssetCheckKey:
    """One of the table's checks."""
    return dg.AssetCheckKey(table_key(table), name)


def refined_check_specs(table: RefinedTableSpec) -> list[dg.AssetCheckSpec]:
    """The table's checks; none blocks what is downstream."""
    return [
        dg.AssetCheckSpec(name, asset=table_key(table), description=DESCRIPTIONS[name]) for name in check_names(table)
    ]


def checks_of_each_run(table: RefinedTableSpec) -> list[dg.AssetCheckKey]:
    """The checks that a run makes which the sensor requests: those that need no Spark."""
    return [refined_check_key(table, name) for name in check_names(table) if name != EQUAL]


def make_check(run: RefinedRun, table: RefinedTableSpec, name: str) -> dg.AssetCheckEvaluation:
    """Make a check at the end of a run."""
    if name == EXPECTATIONS:
        return _expectations(run, table)
    if name == IN_ORDER:
        return _of_this_run(run, table, IN_ORDER, in_order)
    if name == UP_TO_DATE:
        return refined_evaluation(table, name, up_to_date(run.engine.status(table, run.lake), datetime.now(UTC)))
    try:
        return refined_evaluation(table, name, _equal(run.engine.audit(table, lake=run.lake, session=run.session)))
    except KdiError as refusal:
        return refined_evaluation(table, name, not_checked(refusal))


def refined_evaluation(table: RefinedTableSpec, name: str, result: CheckResult) -> dg.AssetCheckEvaluation:
    """The result as an event."""
    return evaluation_of(refined_check_key(table, name), result)


def _expectations(run: RefinedRun, table: RefinedTableSpec) -> dg.AssetCheckEvaluation:
    """Of the rows of this run; without new rows, the latest result again."""
    refusal = run.refusals.get(table.name)
    if isinstance(refusal, RowsUnmet):
        result = CheckResult("error", refusal.message_parts()[0], {refusal.expectation: refusal.rows})
        return refined_evaluation(table, EXPECTATIONS, result)
    return _of_this_run(run, table, EXPECTATIONS, lambda entry: _met(table, entry))


def _of_this_run(
    run: RefinedRun, table: RefinedTableSpec, name: str, result: Callable[[RefineEntry], CheckResult]
) -> dg.AssetCheckEvaluation:
    """The result for the run's commit; without one, the latest result again."""
    entry = run.entries.get(table.name)
    if entry is None:
        latest = latest_evaluation(run.context.instance, refined_check_key(table, name))
        return latest or refined_evaluation(table, name, CheckResult("passed", "no row is new"))
    return refined_evaluation(table, name, result(entry))


def in_order(entry: RefineEntry) -> CheckResult:
    """A sequence that began again, as after the source's database moved, makes most changes older than the rows."""
    numbers = {"changes": entry.changes, "late_changes": entry.late_changes}
    if 2 * entry.late_changes <= entry.changes:
        return CheckResult("passed", "most changes are newer than the rows of their keys", numbers)
    text = (
        f"{entry.late_changes:,} of {entry.changes:,} changes are older than the rows of their keys, which stayed; if "
        "the source's sequence began again, put what tells the new count from the old one before it in sequence_by, "
        "e.g. struct(source.ts_ms >= 1790000000000, source.lsn)"
    )
    return CheckResult("warn", text, numbers)


def _met(table: RefinedTableSpec, entry: RefineEntry) -> CheckResult:
    unmet = {name: count for name, count in entry.unmet.items() if count}
    numbers = {name: entry.unmet.get(name, 0) for name in table.expectations}
    if not unmet:
        return CheckResult("passed", "all new rows meet them", numbers)
    text = "; ".join(f"{counted(count, 'row')} not meeting {name}" for name, count in unmet.items())
    return CheckResult("warn", text, numbers)


def _equal(audit: RefinedAudit) -> CheckResult:
    numbers = {"rows": audit.rows, "missing": audit.missing, "surplus": audit.surplus}
    of = "all rows" if audit.dates is None else counted(len(audit.dates), "date")
    if audit.equal:
        return CheckResult("passed", f"{of} of v{audit.version} equal a recomputation", numbers)
    text = f"{of} of v{audit.version}: {counted(audit.missing, 'row')} missing, {audit.surplus:,} too many"
    return CheckResult("error", text, numbers, {"dates": tuple(map(str, audit.different_dates))})
