"""`kdi` over a stream of Kinesis that does not answer, or that a server of ours has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kdi_assets.cli.session import LazySession
from kdi_assets.tools.local.kinesis.faults import ServerClock
from kdi_assets.tools.local.kinesis.server import start_kinesis
from tests.kinesis.drained import Drained, no_spark
from tests.typed import Kdi, typed


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lake: str) -> None:
    given = {"KDI_LAKE": lake, "KDI_DEFS": str(tmp_path / "defs"), "KDI_HOME": str(tmp_path / "home")}
    for name, value in (given | {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "home").mkdir()
    monkeypatch.setattr(LazySession, "__call__", no_spark)
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between the attempts of botocore


@pytest.fixture
def kdi(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Kdi:
    return typed(monkeypatch, capsys)


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lake: str) -> Iterator[Drained]:
    server = start_kinesis(clock=ServerClock(frozen=True))
    monkeypatch.setattr("time.sleep", lambda seconds: server.advance(seconds + 0.05))
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    yield Drained(server, tmp_path / "defs", lake)
    server.stop()
