"""Expire: the rows of dates that a refined table keeps no longer leave, in a commit of their own.

The commit sets the bookmarks as they are: it consumes nothing. Tables made of this one pass over it
(``follow.upstream``), and no refinement brings the dates back, because the table's log says from when on it keeps them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

from kdi_assets.delta.files import TableAt
from kdi_assets.delta.internals import path_of, removals
from kdi_assets.delta.log import TableLog
from kdi_assets.delta.markers import days_of, kept_from, kept_from_id
from kdi_assets.delta.single_commit import CommitRequest, commit_behind
from kdi_assets.delta.transaction import Staged
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.follow.refine.entry import RefineEntry, metadata_of
from kdi_assets.follow.refine.kept_dates import dates_of
from kdi_assets.follow.refine.plan import RefinePlan, plan_refinement
from kdi_assets.follow.refine.spark_errors import spark_failures
from kdi_assets.follow.refine.upstream_bookmarks import bookmark_transactions, follow_harmless
from kdi_assets.follow.upstream import later
from kdi_assets.runtime.spark_internals import scala_seq

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def expire_dates(
    table: RefinedTableSpec,
    lake: str,
    first: date,
    *,
    session: Callable[[], SparkSession],
    waits_for: Callable[[Collection[date]], tuple[str, ...]],
    at: Callable[[str], None] = lambda point: None,
) -> RefineEntry | tuple[str, ...]:
    """Remove the rows of the dates before ``first`` in one commit.

    Args:
        first: The first date that is kept; a later one that was said before holds.
        waits_for: Why rows of some dates must stay for now. Asked after the plan: a commit that adds to them conflicts.
        at: Called at ``planned``; tests stop there.

    Returns:
        What was done; or why nothing was, empty if there is no such row.

    Raises:
        OvertakenCommit, TableBusy, PlannedTableGone: Another commit came first; plan again.
        KdiError: As ``plan_refinement``; Spark failed.
    """
    plan = plan_refinement(table, lake)
    if plan.kind == "rebuild":
        return (f"{table.name}: all its rows must be computed again: {plan.why}",)
    log = TableLog.existing(table.table_uri(lake), plan.version)
    first = later(first, kept_from(log)) or first
    gone = frozenset(day for day in dates_of(log) if day < first)
    at("planned")
    if why := waits_for(gone) if gone else ():
        return why
    return _commit(table, log, plan, session(), first, gone) if gone else ()


def _commit(
    table: RefinedTableSpec, log: TableLog, plan: RefinePlan, spark: SparkSession, first: date, gone: frozenset[date]
) -> RefineEntry:
    with spark_failures(table.name, "removing the rows of dates that are kept no longer"):
        at_plan = TableAt.open(spark, log.uri, plan.version)
        files = at_plan.files_of_dates(gone)
        staged = Staged(actions=scala_seq(spark, removals(files)), replaces=frozenset(map(path_of, files)))
        counted = at_plan.counted(files)
        entry = RefineEntry(
            table.name,
            str(uuid.uuid4()),
            "expire",
            rows_removed=counted.rows or 0,
            removed_by_date=counted.by_date,
            kept_from=first,
        )
        consumed = {u.table_id: u.since for u in plan.upstreams if u.since is not None}
        transactions = partial(
            bookmark_transactions,
            table.name,
            consumed,
            definitions=plan.definitions,
            deletes=plan.deletes,
            ends=True,
            frozen=plan.kept.frozen_before,
            kept={kept_from_id(plan.table_id): days_of(first)},
        )
        request = CommitRequest(
            log.uri, plan.table_id, entry.attempt_id, lambda version: transactions(version=version), metadata_of(entry)
        )
        follow = partial(follow_harmless, request, consumer=table.name, replaces=staged.replaces)
        return replace(entry, version=commit_behind(plan.version, spark, staged, request, follow=follow))
