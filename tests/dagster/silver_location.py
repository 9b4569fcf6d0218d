"""A code location with a bronze table and an asset on it, for a code server; no drain of it runs."""

from __future__ import annotations

import dagster as dg

from kdi_assets.components.assets import table_asset
from kdi_assets.downstream import on_new_upstream_data
from resources.spark import SparkResource
from sensors.downstream import downstream_sensors
from tests.dagster.built_on_bronze import BRONZE, silver_on
from tests.dagster.fakes import ScriptedDrain, no_audit


@dg.definitions
def defs() -> dg.Definitions:
    table = table_asset(BRONZE, drain=ScriptedDrain(), audit=no_audit)
    built = dg.Definitions(
        assets=[table, silver_on(BRONZE, on_new_upstream_data())], resources={"spark": SparkResource()}
    )
    return dg.Definitions.merge(built, dg.Definitions(sensors=downstream_sensors(built)))
