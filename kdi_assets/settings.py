"""What a checkout, a container or a user sets by environment; everything else is in the YAML documents."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

DriverMode = Literal["own", "shared"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Where things lie and which driver is used.

    Attributes:
        home: Everything that a checkout makes (jars, broker data, lake, Dagster's home, driver secret). ``KDI_HOME``.
        lake: Root of the tables, a path or URI. ``KDI_LAKE``.
        kafka: Bootstrap servers of the cluster ``main``, ahead of its document; empty: as documented. ``KDI_KAFKA``.
        spark_master: Spark's master; empty leaves it to Spark's own configuration. ``KDI_SPARK_MASTER``.
        alert_webhook: Where alerts are sent; empty: nowhere. A secret, so it is not shown. ``KDI_ALERT_WEBHOOK``.
        driver: ``own`` starts a JVM in the process, ``shared`` attaches to the warm driver. ``KDI_DRIVER``.
    """

    home: Path
    lake: str
    kafka: str = ""
    spark_master: str = ""
    driver: DriverMode = "own"
    alert_webhook: str = field(default="", repr=False)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read the ``KDI_…`` variables.

        Raises:
            ValueError: ``KDI_DRIVER`` is neither ``own`` nor ``shared``.
        """
        home = Path(environment.get("KDI_HOME", ".kdi")).absolute()
        driver = environment.get("KDI_DRIVER", "own")
        if driver not in ("own", "shared"):
            raise ValueError(f"KDI_DRIVER is {driver!r}; it takes own or shared")
        return cls(
            home=home,
            lake=environment.get("KDI_LAKE") or str(home / "lake"),
            kafka=environment.get("KDI_KAFKA", ""),
            spark_master=environment.get("KDI_SPARK_MASTER", ""),
            driver=cast(DriverMode, driver),
            alert_webhook=environment.get("KDI_ALERT_WEBHOOK", ""),
        )
