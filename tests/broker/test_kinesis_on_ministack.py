"""The contract of Kinesis endpoints against a server that others wrote: our own must not agree only with itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from kdi_assets.tools.local.s3_server import start_s3_server
from tests.kinesis.endpoint import KinesisEndpoint, kinesis_client
from tests.unit.kinesis_contract.conftest import kinesis  # noqa: F401
from tests.unit.kinesis_contract.test_contract_of_consumers import *  # noqa: F403
from tests.unit.kinesis_contract.test_contract_of_records import *  # noqa: F403
from tests.unit.kinesis_contract.test_contract_of_shards import *  # noqa: F403
from tests.unit.kinesis_contract.test_contract_of_streams import *  # noqa: F403


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, KinesisEndpoint]]:
    """The server of ministack; its known differences are expected failures."""
    server = start_s3_server(tmp_path_factory.mktemp("ministack"), services=("kinesis",))
    with closing(kinesis_client(server.endpoint)) as client:
        yield "ministack", KinesisEndpoint(client)
    server.stop()
