"""A served table as a Dagster asset without partitions: materializing it serves what changed."""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it decorates, and as types.
from collections.abc import Callable

import dagster as dg

from kdi_assets.components.asset_checks import freshness_window
from kdi_assets.components.automation import when_followed
from kdi_assets.components.materializations import Metadata, without_unknown
from kdi_assets.components.names import identifier
from kdi_assets.components.run_failures import refusals_as_failures
from kdi_assets.documents.model.served_table import Postgres, ServedTableSpec
from kdi_assets.follow.serve.report import ServeReport
from kdi_assets.follow.serve.serve import serve
from kdi_assets.resources.spark import SparkResource
from kdi_assets.settings import Settings
from kdi_assets.wording import counted

Serve = Callable[..., ServeReport]
"""``kdi_assets.follow.serve.serve.serve``; a test about Dagster alone passes another."""


def served_asset(served: ServedTableSpec, *, serve: Serve = serve) -> dg.AssetsDefinition:
    """The asset, in a pool of its own: two runs would race, and one of them would have read for nothing."""
    name = identifier(*served.into.path)

    @dg.multi_asset(name=name, specs=[served_spec(served)], pool=f"serve_{name}")
    def published(context: dg.AssetExecutionContext, spark: SparkResource) -> dg.MaterializeResult[None]:
        with refusals_as_failures(context), spark.watched():
            report = serve(
                served,
                lake=Settings.from_environment().lake,
                session=spark.session,
                run_id=context.run.run_id,
                report=context.log.info,
            )
        context.log.info(serve_summary(report))
        return dg.MaterializeResult(
            asset_key=dg.AssetKey(served.into.path),
            metadata=serve_metadata(report),
            data_version=dg.DataVersion(str(report.version)),
        )

    return published


def served_spec(served: ServedTableSpec) -> dg.AssetSpec:
    """What the UI shows of the table before the first run."""
    in_postgres = isinstance(served.into, Postgres)
    return dg.AssetSpec(
        dg.AssetKey(served.into.path),
        deps=[dg.AssetKey(served.table.split("/"))],
        description=served.description or f"The rows of {served.table}, by {', '.join(served.keys)}.",
        group_name="served",
        kinds={"deltalake", "postgres" if in_postgres else "duckdb"},
        owners=served.owners,
        freshness_policy=freshness_window(served.freshness),
        metadata={
            "dagster/table_name": ".".join(served.into.path[1:]),
            "keys": ", ".join(served.keys),
            "served_when": when_followed(served.cron),
        },
    )


def serve_metadata(report: ServeReport) -> Metadata:
    """What the UI shows of a run."""
    found = {
        "rows_upserted": report.upserted,
        "rows_deleted": report.deleted,
        "delta_version": report.version,
        "consumed_before": report.since,
        "published": report.kind,
        "why": report.why or None,
        "columns_added": ", ".join(report.columns_added) or None,
        "seconds": round(report.seconds, 2),
        "publish_seconds": round(report.publish_seconds, 2),
        "query": dg.MetadataValue.md(f"```sql\n{report.sql}\n```\n{report.client}"),
    }
    return without_unknown(found)


def serve_summary(report: ServeReport) -> str:
    """The run as a line of a log."""
    if report.kind == "nothing":
        return f"{report.target}: nothing changed; it has version {report.version}"
    why = f", because {report.why}" if report.why else ""
    rows = f"{counted(report.upserted, 'row')} upserted, {report.deleted:,} deleted"
    return f"{report.target}: version {report.version}: {rows} in {report.seconds:.1f} s ({report.kind}{why})"
