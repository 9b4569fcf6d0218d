"""Spark without code generation: these tests drain a few messages at a time, and test the order of the steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

PLANNED_ONCE = {"spark.sql.adaptive.enabled": "false"}
"""With one partition, adaptive execution only costs: it plans every stage of a query again, as a job of its own."""


@contextmanager
def interpreting(spark: SparkSession) -> Iterator[None]:
    """A session, and sessions created from it, compile nothing during the body."""
    context = spark.sparkContext._jsc.sc().conf()  # the settings of a new session
    own = {**INTERPRETED, **PLANNED_ONCE}
    for option, value in own.items():
        spark.conf.set(option, value)
    for option, value in INTERPRETED.items():
        context.set(option, value)
    try:
        yield
    finally:
        for option in own:
            spark.conf.unset(option)
        for option in INTERPRETED:
            context.remove(option)
