"""Other dates: whether rows of a date may be made of rows of other dates, and on which dates other rows came of it.

Of mode replace_dates, whose SQL may be any. Rows are computed again on the dates that changed upstream, so a row of
another date must not depend on these: what Spark shows is cheap, and otherwise all rows are computed and compared.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from kdi_assets.delta.files import rows_at
from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.columns import row_as_json
from kdi_assets.follow.refine.transform import transform
from kdi_assets.runtime.spark_internals import PlanLeaf, optimised_leaves, unread_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kdi_assets.documents.model.refined_table import RefinedTableSpec
    from kdi_assets.follow.refine.plan import RefinePlan

ANY_DAY = "0003-07-07"
"""A date that no SQL of a document names: what Spark does with a condition on it, it does with one on each date."""
CHANGED = "_kdi_changed"
"""Metadata of the column ``date`` of a table that has changed, by which Spark's plan shows where it is read."""


def are_made_of_own_dates(spark: SparkSession, table: RefinedTableSpec, plan: RefinePlan) -> bool:
    """Whether Spark shows that no row of the result depends on changed rows of another date.

    The result is asked for all rows that are not of one certain date. If Spark asks the same of each changed table
    before it does anything else with the rows, then its rows of this date make no other row of the result.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    frames = {}
    for number, upstream in enumerate(plan.upstreams):
        rows = rows_at(spark, upstream.uri, upstream.version)
        if upstream.kind == "nothing" and table.python:  # a function may read what is as it was
            frames[upstream.view] = rows
            continue
        # A function that reads others by itself gets an error: the plan would not show what it does with them.
        frames[upstream.view] = _unread(spark, rows, number, changed=upstream.kind != "nothing")
    try:
        result = transform(spark, table, frames)
        return all(map(_is_of_other_dates, optimised_leaves(result.where(f"NOT (date <=> DATE'{ANY_DAY}')"))))
    except (KdiError, PySparkException, Py4JError):  # what computes the rows names it
        return False


def _unread(spark: SparkSession, rows: DataFrame, number: int, *, changed: bool) -> DataFrame:
    from pyspark.sql.types import StructField, StructType

    mark = {CHANGED: True} if changed else {}
    fields = [StructField(f.name, f.dataType, f.nullable, mark if f.name == "date" else {}) for f in rows.schema.fields]
    return unread_frame(spark, StructType(fields), number)


def _is_of_other_dates(leaf: PlanLeaf) -> bool:
    """Whether Spark reads no row of the date; true of a table that has not changed."""
    if leaf.name == "InMemoryRelation":  # a function's cache, which does not show what is in it
        return False
    days = [column for column, metadata in leaf.columns if CHANGED in metadata]
    asked = {
        f"NOT ({form.format(day)} {same} {ANY_DAY})"
        for day in days
        for form in ("{}", "try_cast({} as date)", "cast({} as date)")
        for same in ("<=>", "=")
    }
    return not days or not asked.isdisjoint(leaf.conditions)


def different_dates(ours: DataFrame, theirs: DataFrame) -> frozenset[date | None]:
    """The dates on which two results of the same columns do not have the same rows; ``None``: those without a date.

    By the number of rows of each date and the sum of their hashes, so no row leaves its task.
    """
    both = _hashes(ours, 1).unionAll(_hashes(theirs, -1))
    found = both.groupBy("date").agg({"n": "sum", "hash": "sum"}).where("`sum(n)` <> 0 OR `sum(hash)` <> 0")
    return frozenset(row["date"] for row in found.select("date").collect())


def _hashes(rows: DataFrame, sign: int) -> DataFrame:
    from pyspark.sql import functions as F

    content = F.xxhash64(row_as_json(rows, rows.columns)).cast("decimal(28,0)")
    return rows.select("date", F.lit(sign).alias("n"), (content * sign).cast("decimal(28,0)").alias("hash"))
