"""Spark compiles nothing: a test drains a few messages at a time, and what it asks is the order of the steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

PLANNED_ONCE = {"spark.sql.adaptive.enabled": "false"}
"""One partition needs no adapting, which plans every stage of a query anew and runs it as a job of its own."""


@contextmanager
def interpreting(spark: SparkSession) -> Iterator[None]:
    """A session, and those that begin beside it, compile nothing while the body lasts."""
    context = spark.sparkContext._jsc.sc().conf()  # what a new session begins with
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
