"""Deduplicate: of rows with the same keys within a window of dates, the first one is kept."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from kdi_assets.delta.files import FILE
from kdi_assets.documents.model.refined_modes import Deduplicate
from kdi_assets.follow.refine.columns import EXACT_JSON, HasOtherColumns, are_only_wider, other_columns
from kdi_assets.follow.refine.envelope import ordering
from kdi_assets.follow.refine.inputs import Inputs, in_dates, with_days_after, with_days_before
from kdi_assets.follow.refine.read import computed_once, with_keys
from kdi_assets.follow.refine.table_change import (
    NEW,
    OLD,
    NoRows,
    RowsOfDates,
    RowsOfKeys,
    TableChange,
    WholeTable,
    differs,
    paired,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def deduplicate_change(inputs: Inputs, mode: Deduplicate) -> TableChange:
    """What a refinement changes: a row can be a duplicate of a row of an earlier date, so later dates change too.

    Raises:
        HasOtherColumns: The rows have other columns than those of the table.
    """
    if inputs.plan.kind == "rebuild":
        return TableChange(first_rows(inputs.all_rows(), mode), WholeTable())
    changed = inputs.plan.dates if inputs.plan.kind == "dates" else inputs.dates
    if changed is None:
        raise AssertionError(f"{inputs.uri}: planned without the dates of what is new")
    dates = inputs.plan.kept.of(with_days_after(changed, mode.window - 1))
    if inputs.few_bytes_added:
        return _change_of_keys(inputs, mode, dates)
    candidates = inputs.rows_of(with_days_before(dates, mode.window - 1))
    return TableChange(first_rows(candidates, mode).where(in_dates(dates)), RowsOfDates(dates))


def _change_of_keys(inputs: Inputs, mode: Deduplicate, dates: frozenset[date]) -> TableChange:
    """What few new rows change, if rows of other dates make no difference: mostly by rows that are added.

    Args:
        dates: Of the new rows.
    """
    from pyspark.sql import functions as F

    new, unknown, unique = inputs.new_rows().where(in_dates(dates)), _has_null_key(mode), _unique(mode)
    named = new.where(f"NOT ({unknown})")
    held = inputs.rows_on(dates)
    _refuse_other_columns(new, held)
    held = with_keys(held, named.select(*mode.keys).distinct(), mode.keys)
    # The table has the first row so far of each key and date.
    forms = paired(held, first_rows(held.drop(FILE).unionByName(named), mode), unique)
    changed = computed_once(forms.where(differs(forms)))
    replaced = changed.where(f"{OLD} IS NOT NULL")
    files = [row[FILE] for row in replaced.select(FILE).distinct().collect()]
    rows = changed.where(f"{NEW} IS NOT NULL").selectExpr(f"{NEW}.*").unionByName(new.where(unknown))
    if not files:
        return TableChange(rows, NoRows())
    # Spark takes the size of an outer join for the product of both sides, and would sort whole files to join them.
    old_keys = F.broadcast(replaced.select(*(f"{OLD}.`{column}`" for column in unique)))
    return TableChange(rows, RowsOfKeys(old_keys, unique, inputs.files_named(files)))


def _refuse_other_columns(rows: DataFrame, held: DataFrame) -> None:
    """Refuse to compare rows of two forms.

    Raises:
        HasOtherColumns: Columns or their order differ.
    """
    held = held.drop(FILE)
    if rows.columns != held.columns or other_columns(rows.schema, held.schema):
        found = ", ".join(other_columns(rows.schema, held.schema)) or "in another order"
        raise HasOtherColumns(found, only_wider=are_only_wider(rows.schema, held.schema))


def _unique(mode: Deduplicate) -> tuple[str, ...]:
    """Columns of which no two rows of the table have the same values, but for rows with a null key."""
    return tuple(dict.fromkeys((*mode.keys, "date")))


def _has_null_key(mode: Deduplicate) -> str:
    return " OR ".join(f"`{key}` IS NULL" for key in mode.keys)


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
    first = f"_kdi_before IS NULL OR datediff(date, _kdi_before) >= {mode.window} OR {_has_null_key(mode)}"
    return marked.where(first).drop("_kdi_order", "_kdi_content", "_kdi_before")
