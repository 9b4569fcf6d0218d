"""Commands in the JVM of the test process; a registry; a table that is served from PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kdi_assets.settings import Settings
from tests.formats.fake_registry import RunningRegistry, ask_at_once, fake_registry
from tests.interpreted import interpreting
from tests.tables.served import ROWS, ServedDelta


@pytest.fixture
def numbers(spark: SparkSession, lake: str, url: str) -> ServedDelta:
    """A table of 100 rows, not served yet."""
    made = ServedDelta.create(spark, lake, url)
    made.sql(ROWS % 100)
    return made


@pytest.fixture(scope="module")
def interpreted_module(spark: SparkSession) -> Iterator[None]:
    """Spark compiles nothing for a module whose tests have some rows at a time."""
    with interpreting(spark):
        yield


@pytest.fixture
def one_jvm(spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command opens its session in the JVM of the test process."""
    monkeypatch.setenv("KDI_DRIVER", settings.driver)
    monkeypatch.setenv("KDI_HOME", str(settings.home))


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningRegistry]:
    """An empty registry; its cache belongs to the test."""
    ask_at_once(monkeypatch)
    monkeypatch.setenv("KDI_HOME", str(tmp_path / "home"))
    with fake_registry() as running:
        yield running
