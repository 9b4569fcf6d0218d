"""Commands in the JVM of the test process; a table that is served from PostgreSQL."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from kdi_assets.settings import Settings
from tests.tables.served import ROWS, ServedDelta


@pytest.fixture
def numbers(spark: SparkSession, lake: str, url: str) -> ServedDelta:
    """A table of 100 rows, not served yet."""
    made = ServedDelta.create(spark, lake, url)
    made.sql(ROWS % 100)
    return made


@pytest.fixture
def one_jvm(spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command opens its session in the JVM of the test process."""
    monkeypatch.setenv("KDI_DRIVER", settings.driver)
    monkeypatch.setenv("KDI_HOME", str(settings.home))
