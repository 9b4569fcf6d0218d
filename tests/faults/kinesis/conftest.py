"""A Kinesis server of ours for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.kinesis.endpoint import kinesis_of_environment


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[KinesisServer]:
    """A server that both clients reach with the keys of the environment."""
    with kinesis_of_environment(monkeypatch) as server:
        yield server
