"""Our server with a clock that only tests move: one for a module, without calls of the test before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kinesis.endpoint import KinesisEndpoint, frozen_kinesis


@pytest.fixture(scope="module")
def endpoint() -> Iterator[KinesisEndpoint]:
    with frozen_kinesis() as one:
        yield one


@pytest.fixture
def kinesis(endpoint: KinesisEndpoint) -> Iterator[KinesisEndpoint]:
    endpoint.wait(10)
    yield endpoint
    endpoint.clean_up()
