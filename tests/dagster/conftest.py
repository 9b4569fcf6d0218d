"""A real Dagster instance on SQLite per test, with our settings."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster import DagsterInstance
from pyspark.sql import SparkSession

from kdi_assets.settings import Settings
from tests.table_by_hand import TableByHand

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def _migrated_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The storage of an unused instance: migrating an empty one costs a second, copying it nothing."""
    home = tmp_path_factory.mktemp("dagster")
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        instance.get_runs()
        instance.all_instigator_state()
        instance.get_asset_keys()
    return home


@pytest.fixture
def instance(_migrated_home: Path, tmp_path: Path) -> Iterator[DagsterInstance]:
    """An instance with the checkout's run retries and pools, its storage below the test's folder."""
    ours = yaml.safe_load((CHECKOUT / "dagster.yaml").read_text())
    kept = {name: ours[name] for name in ("telemetry", "concurrency", "run_retries")}
    home = shutil.copytree(_migrated_home, tmp_path / "dagster")
    with dg.DagsterInstance.local_temp(str(home), overrides=kept) as instance:
        yield instance


@pytest.fixture
def deployed(_migrated_home: Path, tmp_path: Path) -> Iterator[DagsterInstance]:
    """An instance with the threads of a deployment for ticks: those that find nothing go on looking."""
    sensors = yaml.safe_load((CHECKOUT / "deploy" / "dagster.yaml").read_text())["sensors"]
    home = shutil.copytree(_migrated_home, tmp_path / "dagster")
    with dg.DagsterInstance.local_temp(str(home), overrides={"sensors": sensors}) as instance:
        yield instance


@pytest.fixture
def lake_in_environment(lake: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The test's lake, in the environment of assets and sensors."""
    monkeypatch.setenv("KDI_LAKE", lake)
    return lake


@pytest.fixture
def one_jvm(spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The resource opens its session in the JVM of the test process."""
    monkeypatch.setenv("KDI_HOME", str(settings.home))
    monkeypatch.setenv("KDI_DRIVER", "own")
    monkeypatch.delenv("KDI_SPARK_MASTER", raising=False)


@pytest.fixture
def table(lake: str) -> TableByHand:
    """A table with a drain; checks without Spark read only its log."""
    table = TableByHand(lake)
    table.drain(100)
    return table
