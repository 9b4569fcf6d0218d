"""A table that is served from PostgreSQL."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.tables.served import ROWS, ServedDelta


@pytest.fixture
def numbers(spark: SparkSession, lake: str, url: str) -> ServedDelta:
    """A table of 100 rows, not served yet."""
    made = ServedDelta.create(spark, lake, url)
    made.sql(ROWS % 100)
    return made
