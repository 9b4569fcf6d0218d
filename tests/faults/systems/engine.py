"""A cluster that runs Spark's tasks, as tests see it that hold for each of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kdi_assets.settings import Settings
from tests.conftest import CHECKOUT
from tests.faults.systems.cluster_driver import ClusterDriver
from tests.faults.warm_driver import WarmDriver
from tests.waiting import wait_until

IMPATIENT = {
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
}
ELASTIC = {"spark.dynamicAllocation.enabled": "true", **IMPATIENT}
"""What docs/clusters.md names, with times that a test can wait for."""


class Engine(ABC):
    """A running cluster, and its drivers: that of most tests, and others.

    Attributes:
        room_for_several: Whether two drivers get executors at once.

    Args:
        settings: Of its drivers, with the master.
        environment: Variables of the process of each driver.
    """

    room_for_several = True

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        self.settings, self.environment = settings, dict(environment)
        self._driver: ClusterDriver | None = None

    @abstractmethod
    def config(self) -> dict[str, str]:
        """For the JVM of each driver."""

    @abstractmethod
    def executors(self) -> list[int]:
        """The process ids of the executors of all drivers, the oldest first."""

    @abstractmethod
    def end_executor(self, process: int, how: str) -> None:
        """Let an executor end, as ``killed``, and see to it that there can be another one."""

    def await_executors(self, number: int) -> list[int]:
        """The executors, once there are so many."""
        wait_until(lambda: len(self.executors()) >= number, seconds=120)
        return self.executors()

    def driver(self) -> ClusterDriver:
        """The driver of most tests."""
        if self._driver is None:
            self._driver = self._started({}, self.settings.lake, {})
        return self._driver

    @contextmanager
    def other_driver(
        self, config: Mapping[str, str] | None = None, *, lake: str = "", **variables: str
    ) -> Iterator[ClusterDriver]:
        """A driver with other settings, during the body."""
        self.make_room()
        driver = self._started(config or {}, lake or self.settings.lake, variables)
        try:
            yield driver
        finally:
            driver.stop()

    def elastic_driver(self) -> AbstractContextManager[ClusterDriver]:
        """A driver that gives executors back which have nothing to do."""
        return self.other_driver(ELASTIC)

    @contextmanager
    def warm_driver(self, folder: Path, lake: str) -> Iterator[WarmDriver]:
        """A warm driver for a lake, during the body; its settings are in Spark's own file.

        Args:
            folder: Gets the file, and the driver's home.
        """
        self.make_room()
        given = Path(self.environment.get("SPARK_CONF_DIR", folder)) / "spark-defaults.conf"
        settings = given.read_text() if given.exists() else ""
        (folder / "spark-defaults.conf").write_text(settings + "".join(f"{k} {v}\n" for k, v in self.config().items()))
        (folder / "home").mkdir()
        of_engine = {**self.environment, "KDI_SPARK_MASTER": self.settings.spark_master, "KDI_LAKE": lake}
        driver = WarmDriver(folder / "home", {**of_engine, "SPARK_CONF_DIR": str(folder)})
        try:
            yield driver
        finally:
            driver.stop()

    def own_driver(self) -> dict[str, Any]:
        """How a drain in its own process starts a driver: options of ``Doomed``."""
        options = {"driver": "own", "home": CHECKOUT / ".kdi", "master": self.settings.spark_master}
        return {**options, "config": self.config(), "environment": self.environment}

    def make_room(self) -> None:
        """Let another driver have executors."""
        if not self.room_for_several:
            self.stop_driver()

    def stop_driver(self) -> None:
        """End the driver of most tests; the next one that asks for it starts it again."""
        if self._driver is not None:
            self._driver.stop()
        self._driver = None

    def _started(self, config: Mapping[str, str], lake: str, variables: Mapping[str, str]) -> ClusterDriver:
        environment = {**self.environment, **variables}
        return ClusterDriver(
            replace(self.settings, lake=lake), config={**self.config(), **config}, environment=environment
        )
