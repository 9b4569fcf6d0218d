"""No environment of the machine's; and a fake registry, asked without pauses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fake_registry import RunningRegistry, ask_at_once, fake_registry


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KDI_KAFKA", "KDI_DEFS", "KDI_DRIVER", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ask_at_once(monkeypatch)


@pytest.fixture
def registry(at_once: None) -> Iterator[RunningRegistry]:
    with fake_registry() as running:
        yield running
