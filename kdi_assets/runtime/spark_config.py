"""Spark settings that the engine needs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

START_CONFIG: Mapping[str, str] = MappingProxyType(
    {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Spark keeps finished work also without a UI; the default is a thousand plans of each kind.
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "1000",
        "spark.sql.ui.retainedExecutions": "20",
        # For each column that is named, PySpark would tell the JVM from which line of Python.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }
)
"""Settings that a JVM takes only at its start."""
RUNTIME_CONFIG: Mapping[str, str] = MappingProxyType(
    {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        # Text that only Spark 2 read as a date is no date; by default it ends the whole job.
        "spark.sql.legacy.timeParserPolicy": "CORRECTED",
        "spark.sql.parquet.compression.codec": "zstd",
        # The cheapest level; data from JSON came out no larger than with the default, 3.
        "parquet.compression.codec.zstd.level": "1",
        # The default, INT96, has no statistics, and other readers wrap dates after 2262.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Upper bounds: adaptive execution joins small partitions, and Delta's log of one table is small.
        "spark.sql.shuffle.partitions": "16",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
        "spark.databricks.delta.snapshotPartitions": "2",
        # The JVM never compiles a larger method; Spark's code for a wide record would stay interpreted.
        "spark.sql.codegen.hugeMethodLimit": "8000",
    }
)
"""Settings of a session."""
SESSION_CONFIG: Mapping[str, str] = MappingProxyType({**START_CONFIG, **RUNTIME_CONFIG})
"""All settings that the engine needs; a caller's configuration overrides them. It names no master."""
