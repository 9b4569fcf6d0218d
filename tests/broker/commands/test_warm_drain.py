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

UNNEEDED = {"boto3", "botocore", "dagster", "duckdb", "numpy", "pandas", "psycopg2", "ptars", "pyarrow", "rich"}
"""Each would be a part of the time of a small drain."""
SCRIPT = f"""
import atexit, sys
from kdi_assets.cli.main import main
atexit.register(lambda: print(*sorted({UNNEEDED} & sys.modules.keys()), file=sys.stderr))
main()
"""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[WarmDriver]:
    home = tmp_path / "home"
    home.mkdir()
    driver = WarmDriver(home)
    yield driver
    driver.stop()


def test_a_drain_with_a_warm_driver_loads_no_package_that_it_does_not_need(
    environment: Settings, orders: DrivenStream, driver: WarmDriver
) -> None:
    """Procedure: drain twice, each time in a process of its own: into a new table, and into one with commits."""
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
        told.append((f"{good} rows" in drain.stdout, drain.stderr.splitlines()[-1]))

    assert told == [(True, ""), (True, "")]
