"""Prices that the sums assume: Fargate for Linux on x86, on demand, and S3 Standard, in us-east-1, June 2026.

Database, network, load balancer, storage and reading are not in them.
"""

from __future__ import annotations

CPU_HOUR, GIB_HOUR = 0.04048, 0.004445
PUTS = 0.005 / 1000
CORES, GIB = 4, 8
"""The task of a driver with its code server: the default of deploy/aws."""
SMALL_CORES, SMALL_GIB = 0.5, 1.0
"""The task of Dagster's daemon, and of its webserver."""
SMALLEST_CORES, SMALLEST_GIB = 0.25, 0.5
"""The smallest task that there is."""


def _a_day(cores: float, gib: float) -> float:
    return 24 * (cores * CPU_HOUR + gib * GIB_HOUR)


def tasks_a_day(drivers: int, *, cores: float = CORES) -> float:
    """Dollars a day of the drivers' tasks, with 2 GiB a core, and of the daemon and the webserver."""
    return drivers * _a_day(cores, cores * GIB / CORES) + 2 * _a_day(SMALL_CORES, SMALL_GIB)


def writes(files: float) -> float:
    """Dollars for so many new objects."""
    return files * PUTS


def smallest_services(count: int) -> float:
    """Dollars a day of so many services that always run, each in the smallest task."""
    return count * _a_day(SMALLEST_CORES, SMALLEST_GIB)
