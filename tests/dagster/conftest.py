"""A real Dagster instance on SQLite per test, with the settings that ours are run with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster import DagsterInstance

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    """An instance with the checkout's run retries and pools, its storage below the test's folder."""
    ours = yaml.safe_load((CHECKOUT / "dagster.yaml").read_text())
    kept = {name: ours[name] for name in ("telemetry", "concurrency", "run_retries")}
    home = tmp_path / "dagster"
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home), overrides=kept) as instance:
        yield instance


@pytest.fixture
def lake_in_environment(lake: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The test's lake, where assets and sensors look for it."""
    monkeypatch.setenv("KDI_LAKE", lake)
    return lake
