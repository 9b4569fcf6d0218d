"""A server of ours whose clock stands still, with one shard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kdi_assets.dev.kinesis.faults import ServerClock
from kdi_assets.dev.kinesis.server import start_kinesis
from tests.kinesis_shard import OneShard


@pytest.fixture
def shard(monkeypatch: pytest.MonkeyPatch) -> Iterator[OneShard]:
    """A shard; pauses advance the clock of its server, which is that of watches too."""
    server = start_kinesis(clock=ServerClock(frozen=True))
    monkeypatch.setattr("time.sleep", lambda seconds: server.advance(seconds + 0.05))
    monkeypatch.setattr("time.monotonic", server.now)
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    yield OneShard(server)
    server.stop()
    assert (server.unmet_faults(), server.failures()) == ([], [])
