"""The endpoint under test: our own server, or that of KDI_KINESIS_ENDPOINT, a URL or ``aws``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.kinesis.differences import DIFFERENCES
from tests.kinesis.endpoint import KinesisEndpoint, frozen_kinesis, kinesis_client

ENDPOINT = "KDI_KINESIS_ENDPOINT"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[tuple[str, KinesisEndpoint]]:
    """The endpoint, with the name under which its differences are known."""
    if not (given := os.environ.get(ENDPOINT)):
        with frozen_kinesis() as ours:
            yield "ours", ours
        return
    with closing(kinesis_client(None if given == "aws" else given)) as client:
        yield given, KinesisEndpoint(client)


@pytest.fixture
def kinesis(endpoint: tuple[str, KinesisEndpoint], request: pytest.FixtureRequest) -> Iterator[KinesisEndpoint]:
    """The endpoint for one test, which is expected to fail where the endpoint is known to differ."""
    name, one = endpoint
    known = DIFFERENCES.get(name, {})
    for test in (request.node.name, request.node.originalname):
        if test in known:
            reason, raises = known[test]
            request.applymarker(pytest.mark.xfail(reason=reason, raises=raises, strict=True))
    if one.server:
        one.wait(2)  # calls of the test before must not count towards the limits of this one
    yield one
    one.clean_up()
