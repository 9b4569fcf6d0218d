"""Expiry of refined tables: rows whose dates are kept no longer leave, once what is made of them has consumed them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from kdi_assets.delta.errors import OvertakenCommit, PlannedTableGone, TableBusy
from kdi_assets.delta.log import TableLog
from kdi_assets.delta.lost_races import until_won
from kdi_assets.delta.markers import kept_from
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.follow.refine.entry import RefineEntry
from kdi_assets.follow.refine.expire import expire_dates
from kdi_assets.follow.upstream import later
from kdi_assets.operate.upkeep.expiry import Expiry, gave_up, rows_before
from kdi_assets.operate.upkeep.unconsumed import Followers, waiting_followers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plan_refined_expiry(table: RefinedTableSpec, lake: str, followers: Followers, *, now: datetime) -> Expiry | None:
    """As ``plan_expiry``, of a refined table."""
    log = TableLog.open(table.table_uri(lake))
    first = table.kept_from(now)
    if first is None or log is None:
        return None
    first = later(first, kept_from(log)) or first
    rows = rows_before(log, first)
    waits_for = waiting_followers(table, rows, followers, lake, kept_from=first)
    newest = log.commit(log.version).committed_at if rows else None
    return Expiry(first, rows, waits_for=waits_for, newest_entry=newest)


def expire_refined(
    table: RefinedTableSpec,
    lake: str,
    followers: Followers,
    *,
    session: Callable[[], SparkSession],
    now: datetime,
) -> Expiry | None:
    """Remove what is kept no longer; nothing to do makes no commit.

    Returns:
        As ``plan_refined_expiry``, with what was removed.

    Raises:
        UpkeepFailed: Too many races were lost; the next upkeep goes on.
        KdiError: The table is refused, as by a refinement; Spark failed.
    """

    def attempt() -> Expiry | None:
        found = plan_refined_expiry(table, lake, followers, now=now)
        if found is None or not found.is_due:
            return found
        done = expire_dates(
            table,
            lake,
            found.kept_from,
            session=session,
            waits_for=lambda days: waiting_followers(table, days, followers, lake, kept_from=found.kept_from),
        )
        if isinstance(done, RefineEntry):
            return replace(found, rows_by_date=done.removed_by_date, committed=done)
        return replace(found, waits_for=done)

    lost = (OvertakenCommit, PlannedTableGone, TableBusy)
    return until_won(attempt, lost=lost, gives_up=partial(gave_up, table.name))
