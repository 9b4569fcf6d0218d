"""Audit of a refined table: its rows against a recomputation from the upstream versions that it says it consumed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.ledger.table_files import TableAt
from kdi_assets.refine.aggregate import groups
from kdi_assets.refine.bookmarks import read_bookmarks
from kdi_assets.refine.deduplicate import first_rows
from kdi_assets.refine.errors import NeverRefined, UpstreamMissing
from kdi_assets.refine.inputs import Inputs, in_dates
from kdi_assets.refine.plan import RefinePlan, date_by_date
from kdi_assets.refine.upsert import upserted_rows
from kdi_assets.refine.upstream import UpstreamChanges
from kdi_assets.stream.refined_table import Aggregate, Deduplicate, RefinedTable, Upsert

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SAMPLED_DATES = 3


@dataclass(frozen=True, slots=True)
class RefineAudit:
    """The comparison of a refined table with a recomputation.

    Attributes:
        version: The version of the table that was compared.
        dates: The dates that were compared; ``None``: the whole table.
        rows: Rows of the table that were compared.
        missing: Rows of the recomputation that the table lacks.
        surplus: Rows of the table that the recomputation lacks.
    """

    table: str
    version: int
    dates: tuple[date, ...] | None
    rows: int
    missing: int
    surplus: int

    @property
    def is_equal(self) -> bool:
        return not self.missing and not self.surplus


def audit_refined(
    table: RefinedTable,
    *,
    lake: str,
    session: Callable[[], SparkSession],
    dates: Collection[date] | None = None,
    sampled: int | None = SAMPLED_DATES,
) -> RefineAudit:
    """Compare a refined table with a recomputation from the upstream versions that its bookmarks name.

    Args:
        dates: Compare these; by default the newest ``sampled`` dates of the table, of a table that is computed date by
            date.
        sampled: ``None``: compare the whole table.

    Raises:
        NeverRefined: The table has no bookmarks yet.
        KdiError: A log cannot be read, or an upstream table was replaced since.
    """
    log = TableLog.open(table.table_uri(lake))
    if log is None:
        raise NeverRefined(table=table.name)
    plan = _as_consumed(table, log, lake)
    chosen = _chosen_dates(table, log, dates, sampled)
    inputs = Inputs(session(), table, plan, log.uri)
    expected = recomputed(inputs)
    found = TableAt.open(inputs.spark, log.uri, log.version).rows().select(*expected.columns)
    if chosen is not None:
        expected, found = expected.where(in_dates(chosen)), found.where(in_dates(chosen))
    missing, surplus = expected.exceptAll(found).count(), found.exceptAll(expected).count()
    return RefineAudit(table.name, log.version, chosen, found.count(), missing, surplus)


def recomputed(inputs: Inputs) -> DataFrame:
    """All rows of the table, computed from all upstream rows at the versions of the plan."""
    rows = inputs.all_rows()
    match inputs.table.mode:
        case Aggregate() as mode:
            return groups(rows, mode)
        case Deduplicate() as mode:
            return first_rows(rows, mode)
        case Upsert() as mode:
            return upserted_rows(rows, mode)
        case _:
            return rows


def _as_consumed(table: RefinedTable, log: TableLog, lake: str) -> RefinePlan:
    bookmarks = read_bookmarks(log, table.name, alone=False)
    upstreams = []
    for upstream in table.upstreams:
        uri = upstream.uri(lake)
        found = TableLog.open(uri)
        if found is None:
            raise UpstreamMissing(table=table.name, upstream=upstream.table, uri=uri)
        version = bookmarks.consumed(found.table_id)
        if version is None:
            raise NeverRefined(table=table.name)
        upstreams.append(
            UpstreamChanges(upstream.view, upstream.table, uri, found.table_id, version, version, "nothing")
        )
    return RefinePlan("", log.version, log.table_id, tuple(upstreams), "rebuild")


def _chosen_dates(
    table: RefinedTable, log: TableLog, dates: Collection[date] | None, sampled: int | None
) -> tuple[date, ...] | None:
    if dates is not None:
        return tuple(sorted(dates))
    if sampled is None or not date_by_date(table):
        return None
    days = {day for day in log.data_files.column("partition.date").to_pylist() if day is not None}
    return tuple(sorted(days)[-sampled:])
