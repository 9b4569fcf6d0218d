"""Spark settings that the engine needs."""

from __future__ import annotations

import os
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


def s3_config(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Settings for a lake on S3, with endpoint and region of the variables that boto3 and delta-rs read too.

    Credentials are not among them: the AWS SDK in the JVM finds them by its usual chain (variables, profile, role of
    the instance), so that no key is in a configuration that Spark shows.
    """
    log_store = "kdi.storage.ConditionalPutLogStore"
    config = {
        "spark.delta.logStore.s3.impl": log_store,
        "spark.delta.logStore.s3a.impl": log_store,
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.s3a.aws.credentials.provider": (
            "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
        ),
        # The default stream, "analytics", needs more jars and the SDK's second client.
        "spark.hadoop.fs.s3a.input.stream.type": "classic",
    }
    if endpoint := environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL"):
        # Servers other than Amazon's mostly have no host name for each bucket.
        config |= {"spark.hadoop.fs.s3a.endpoint": endpoint, "spark.hadoop.fs.s3a.path.style.access": "true"}
    if region := environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION"):
        config["spark.hadoop.fs.s3a.endpoint.region"] = region
    return config
