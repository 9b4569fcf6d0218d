"""Servers of ours, in the environment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.kinesis.endpoint import KinesisEndpoint, frozen_kinesis, kinesis_of_environment
from tests.kinesis.shard import OneShard


@pytest.fixture
def shard(monkeypatch: pytest.MonkeyPatch) -> Iterator[OneShard]:
    """A shard; pauses advance the clock of its server, which is that of watches too."""
    with kinesis_of_environment(monkeypatch, frozen=True) as server:
        monkeypatch.setattr("time.sleep", lambda seconds: server.advance(seconds + 0.05))
        monkeypatch.setattr("time.monotonic", server.now)
        yield OneShard(server)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[KinesisServer]:
    """A server whose clock goes on."""
    with kinesis_of_environment(monkeypatch) as server:
        yield server


@pytest.fixture
def kinesis(monkeypatch: pytest.MonkeyPatch) -> Iterator[KinesisEndpoint]:
    """A server with a stream of 2 shards, `orders`; pauses advance its clock."""
    with frozen_kinesis() as endpoint:
        assert endpoint.server
        for name, value in endpoint.server.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("time.sleep", lambda seconds: endpoint.wait(seconds + 0.05))
        endpoint.stream(2, name="orders")
        yield endpoint
