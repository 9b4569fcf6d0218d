"""A warm driver of the tests' own, that outlives the processes that are killed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kdi_assets.runtime.broker import QUICK_START
from kdi_assets.runtime.control import DriverGone, driver_status
from kdi_assets.runtime.processes import Child
from tests.conftest import CHECKOUT
from tests.spark.test_warm_driver import wait_until


@pytest.fixture(scope="module")
def warm_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A ``KDI_HOME`` with a warm driver running in it."""
    home = tmp_path_factory.mktemp("home")
    (home / "jars").symlink_to(CHECKOUT / ".kdi" / "jars")
    jvm = {"SPARK_DRIVER_MEMORY": "1g", "SPARK_SUBMIT_OPTS": " ".join(QUICK_START)}
    environment = {"KDI_HOME": str(home), "KDI_SPARK_MASTER": "local[2]", **jvm}
    child = Child([Path(sys.executable).with_name("kdi"), "driver", "run"], environment=environment, log=home / "log")

    def answers() -> bool:
        assert child.exit_code() is None, (home / "log").read_text()
        try:
            return bool(driver_status(home))
        except DriverGone:
            return False

    wait_until(answers, seconds=120)
    yield home
    child.stop()
