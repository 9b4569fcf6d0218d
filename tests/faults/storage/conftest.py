"""A proxy between Spark and the bucket of a test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kdi_assets.tools.local.s3_server import S3Server
from tests.faults.s3_proxy import S3Proxy, proxy_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def proxy(s3_lake: str, s3_server: S3Server, spark: SparkSession) -> Iterator[S3Proxy]:
    """Spark goes to the bucket through it; delta-rs goes to the bucket itself."""
    with proxy_to(s3_server.port) as proxy:
        spark.sparkContext._jsc.hadoopConfiguration().set("fs.s3a.endpoint", proxy.endpoint)
        yield proxy
