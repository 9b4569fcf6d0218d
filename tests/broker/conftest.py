"""Commands as a person types them, over the broker of the test process and a fake registry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kdi_assets.settings import Settings
from kdi_assets.tools.local.broker import JVM_OPTIONS, QUICK_START, Broker, start_broker
from tests.formats.fake_registry import RunningRegistry, ask_at_once, fake_registry
from tests.typed import Kdi, typed


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, settings: Settings, broker: Broker, lake: str, defs: Path) -> Settings:
    """The environment variables of a user."""
    monkeypatch.setenv("KDI_HOME", str(settings.home))
    monkeypatch.setenv("KDI_LAKE", lake)
    monkeypatch.setenv("KDI_KAFKA", broker.bootstrap_servers)
    monkeypatch.setenv("KDI_SPARK_MASTER", settings.spark_master)
    monkeypatch.setenv("KDI_DRIVER", "own")
    monkeypatch.setenv("KDI_DEFS", str(defs))
    return settings


@pytest.fixture
def kdi(environment: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Kdi:
    """Runs a command in this process, with the session of the test process."""
    return typed(monkeypatch, capsys)


@pytest.fixture
def own_broker(settings: Settings, tmp_path: Path) -> Iterator[Broker]:
    """A broker for this test only, which may stop it."""
    broker = start_broker(tmp_path / "own", home=settings.home, jvm_options=(*JVM_OPTIONS, *QUICK_START))
    yield broker
    broker.kill()


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningRegistry]:
    """An empty registry; its cache belongs to the test."""
    ask_at_once(monkeypatch)
    monkeypatch.setenv("KDI_HOME", str(tmp_path / "home"))
    with fake_registry() as running:
        yield running
