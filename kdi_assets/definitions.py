"""The code location: what exists, and where it is decided; nothing else."""

from __future__ import annotations

import dagster as dg

from kdi_assets.components.load import defs_folder, load_streams
from kdi_assets.components.tree import component_definitions
from resources.spark import SparkResource
from sensors.lag import lag_sensors


@dg.definitions
def defs() -> dg.Definitions:
    folder = defs_folder()
    streams = load_streams(folder)  # before Dagster looks: it would stop at the first mistake, and name no line
    shared = dg.Definitions(
        resources={"spark": SparkResource()},
        sensors=lag_sensors(list(streams.values())),
        executor=dg.in_process_executor,  # one run, many streams, one Spark session
    )
    return dg.Definitions.merge(component_definitions(folder), shared)
