"""A hand-written asset that takes what is new in a table, exactly once: failed requests, row by row."""

import dagster as dg

from kdi_assets.downstream import new_rows, on_new_upstream_data
from kdi_assets.resources.spark import SparkResource
from kdi_assets.settings import Settings

BRONZE, FAILURES = "bronze/web_requests", "silver/failures"


@dg.asset(
    key=FAILURES.split("/"),
    deps=[BRONZE.split("/")],
    automation_condition=on_new_upstream_data(),
    pool="failures",  # one run at a time
    group_name="silver",
    kinds={"spark", "deltalake"},
)
def failures(spark: SparkResource) -> dg.MaterializeResult[None]:
    """Requests with a status of 400 and above."""
    with spark.watched():
        session = spark.session()
        new = new_rows(session, BRONZE, into=FAILURES)
        if new is None:
            return dg.MaterializeResult(metadata={"new": "nothing"})
        requests = new.rows
        if new.kind == "changed":  # rows were changed or removed: all rows, at the version of the bookmark
            bronze = session.read.format("delta").option("versionAsOf", new.version)
            requests = bronze.load(f"{Settings.from_environment().lake}/{BRONZE}")
        failed = requests.where("status >= 400").select("date", "host", "method", "url", "status")
        # Rows and bookmark are one version: a run that dies before it has done nothing, and can be repeated.
        version = new.append(failed) if new.kind == "appended" else new.replace_everything(failed)
    return dg.MaterializeResult(metadata={"new": new.kind, "upstream_version": new.version, "delta_version": version})
