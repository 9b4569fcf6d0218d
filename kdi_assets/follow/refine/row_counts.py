"""Counts rows while an action computes them; each row once, also if Spark runs a task again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdi_assets.runtime.spark_internals import jvm_context, kernel_call, kernel_object

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CLASS = "kdi.runtime.RowCounts"


class RowCounts:
    """How many rows there are of each kind. Spark's ``Observation`` would count those of a repeated task again."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._counts = kernel_object(spark, _CLASS).registered(jvm_context(spark))

    def counting(self, rows: DataFrame, kind: str) -> DataFrame:
        """The same rows, counted in the first action that computes them.

        Args:
            kind: Spark SQL, a bigint: which kind of row it is; a row where it is null does not count.
        """
        from pyspark.sql import functions as F

        arguments = self._counts, f"coalesce({kind}, 0L)"
        counted = kernel_call(self._spark, _CLASS, "counted", "boolean", *arguments, counts=True)
        return rows.where(F.expr(f"({kind}) IS NULL") | counted)

    def by_kind(self) -> dict[int, int]:
        """The number of rows of each kind, once the action has ended."""
        pairs = [int(each) for each in self._counts.pairs()]
        return dict(zip(pairs[::2], pairs[1::2], strict=True))
