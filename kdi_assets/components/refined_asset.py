"""Refined tables in Dagster: one op for tables that are made of each other, and an asset with checks for each."""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it decorates, and as types.
from collections.abc import Iterator
from typing import Any

import dagster as dg

from kdi_assets.components import names
from kdi_assets.components.asset_checks import check_result, freshness_window
from kdi_assets.components.automation import when_followed
from kdi_assets.components.refined_checks import check_names, make_check, refined_check_key, refined_check_specs
from kdi_assets.components.refined_groups import RefinedGroup, groups_by_document
from kdi_assets.components.refined_run import RefinedRun, RefineEngine
from kdi_assets.components.run_failures import refusals_as_failures
from kdi_assets.documents.loading.loader import LoadedFolder
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.follow.refine.audit.audit import audit_refined
from kdi_assets.follow.refine.refine import refine
from kdi_assets.operate.monitoring.refined_lineage import refined_lineage
from kdi_assets.operate.monitoring.refined_status import read_refined_status
from kdi_assets.resources.spark import SparkResource
from kdi_assets.settings import Settings

ENGINE = RefineEngine(refine, refined_lineage, read_refined_status, audit_refined)


def refined_definitions(table: RefinedTableSpec, loaded: LoadedFolder) -> dg.Definitions:
    """The assets of the table's group, if it is the first table of it by name; otherwise nothing.

    Dagster loads documents one by one, and the tables of a group share an op.
    """
    group = groups_by_document(loaded).get(table.name)
    return dg.Definitions(assets=[refined_asset(group, engine=ENGINE)] if group else [])


def refined_asset(group: RefinedGroup, *, engine: RefineEngine) -> dg.AssetsDefinition:
    """One op for the tables of a group; a run selects any of them, and any check.

    A run takes all that is new upstream, whatever its date. Of dates before the day of the request, which only a person
    asks for, it computes all rows again.
    """
    dated: dict[str, Any] = {}
    if group.window:
        dated = {"partitions_def": group.partitions, "backfill_policy": dg.BackfillPolicy.single_run()}

    @dg.multi_asset(
        name=group.name,
        specs=[refined_spec(table, group) for table in group.tables],
        check_specs=[spec for table in group.tables for spec in refined_check_specs(table)],
        can_subset=True,
        pool=group.pool,
        **dated,
    )
    def refined(context: dg.AssetExecutionContext, spark: SparkResource) -> Iterator[dg.AssetCheckResult]:
        run = RefinedRun(context, group, Settings.from_environment().lake, spark.session, engine)
        with refusals_as_failures(context), spark.watched(context.log.info):
            run.execute()
            # Checks of a refused table too: Dagster counts a selected check without a result as failed.
            for table in group.tables:
                for name in check_names(table):
                    if refined_check_key(table, name) in context.selected_asset_check_keys:
                        yield check_result(make_check(run, table, name))
            if refusal := run.refusal():
                raise refusal

    return refined


def refined_spec(table: RefinedTableSpec, group: RefinedGroup) -> dg.AssetSpec:
    """What the UI shows of the table before the first run."""
    upstreams = ", ".join(upstream.table for upstream in table.upstreams)
    written = {"sql": dg.MetadataValue.md(f"```sql\n{table.sql.strip()}\n```")} if table.sql else {}
    return dg.AssetSpec(
        names.table_key(table),
        deps=group.deps(table),
        skippable=True,  # a run logs the events of the dates that it touched, perhaps of none
        description=table.description or f"Made of {upstreams}: {table.mode_name}.",
        group_name=names.group(table),
        kinds={"deltalake", "spark"},
        owners=table.owners,
        freshness_policy=freshness_window(table.freshness),
        metadata={
            "dagster/table_name": table.table.replace("/", "."),
            "mode": table.mode_name,
            "refined_when": when_followed(table.cron),
            **written,
            **({"python": table.python} if table.python else {}),
        },
    )
