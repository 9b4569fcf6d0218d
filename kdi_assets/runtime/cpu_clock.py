"""The CPU seconds of a piece of work: of this process, and of what it does in Spark."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from kdi_assets.runtime.cluster import runs_here
from kdi_assets.runtime.gateway import job_group
from kdi_assets.runtime.spark_internals import TaskSeconds, jvm_cpu_seconds, thread_cpu_seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CpuClock:
    """Counts CPU seconds from its creation on; of a session, from ``watching`` on.

    A JVM of our own counts whole. In the warm driver, which other processes use too, only the JVM's thread that serves
    this process counts, and the tasks of this process. Tasks on other machines count in both cases.
    """

    def __init__(self) -> None:
        self._began = time.process_time()
        self._spark_seconds: Callable[[], float] | None = None
        self._in_spark = 0.0

    def watching(self, spark: SparkSession) -> SparkSession:
        """The session; what it uses counts from the first call on."""
        if self._spark_seconds is None:
            with suppress(Exception):  # as below: the work goes on, and counts its own process only
                seconds = _seconds_in_spark(spark)
                began = seconds()
                self._spark_seconds = lambda: seconds() - began
        return spark

    def seconds(self) -> float:
        """CPU seconds so far; of a JVM that has ended, those known last."""
        if self._spark_seconds is not None:
            with suppress(Exception):  # a figure must not fail a committed drain
                self._in_spark = max(self._in_spark, self._spark_seconds())
        return time.process_time() - self._began + self._in_spark


def _seconds_in_spark(spark: SparkSession) -> Callable[[], float]:
    """Reads the CPU seconds that this process has used in Spark, from any beginning."""
    group = job_group(spark)
    is_own_jvm = group is None
    if is_own_jvm and runs_here(spark.sparkContext.master):
        return lambda: jvm_cpu_seconds(spark)
    tasks = TaskSeconds(spark, group)
    return lambda: (jvm_cpu_seconds if is_own_jvm else thread_cpu_seconds)(spark) + tasks.seconds()
