"""Separate processes that drain: warm drivers, and drains that get a signal."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from kdi_assets.settings import Settings
from kdi_assets.tools.local.s3_server import S3Server
from tests.faults.doomed_drain import Doom, Doomed, HasTable
from tests.faults.kafka.guarded import Guarded, guarded_broker
from tests.faults.warm_driver import WarmDriver

pytest.register_assert_rewrite("tests.faults.systems.engine_contract")


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """The test's name, for a topic of a broker that other tests use too."""
    return re.sub(r"\W+", "_", request.node.name)


@pytest.fixture(scope="session")
def local_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmDriver]:
    """A driver that outlives the processes that are killed; a test that stops it starts its own."""
    driver = WarmDriver(tmp_path_factory.mktemp("home"))
    yield driver
    driver.stop()


@pytest.fixture(scope="session")
def s3_driver(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmDriver]:
    """The same with S3's client."""
    driver = WarmDriver(tmp_path_factory.mktemp("home"), {**s3_server.environment(), "KDI_LAKE": "s3://tests"})
    yield driver
    driver.stop()


@pytest.fixture
def warm_driver(request: pytest.FixtureRequest, lake_in: str) -> WarmDriver:
    """The driver that reaches the test's lake."""
    driver: WarmDriver = request.getfixturevalue("s3_driver" if lake_in == "s3" else "local_driver")
    return driver


@pytest.fixture
def warm_home(warm_driver: WarmDriver) -> Path:
    """A ``KDI_HOME`` with a warm driver running in it."""
    return warm_driver.home


@pytest.fixture
def start_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], WarmDriver]]:
    """Starts a warm driver for a test that stops it."""
    drivers: list[WarmDriver] = []

    def start() -> WarmDriver:
        drivers.append(WarmDriver(tmp_path_factory.mktemp("home")))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.stop()


@pytest.fixture(scope="session")
def guarded(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """The broker of the test process that asks for credentials; a test restores the rights that it removes."""
    with guarded_broker(tmp_path_factory.mktemp("guarded"), settings) as broker:
        yield broker


class DoomedFactory(Protocol):
    """Starts a drain that gets a signal at a point."""

    def __call__(self, web: HasTable, point: str, number: signal.Signals, **options: Any) -> Doomed: ...


@pytest.fixture
def doomed(request: pytest.FixtureRequest) -> Iterator[DoomedFactory]:
    """Drains in separate processes, attached to the warm driver by default."""
    started: list[Doomed] = []

    def start(web: HasTable, point: str, number: signal.Signals, *, to_jvm: bool = False, **options: Any) -> Doomed:
        home = options.pop("home", None) or request.getfixturevalue("warm_home")
        started.append(Doomed(web, Doom(point, number, to_jvm), home, **options))
        return started[-1]

    yield start
    for process in started:
        process.end()
