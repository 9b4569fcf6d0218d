"""What `kdi drain` with a warm driver does besides the drain: as little as can be."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kdi_assets.settings import Settings
from tests.broker.commands.conftest import publish
from tests.driven import DrivenStream
from tests.faults.warm_driver import WarmDriver

OF_OTHER_FORMATS = "avro.decoder", "csv", "files.decoder", "json_schema.decoders", "protobuf.decoder", "registry.client"
UNNEEDED = {
    *("boto3", "botocore", "dagster", "duckdb", "numpy", "pandas", "psycopg2", "ptars", "pyarrow", "rich"),
    *(f"kdi_assets.messages.formats.{module}" for module in OF_OTHER_FORMATS),
}
"""Each would be a part of the time of a small drain."""
MOST_CALLS = 510
"""Of the JVM, in the main thread, by the second drain of a table; each takes CPU of both processes."""
SCRIPT = f"""
import atexit, gc, sys, threading
from kdi_assets.cli.main import main
from py4j.clientserver import ClientServerConnection
calls, send = [], ClientServerConnection.send_command
def counted(connection, command):
    if threading.current_thread() is threading.main_thread():  # others release objects, and watch progress, by chance
        calls.append(command)
    return send(connection, command)
def looks():
    return sum(generation["collections"] for generation in gc.get_stats())
def told():
    print(len(calls), looks() - before, *sorted({UNNEEDED} & sys.modules.keys()), file=sys.stderr)
ClientServerConnection.send_command = counted
atexit.register(told)
before = looks()
main()
"""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[WarmDriver]:
    home = tmp_path / "home"
    home.mkdir()
    driver = WarmDriver(home)
    yield driver
    driver.stop()


def test_a_drain_with_a_warm_driver_asks_and_loads_and_looks_for_garbage_as_little_as_it_needs(
    environment: Settings, orders: DrivenStream, driver: WarmDriver
) -> None:
    """Procedure: drain twice, each time in a process of its own: into a new table, and into one with commits.

    Pass: neither loads a package that it does not need, nor looks for Python's garbage more than a few times; the
    second calls the JVM at most ``MOST_CALLS`` times.
    """
    told = []
    for good in (2, 4):
        publish(orders, good=good)
        drain = subprocess.run(
            [sys.executable, "-c", SCRIPT, "drain", "orders"],
            env={**os.environ, **driver.environment, "KDI_DRIVER": "shared"},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        assert f"{good} rows" in drain.stdout
        calls, collections, *unneeded = drain.stderr.splitlines()[-1].split()
        told.append((int(collections) <= 5, unneeded))

    assert told == [(True, []), (True, [])]
    assert 100 < int(calls) <= MOST_CALLS
