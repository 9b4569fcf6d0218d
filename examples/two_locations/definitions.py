"""The project's own code location. It does not import kdi_assets: it needs only the keys of the tables."""

import dagster as dg

from resources.lake import Lake
from sensors.new_requests import new_requests


@dg.asset(deps=[dg.AssetKey(["bronze", "web_requests"])])
def request_count(lake: Lake) -> dg.MaterializeResult[None]:
    """How many requests the table has."""
    rows = lake.table("bronze/web_requests").to_pyarrow_dataset().count_rows()
    return dg.MaterializeResult(metadata={"requests": rows})


defs = dg.Definitions(
    assets=[request_count],
    jobs=[dg.define_asset_job("count_requests", selection=[request_count])],
    sensors=[new_requests],
    resources={"lake": Lake(root=dg.EnvVar("KDI_LAKE"))},
)
