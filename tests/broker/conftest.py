"""Commands as a person types them, over the broker of the test process."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdi_assets.runtime.broker import Broker
from kdi_assets.settings import Settings
from tests.typed import Kdi, typed


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, settings: Settings, broker: Broker, lake: str, defs: Path) -> Settings:
    """What a user has set."""
    monkeypatch.setenv("KDI_HOME", str(settings.home))
    monkeypatch.setenv("KDI_LAKE", lake)
    monkeypatch.setenv("KDI_KAFKA", broker.bootstrap_servers)
    monkeypatch.setenv("KDI_SPARK_MASTER", settings.spark_master)
    monkeypatch.setenv("KDI_DRIVER", "own")
    monkeypatch.setenv("KDI_DEFS", str(defs))
    return settings


@pytest.fixture
def kdi(environment: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Kdi:
    """Runs a command in this process, whose Spark then is the session's."""
    return typed(monkeypatch, capsys)
