"""A Kinesis server of ours for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kdi_assets.dev.kinesis.server import KinesisServer, start_kinesis


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[KinesisServer]:
    """A server that both clients reach with the keys of the environment."""
    server = start_kinesis()
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    yield server
    server.stop()
    assert (server.unmet_faults(), server.failures()) == ([], [])
