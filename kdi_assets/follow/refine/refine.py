"""Refine: plan, compute, write, commit rows and bookmarks in one version; plan again if another commit came first."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

from kdi_assets.delta.errors import OvertakenCommit, PlannedTableGone, StagedFilesGone, TableBusy
from kdi_assets.delta.files import TableAt
from kdi_assets.delta.lost_races import until_won
from kdi_assets.delta.single_commit import CommitRequest, commit_behind
from kdi_assets.delta.transaction import Staged
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.follow.listeners.heard import FollowerWrite
from kdi_assets.follow.listeners.listening import listening
from kdi_assets.follow.refine.columns import (
    HasOtherColumns,
    are_only_wider,
    one_value,
    other_columns,
    refuse_frozen_columns,
)
from kdi_assets.follow.refine.compute import Computed, compute
from kdi_assets.follow.refine.entry import RefineEntry, metadata_of
from kdi_assets.follow.refine.errors import NoDates, another_active
from kdi_assets.follow.refine.inputs import Inputs, days_between
from kdi_assets.follow.refine.modes.upsert import counts_of
from kdi_assets.follow.refine.plan import RefinePlan, plan_refinement
from kdi_assets.follow.refine.read import one_task
from kdi_assets.follow.refine.report import RefineReport
from kdi_assets.follow.refine.row_errors import RowsUnmet
from kdi_assets.follow.refine.spark_errors import spark_failures
from kdi_assets.follow.refine.stage import StagedChange, create_table, same_columns, stage_change
from kdi_assets.follow.refine.topics import read_topics
from kdi_assets.follow.refine.upstream_bookmarks import bookmark_transactions, follow_harmless
from kdi_assets.runtime.cpu_clock import CpuClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class RefineContext:
    """What all steps of a refinement share.

    Attributes:
        lake: Root of the tables.
        session: Gives the Spark session; called only if there is something to do.
        run_id: Recorded in the commit: Dagster's run, if there is one.
        report: Called with a line about each step, for a log.
        at: Called with the name of each point that is reached; tests stop there.
        clock: Runs since the refinement began, lost commit races included.
    """

    table: RefinedTableSpec
    lake: str
    session: Callable[[], SparkSession]
    run_id: str = ""
    report: Callable[[str], None] = lambda line: None
    at: Callable[[str], None] = lambda point: None
    clock: CpuClock = field(default_factory=CpuClock)

    @property
    def uri(self) -> str:
        return self.table.table_uri(self.lake)


def refine(
    table: RefinedTableSpec,
    *,
    lake: str,
    session: Callable[[], SparkSession],
    run_id: str = "",
    dates: tuple[date, date] | None = None,
    rebuild: bool = False,
    report: Callable[[str], None] = lambda line: None,
    at: Callable[[str], None] = lambda point: None,
) -> RefineReport:
    """Bring a refined table to the newest versions of its upstream tables, exactly once.

    Args:
        dates: First and last date, inclusive: these are computed again, with all that is new.
        rebuild: Compute all rows again.

    Raises:
        AnotherRefinementActive: Other commits came first, too often in a row.
        NoDates: ``dates`` are given, and the table is not computed date by date.
        DatesNotKept: Some of them are kept no longer.
        KdiError: Every refusal of plan and computation.
    """
    context = RefineContext(table=table, lake=lake, session=session, run_id=run_id, report=report, at=at)
    started = time.monotonic()
    with listening("refine", table, lake, session, run_id=run_id) as heard:
        done = _refined(context, dates, rebuild=rebuild)
        if done.version >= 0:
            heard(FollowerWrite(done.version, done.rows_added))
    return RefineReport(done, time.monotonic() - started)


def _refined(context: RefineContext, dates: tuple[date, date] | None, *, rebuild: bool) -> RefineEntry:
    table, other = context.table, None
    if dates and not table.is_computed_by_date:
        raise NoDates(table=table.name)

    def attempt() -> RefineEntry:
        nonlocal other
        plan = plan_refinement(table, context.lake, rebuild=rebuild)
        plan = plan.with_dates(days_between(*dates), table=table.name, uri=context.uri) if dates else plan
        if plan.kind == "nothing":
            # The bookmarks stay, so the next commit counts rows that were passed over.
            return replace(_entry(plan, context), rows_passed_over=0)
        plan = plan.with_all_rows(other, table=table.name, uri=context.uri) if other else plan
        try:
            return _execute(plan, context)
        except HasOtherColumns as found:
            # The definition's text alone does not show it. This plan, and each after a lost race, computes all rows.
            other = found
            return attempt()

    lost = (OvertakenCommit, StagedFilesGone, PlannedTableGone, TableBusy)
    return until_won(attempt, lost=lost, gives_up=partial(another_active, table.name))


def _execute(plan: RefinePlan, context: RefineContext) -> RefineEntry:
    table, spark = context.table, context.clock.watching(context.session())
    context.report(_log_line(table, plan))
    if plan.topics is None:
        with spark_failures(table.name, "reading the logs upstream"):
            plan = replace(plan, topics=read_topics(spark, plan.upstreams))
    if plan.only_records:
        return _committed(plan, context, spark, StagedChange(Staged(), 0, 0, (), {}, {}), _entry(plan, context))
    inputs = Inputs(spark, table, plan, context.uri)
    with one_task(spark, only_if=inputs.small_enough):
        return _execute_planned(plan, context, inputs)


def _execute_planned(plan: RefinePlan, context: RefineContext, inputs: Inputs) -> RefineEntry:
    table, spark = context.table, inputs.spark
    with spark_failures(table.name, "computing rows"):
        computed = compute(inputs, context.lake)
    context.at("deletes recorded")
    if plan.version < 0:
        plan = _created(plan, context, computed)
        inputs = replace(inputs, plan=plan)
    with spark_failures(table.name, "opening the table"):
        at_plan = inputs.refined_table
    _refuse_other_columns(plan, table, computed.change.rows, at_plan)
    unmet = _unmet(table, computed.change.rows)
    found_few = computed.change.small_enough and not inputs.small_enough  # of whole dates it is known only now
    with one_task(spark, only_if=found_few), spark_failures(table.name, "writing rows"):
        staged = stage_change(computed.change, at_plan, name=table.name, by_date=table.by_date)
    context.at("files written")
    why, counts = computed.change.why or plan.why, counts_of(computed.change, table.name)
    entry = replace(_entry(plan, context), why=why, unmet=unmet, **asdict(counts))
    return _committed(replace(plan, deletes=computed.deletes), context, spark, staged, entry)


def _committed(
    plan: RefinePlan, context: RefineContext, spark: SparkSession, staged: StagedChange, entry: RefineEntry
) -> RefineEntry:
    """Commit what is written with the bookmarks.

    Args:
        plan: Its ``deletes`` are those after the commit.
    """
    table = context.table
    entry = replace(_with_what_is_written(entry, staged), cpu_seconds=round(context.clock.seconds(), 3))
    transactions = partial(
        bookmark_transactions,
        table.name,
        plan.consumed,
        definitions=plan.definitions,
        deletes=plan.deletes,
        ends=plan.kept.first is not None,
        frozen=plan.kept.frozen_before,
        topics=plan.topics,
    )
    request = CommitRequest(
        context.uri, plan.table_id, plan.attempt_id, lambda version: transactions(version=version), metadata_of(entry)
    )
    follow = partial(follow_harmless, request, consumer=table.name, replaces=staged.staged.replaces)
    with spark_failures(table.name, "committing"):
        version = commit_behind(plan.version, spark, staged.staged, request, follow=follow)
    context.at("committed")
    return replace(entry, version=version)


def _refuse_other_columns(plan: RefinePlan, table: RefinedTableSpec, rows: DataFrame, at_plan: TableAt) -> None:
    """Only a rebuild may change the columns, and not those that are frozen."""
    if same_columns(rows, at_plan):
        return
    refuse_frozen_columns(table, rows.schema, at_plan.schema)
    if plan.kind != "rebuild":
        found = ", ".join(other_columns(rows.schema, at_plan.schema)) or "in another order"
        raise HasOtherColumns(found, only_wider=are_only_wider(rows.schema, at_plan.schema))


def _created(plan: RefinePlan, context: RefineContext, computed: Computed) -> RefinePlan:
    """The plan for the table, which is created without rows first."""
    entry = RefineEntry(context.table.name, plan.attempt_id, "nothing", run_id=context.run_id)
    request = CommitRequest(context.uri, "", plan.attempt_id, lambda version: {}, metadata_of(entry))
    properties, schema = context.table.properties, computed.change.rows.schema
    with spark_failures(context.table.name, "creating the table"):
        table_id = create_table(context.session(), request, schema, properties, by_date=context.table.by_date)
    context.at("table created")
    return replace(plan, version=0, table_id=table_id)


def _with_what_is_written(entry: RefineEntry, staged: StagedChange) -> RefineEntry:
    return replace(
        entry,
        dates=staged.dates,
        rows_added=staged.rows_added,
        rows_removed=staged.rows_removed,
        rows_by_date=staged.rows_by_date,
        removed_by_date=staged.removed_by_date,
        bytes_added=staged.staged.bytes,
        files_added=staged.staged.data_files,
    )


def _entry(plan: RefinePlan, context: RefineContext) -> RefineEntry:
    """The entry before anything is written."""
    return RefineEntry(
        context.table.name,
        plan.attempt_id,
        plan.kind,
        plan.version_ranges,
        run_id=context.run_id,
        why=plan.why,
        rows_passed_over=sum(upstream.rows_passed_over for upstream in plan.upstreams),
    )


def _unmet(table: RefinedTableSpec, rows: DataFrame) -> dict[str, int]:
    """How many new rows do not meet each expectation, of those that some do not meet.

    Raises:
        RowsUnmet: One of them stops the run.
    """
    if not table.expectations:
        return {}
    counts = [f"count_if(NOT coalesce({one_value(e.sql)}, false)) AS {name}" for name, e in table.expectations.items()]
    with spark_failures(table.name, "counting rows that do not meet expectations"):
        (found,) = rows.selectExpr(*counts).collect()
    unmet = {name: int(n) for name, n in found.asDict().items() if n}
    for name, count in unmet.items():
        if table.expectations[name].then == "fail":
            raise RowsUnmet(table=table.name, expectation=name, rows=count)
    return unmet


def _log_line(table: RefinedTableSpec, plan: RefinePlan) -> str:
    versions = ", ".join(f"{r.table} {r.versions}" for r in plan.version_ranges)
    what = {"changes": "what is new", "dates": f"{len(plan.dates):,} dates", "rebuild": "all rows"}[plan.kind]
    if plan.only_records:
        return f"{table.name}: no rows to compute: {plan.why}"
    return f"{table.name}: refining {what} of {versions}" + (f": {plan.why}" if plan.why else "")
