"""No environment of the machine; a fake registry without pauses; and `kdi` in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents import stream, written
from tests.fake_registry import RunningRegistry, ask_at_once, fake_registry
from tests.typed import Kdi, typed


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KDI_KAFKA", "KDI_DEFS", "KDI_DRIVER", "KDI_CATALOG", "OPENLINEAGE_URL", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ask_at_once(monkeypatch)


@pytest.fixture
def registry(at_once: None) -> Iterator[RunningRegistry]:
    with fake_registry() as running:
        yield running


@pytest.fixture
def kdi(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, lake: str) -> Kdi:
    """Runs a command in this process, over one stream whose broker does not exist."""
    orders = stream("bronze/orders", more=", freshness: {warn: 5 minutes, fail: 2 hours}")
    written(tmp_path, orders=orders.replace("topic: t", "topic: orders"))
    for name, value in {"KDI_LAKE": lake, "KDI_DEFS": str(tmp_path), "KDI_KAFKA": "127.0.0.1:1"}.items():
        monkeypatch.setenv(name, value)
    return typed(monkeypatch, capsys)
