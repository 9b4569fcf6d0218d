"""Spark settings that the engine needs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kdi_assets.runtime.errors import LakeNotSafe, OtherLock, OtherLogStore
from kdi_assets.runtime.s3_access import credentials_file, has_keys, s3_endpoint, s3_region
from kdi_assets.settings import SAFE_SCHEMES, Settings

if TYPE_CHECKING:
    from pyspark import SparkConf

_BY_PUT = "kdi.storage.ConditionalPutLogStore"
LOG_STORES: Mapping[str, str] = MappingProxyType(
    {"file": "kdi.storage.LinkLogStore", "s3": _BY_PUT, "s3a": _BY_PUT},
)
"""Our log stores by the scheme of a table; Delta's for these schemes let two drivers overwrite each other's commits."""

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
        # By default Spark keeps the messages of a read's last poll for minutes, for reads of the same group: none come.
        "spark.kafka.consumer.fetchedData.cache.timeout": "1s",
        "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "5s",
        # For each column that is named, PySpark would tell the JVM from which line of Python.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # Without this prefix, Spark's launcher drops what is not its own.
        # The cheapest level; data from JSON came out no larger than with the default, 3.
        "spark.hadoop.parquet.compression.codec.zstd.level": "1",
        # Of tables with coordinates of the default name. Each record has another number, and texts of so many digits
        # have equal hashes: to build a dictionary of them, and to throw it away, took more CPU than all other columns.
        "spark.hadoop.parquet.enable.dictionary#kinesis.sequence_number": "false",
    }
)
"""Settings that a JVM takes only at its start."""
RUNTIME_CONFIG: Mapping[str, str] = MappingProxyType(
    {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        # Text that only Spark 2 read as a date is not a date; by default it ends the whole job.
        "spark.sql.legacy.timeParserPolicy": "CORRECTED",
        "spark.sql.parquet.compression.codec": "zstd",
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


# For the file with sums that Delta writes beside each commit. The default starts eight processes to rename it.
_IN_FOLDERS = {
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming.checkpointing."
    "FileSystemBasedCheckpointFileManager"
}
_CREDENTIALS = "software.amazon.awssdk.auth.credentials"


def lake_config(settings: Settings) -> dict[str, str]:
    """Settings for the storage of the lake and of further buckets, which Spark's own configuration may override.

    Credentials are not among them: the AWS SDK in the JVM finds them by its usual chain (variables, profile, role of
    the instance), so that no key is in a configuration that Spark shows.

    Raises:
        LakeNotSafe: Two drivers could commit the same version there.
        CredentialsMissing, CredentialsRefused: The profile of AWS cannot be read.
    """
    if (scheme := urlsplit(settings.lake).scheme) not in SAFE_SCHEMES:
        raise LakeNotSafe(lake=settings.lake, scheme=scheme)
    if not settings.uses_s3:
        return {log_store_setting("file"): LOG_STORES["file"], **(_IN_FOLDERS if scheme in ("", "file") else {})}
    endpoint, region = s3_endpoint(), s3_region()
    # Servers other than Amazon's mostly have no host name for each bucket.
    own_server = {"fs.s3a.endpoint": endpoint, "fs.s3a.path.style.access": "true"} if endpoint else {}
    # By default the SDK takes a web identity before the profile, botocore takes it after.
    provider = (
        "ProfileCredentialsProvider"
        if os.environ.get("AWS_PROFILE") and not has_keys()
        else "DefaultCredentialsProvider"
    )
    hadoop = {
        "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "fs.s3a.aws.credentials.provider": f"{_CREDENTIALS}.{provider}",
        "fs.s3a.input.stream.type": "classic",  # the default reads by netty, of which Spark has a newer version
        # Names of files are unique; otherwise the client first looks for a file and for a folder of each name.
        "fs.s3a.performance.flags": "create,delete,mkdir",
        # A storage that does not answer is an error within minutes. The defaults 7, 5 and 20 with doubled pauses: days.
        "fs.s3a.retry.limit": "3",
        "fs.s3a.attempts.maximum": "3",
        "fs.s3a.retry.throttle.limit": "8",
        **({"fs.s3a.endpoint.region": region} if region else {}),
        **own_server,
    }
    for bucket, profile in settings.s3_buckets.items():
        hadoop |= _of_bucket(bucket, profile) if profile else {}
    stores = {log_store_setting(scheme): store for scheme, store in LOG_STORES.items()}
    return {**stores, **{f"spark.hadoop.{name}": value for name, value in hadoop.items()}}


def _of_bucket(bucket: str, profile: str) -> dict[str, str]:
    """Hadoop's settings of one bucket. Its keys stay in the file, and all else of the profile is what others read."""
    endpoint, region = s3_endpoint(f"s3://{bucket}"), s3_region(f"s3://{bucket}")
    own = {
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.auth.ProfileAWSCredentialsProvider",
        "auth.profile.name": profile,
        "auth.profile.file": credentials_file(),
        **({"endpoint.region": region} if region else {}),
        **({"endpoint": endpoint, "path.style.access": "true"} if endpoint else {}),
    }
    return {f"fs.s3a.bucket.{bucket}.{name}": value for name, value in own.items()}


def log_store_setting(scheme: str) -> str:
    """Delta's setting for the log store of a scheme; it gives a path without one the scheme of its file system."""
    return f"spark.delta.logStore.{scheme}.impl"


def configure_lake(conf: SparkConf, settings: Settings) -> None:
    """Add ``lake_config`` to what Spark's own configuration sets.

    Raises:
        LakeNotSafe: Two drivers could commit the same version there.
        OtherLock, OtherLogStore: Spark's own configuration names another log store.
    """
    for name, value in lake_config(settings).items():
        if value in LOG_STORES.values():
            for setting in (name, "spark.delta.logStore.class"):
                refuse_other_log_store(settings.lake, setting, str(conf.get(setting, value)), ours=value)
        conf.setIfMissing(name, value)


def refuse_other_log_store(uri: str, setting: str, store: str, *, ours: str) -> None:
    """Refuse a log store other than ours.

    Raises:
        OtherLock: It locks through DynamoDB.
        OtherLogStore: It is another one.
    """
    if store != ours:
        raise (OtherLock if "DynamoDB" in store else OtherLogStore)(uri=uri, setting=setting, value=store)
