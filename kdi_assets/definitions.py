"""The code location: what exists, and where it is decided; nothing else."""

from __future__ import annotations

import dagster as dg

from kdi_assets.components.component_tree import component_definitions
from kdi_assets.components.topics import topic_assets
from kdi_assets.config.loader import defs_folder, load_streams
from resources.spark import SparkResource
from sensors.check_tables import check_schedules, table_check_job
from sensors.downstream import downstream_sensors
from sensors.freshness import freshness_sensors
from sensors.lag import lag_sensors


@dg.definitions
def defs() -> dg.Definitions:
    folder = defs_folder()
    # Before Dagster looks at the documents: it would stop at the first mistake.
    streams = load_streams(folder).values()
    checks = table_check_job(streams)
    shared = dg.Definitions(
        assets=topic_assets(streams),  # streams share them; tables and checks are the components'
        resources={"spark": SparkResource()},
        sensors=[*lag_sensors(list(streams)), *freshness_sensors(streams)],
        jobs=[checks],
        schedules=check_schedules(checks),
        executor=dg.in_process_executor,  # one run, many streams, one Spark session
    )
    location = dg.Definitions.merge(component_definitions(folder), shared)
    return dg.Definitions.merge(location, dg.Definitions(sensors=downstream_sensors(location)))
