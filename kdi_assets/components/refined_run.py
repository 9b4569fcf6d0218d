"""A run of refined tables: each selected table is brought up to date, after those that it is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

import dagster as dg

from kdi_assets.components.column_facts import refined_facts
from kdi_assets.components.names import path_key, table_key
from kdi_assets.components.refined_events import (
    refined_materialization,
    refinement_metadata,
    refinement_summary,
    touched_partitions,
)
from kdi_assets.components.refined_groups import RefinedGroup
from kdi_assets.components.table_run import BACKFILL_TAG, RunDates, log_unchanged_dates, requested_at, run_dates
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.errors import KdiError, Terminal
from kdi_assets.follow.refine.audit.audit import RefinedAudit
from kdi_assets.follow.refine.entry import RefineEntry
from kdi_assets.follow.refine.report import RefineReport
from kdi_assets.operate.monitoring.refined_status import RefinedStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BY_CONDITION_TAG = "dagster/from_automation_condition"
"""On runs that Dagster requests by an asset's automation condition, which a user may have added."""


@dataclass(frozen=True, slots=True)
class RefineEngine:
    """What a run does to a table; a test about Dagster alone passes others.

    Attributes:
        refine: ``kdi_assets.follow.refine.refine.refine``.
        lineage: ``kdi_assets.operate.monitoring.refined_lineage.refined_lineage``.
        status: ``kdi_assets.operate.monitoring.refined_status.read_refined_status``.
        audit: ``kdi_assets.follow.refine.audit.audit.audit_refined``.
    """

    refine: Callable[..., RefineReport]
    lineage: Callable[[RefinedTableSpec, str, Callable[[], SparkSession]], Mapping[str, Sequence[tuple[str, str]]]]
    status: Callable[[RefinedTableSpec, str], RefinedStatus]
    audit: Callable[..., RefinedAudit]


@dataclass(frozen=True, slots=True)
class RefinedRun:
    """The refined tables of a group in one run.

    Attributes:
        entries: By table, the commit of this run.
        refusals: By table, why it was not refined.
    """

    context: dg.AssetExecutionContext
    group: RefinedGroup
    lake: str
    session: Callable[[], SparkSession]
    engine: RefineEngine
    entries: dict[str, RefineEntry] = field(default_factory=dict)
    refusals: dict[str, KdiError] = field(default_factory=dict)

    def execute(self) -> None:
        """Refine every selected table; a refused one does not stop the others."""
        selected = [table for table in self.group.tables if table_key(table) in self.context.selected_asset_keys]
        dates = self._dates() if selected else RunDates()  # a run of checks alone has no dates
        for table in selected:
            try:
                self._refine(table, dates)
            except KdiError as refusal:
                self.refusals[table.name] = refusal
                self.context.log.error(str(refusal))

    def refusal(self) -> KdiError | None:
        """The refusal that fails the run: one that someone must decide, if there is any."""
        refusals = sorted(self.refusals.values(), key=lambda refusal: not isinstance(refusal, Terminal))
        return refusals[0] if refusals else None

    def _dates(self) -> RunDates:
        """Which dates are computed again. All that is new is refined in any case.

        Only a person asks for older dates: a run by a condition has the dates that changed upstream, which are new.
        """
        if self.group.window is None or BY_CONDITION_TAG in self.context.run.tags:
            return RunDates()
        keys = self.context.partition_key_range
        first, last = date.fromisoformat(keys.start), date.fromisoformat(keys.end)
        return run_dates(first, last, requested=requested_at(self.context))

    def _refine(self, table: RefinedTableSpec, dates: RunDates) -> None:
        context = self.context
        options: dict[str, Any] = {"dates": dates.replays} if dates.replays else {}
        report = self.engine.refine(
            table,
            lake=self.lake,
            session=self.session,
            run_id=context.run.run_id,
            report=context.log.info,
            **options,
        )
        if committed := report.committed:
            self.entries[table.name] = committed
            self._log_commit(table, committed)
        # An observation, because a run that found nothing new touches no date, and must be visible too.
        day = None if self.group.window is None else context.partition_key_range.end
        context.log_event(dg.AssetObservation(table_key(table), partition=day, metadata=refinement_metadata(report)))
        context.log.info(refinement_summary(report))
        if BACKFILL_TAG in context.run.tags and self.group.window is not None:
            log_unchanged_dates(context, table_key(table))

    def _log_commit(self, table: RefinedTableSpec, entry: RefineEntry) -> None:
        """Log the materialization of each touched date, right after the commit."""
        context, partitions = self.context, self.group.partitions
        facts = refined_facts(table, self.lake, version=entry.version, days=entry.dates)
        of_table = {**facts.of_table, **self._column_lineage(table)}
        days = touched_partitions(table, entry, partitions)
        for day in days:
            metadata = {**(facts.by_date.get(day, {}) if day else {}), **of_table}
            context.log_event(refined_materialization(table, entry, day, metadata=metadata))
        if hidden := sum(not partitions.has_partition_key(str(d)) for d in entry.dates) if partitions else 0:
            context.log.warning(f"{table.name}: {hidden:,} touched dates are outside the partitions of the asset")

    def _column_lineage(self, table: RefinedTableSpec) -> dict[str, dg.MetadataValue[Any]]:
        """Dagster's metadata of the upstream columns of each column; empty if they cannot be derived."""
        try:
            origins = self.engine.lineage(table, self.lake, self.session)
        except Exception as failure:  # noqa: BLE001 - events without lineage are better than a failed run: the rows are committed
            self.context.log.warning(f"{table.name}: no column lineage: {type(failure).__name__}: {failure}")
            return {}
        deps = {
            column: [dg.TableColumnDep(asset_key=path_key(path), column_name=name) for path, name in found]
            for column, found in origins.items()
        }
        return {"dagster/column_lineage": dg.MetadataValue.column_lineage(dg.TableColumnLineage(deps))} if deps else {}
