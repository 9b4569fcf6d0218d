"""Deduplicate: of rows with the same keys within a window of dates, the first one is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdi_assets.documents.model.refined_modes import Deduplicate
from kdi_assets.follow.refine.columns import EXACT_JSON
from kdi_assets.follow.refine.envelope import ordering
from kdi_assets.follow.refine.inputs import Inputs, in_dates, with_days_after, with_days_before
from kdi_assets.follow.refine.table_change import RowsOfDates, TableChange, WholeTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def deduplicate_change(inputs: Inputs, mode: Deduplicate) -> TableChange:
    """What a refinement changes: a row can be a duplicate of a row of an earlier date, so later dates change too."""
    if inputs.plan.kind == "rebuild":
        return TableChange(first_rows(inputs.all_rows(), mode), WholeTable())
    dates = inputs.plan.kept.of(with_days_after(inputs.plan.dates, mode.window - 1))
    candidates = inputs.rows_of(with_days_before(dates, mode.window - 1))
    return TableChange(first_rows(candidates, mode).where(in_dates(dates)), RowsOfDates(dates))


def first_rows(rows: DataFrame, mode: Deduplicate) -> DataFrame:
    """The rows that are not duplicates.

    A row is a duplicate if a row with the same keys comes before it, by date and then by ``order_by``, on its own date
    or on one of the ``window - 1`` dates before; whether that one is a duplicate itself makes no difference. A row with
    a null key is not a duplicate: it is unknown of what. A row whose ``order_by`` is null comes after those with a
    value.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = F.expr(ordering(rows, mode.order_by))
    everything = F.struct(*(F.col(f"`{column}`") for column in rows.columns))
    of_key = Window.partitionBy(*mode.keys)
    # Rows that are equal in all of these are ordered by their content, so that every computation keeps the same one.
    in_order = of_key.orderBy("date", F.col("_kdi_order").asc_nulls_last(), "_kdi_content")
    before = F.lag("date").over(in_order)
    found = rows.select("*", order.alias("_kdi_order"), F.to_json(everything, EXACT_JSON).alias("_kdi_content"))
    marked = found.withColumn("_kdi_before", before)
    # The row directly before is the nearest one: if it is outside of the window, so are all others.
    unknown = " OR ".join(f"`{key}` IS NULL" for key in mode.keys)
    first = f"_kdi_before IS NULL OR datediff(date, _kdi_before) >= {mode.window} OR {unknown}"
    return marked.where(first).drop("_kdi_order", "_kdi_content", "_kdi_before")
