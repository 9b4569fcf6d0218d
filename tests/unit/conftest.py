"""A fake registry, asked without pauses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fake_registry import RunningRegistry, ask_at_once, fake_registry


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ask_at_once(monkeypatch)


@pytest.fixture
def registry(at_once: None) -> Iterator[RunningRegistry]:
    with fake_registry() as running:
        yield running
