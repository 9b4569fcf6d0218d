"""An asset on a stream's table: the requests that ended with an error, date by date."""

import dagster as dg

from kdi_assets.downstream import dates_of, on_new_upstream_data
from kdi_assets.resources.spark import SparkResource
from kdi_assets.settings import Settings

BRONZE, SILVER = "bronze/web_requests", "silver/failed_requests"


@dg.asset(
    key=SILVER.split("/"),
    deps=[BRONZE.split("/")],
    partitions_def=dates_of(BRONZE),
    automation_condition=on_new_upstream_data(),
    backfill_policy=dg.BackfillPolicy.single_run(),  # by hand, a year of dates is one run
    pool="failed_requests",  # one run at a time; drains keep their own slots
    group_name="silver",
    kinds={"spark", "deltalake"},
)
def failed_requests(context: dg.AssetExecutionContext, spark: SparkResource) -> dg.MaterializeResult[None]:
    """Requests with a status of 400 and above."""
    lake, dates = Settings.from_environment().lake, context.partition_key_range
    of_dates = f"date >= '{dates.start}' AND date <= '{dates.end}'"
    with spark.watched():
        requests = spark.session().read.format("delta").load(f"{lake}/{BRONZE}").where(of_dates)
        failed = requests.where("status >= 400").select("date", "host", "method", "url", "status", "session_id")
        # Replace these dates completely, also if no rows are left: a run can be repeated.
        written = failed.write.format("delta").partitionBy("date").mode("overwrite").option("replaceWhere", of_dates)
        written.save(f"{lake}/{SILVER}")
    return dg.MaterializeResult(metadata={"dagster/uri": f"{lake}/{SILVER}"})
