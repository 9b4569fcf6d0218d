"""Starts the project's job when a drain brought rows."""

from collections.abc import Iterator

import dagster as dg


@dg.asset_sensor(asset_key=dg.AssetKey(["bronze", "web_requests"]), job_name="count_requests")
def new_requests(context: dg.SensorEvaluationContext, event: dg.EventLogEntry) -> Iterator[dg.RunRequest]:
    """One run for each materialization of the table."""
    yield dg.RunRequest(run_key=context.cursor)
