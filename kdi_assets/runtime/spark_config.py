"""What the engine needs of Spark: settings of the JVM and of a session."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

START_CONFIG: Mapping[str, str] = MappingProxyType(
    {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # What Spark remembers of finished work, also without a UI; a thousand plans of each kind otherwise.
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "1000",
        "spark.sql.ui.retainedExecutions": "20",
    }
)
"""What is settled when the JVM starts."""
RUNTIME_CONFIG: Mapping[str, str] = MappingProxyType(
    {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        # Text that only Spark 2 read as a date is no date; the default ends the whole job when it meets one.
        "spark.sql.legacy.timeParserPolicy": "CORRECTED",
        "spark.sql.parquet.compression.codec": "zstd",
        # Of zstd's levels the cheapest; what JSON holds came out no larger than by the default, 3.
        "parquet.compression.codec.zstd.level": "1",
        # The default, INT96, has no statistics, and other readers wrap dates beyond 2262.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Upper bounds: adaptive execution joins small partitions, Delta's log of one table is small work.
        "spark.sql.shuffle.partitions": "16",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
        "spark.databricks.delta.snapshotPartitions": "2",
        # The JVM never compiles a method beyond this; what Spark generates for a wide record would stay interpreted.
        "spark.sql.codegen.hugeMethodLimit": "8000",
    }
)
"""What every session can have for itself."""
SESSION_CONFIG: Mapping[str, str] = MappingProxyType({**START_CONFIG, **RUNTIME_CONFIG})
"""What the engine needs of Spark; a caller's configuration goes before it. It names no master."""
