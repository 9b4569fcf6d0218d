"""The project's own asset on a table."""

from pathlib import Path

import dagster as dg
from kdi_assets.downstream import dates_of, on_new_upstream_data
from kdi_assets.resources.spark import SparkResource
from kdi_assets.settings import Settings

BRONZE, SILVER = "bronze/web_requests", "silver/requests_per_host"


@dg.asset(
    key=SILVER.split("/"),
    deps=[BRONZE.split("/")],
    partitions_def=dates_of(BRONZE, folder=Path(__file__).parent / "defs"),
    automation_condition=on_new_upstream_data(),
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def requests_per_host(context: dg.AssetExecutionContext, spark: SparkResource) -> None:
    """Requests by date and host."""
    lake, dates = Settings.from_environment().lake, context.partition_key_range
    of_dates = f"date >= '{dates.start}' AND date <= '{dates.end}'"
    with spark.watched():
        requests = spark.session().read.format("delta").load(f"{lake}/{BRONZE}").where(of_dates)
        counted = requests.groupBy("date", "host").count()
        written = counted.write.format("delta").partitionBy("date").mode("overwrite").option("replaceWhere", of_dates)
        written.save(f"{lake}/{SILVER}")
