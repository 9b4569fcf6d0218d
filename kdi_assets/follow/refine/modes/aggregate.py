"""Aggregate: groups of rows and their measures; of new rows alone, or of whole groups.

A measure is kept in a form that new rows can be added to: an average as sum and count, a count of distinct values as a
sketch. The measure itself is computed from that form, in the same way whether a group was extended or computed at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from types import MappingProxyType
from typing import TYPE_CHECKING

from kdi_assets.delta.internals import bytes_of
from kdi_assets.documents.model.refined_modes import Aggregate, Function
from kdi_assets.follow.refine.columns import one_value
from kdi_assets.follow.refine.inputs import Inputs, tasks_of
from kdi_assets.follow.refine.read import computed_once, in_one_task, with_keys
from kdi_assets.follow.refine.table_change import (
    NEW,
    OLD,
    RowsOfDates,
    RowsOfFiles,
    RowsOfKeys,
    TableChange,
    WholeTable,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TOUCHED = "_kdi_touched"
_STATE: dict[Function, dict[str, tuple[str, str]]] = {
    "count": {"": ("count({of})", "sum(`{c}`)")},
    "sum": {"": ("sum({of})", "sum(`{c}`)")},
    "min": {"": ("min({of})", "min(`{c}`)")},
    "max": {"": ("max({of})", "max(`{c}`)")},
    "avg": {"_sum": ("sum({of})", "sum(`{c}`)"), "_count": ("count({of})", "sum(`{c}`)")},
    "count_distinct": {"": ("count(DISTINCT {of})", "")},
    "approx_count_distinct": {"_sketch": ("hll_sketch_agg({of})", "hll_union_agg(`{c}`)")},
}
"""By function, then suffix of the column: SQL over rows, and SQL that merges the columns of two parts of a group."""
_OF_STATE: dict[Function, str] = {
    # Not try_divide: a quotient that does not fit its type ends the run, as such a sum does, and is not null.
    "avg": "`{c}_sum` / nullif(`{c}_count`, 0)",
    # A sketch that was never merged estimates by the order in which its values came. The union with itself does not
    # know the order any more, so the estimate depends on the distinct values alone, however they were cut into pieces.
    "approx_count_distinct": "hll_sketch_estimate(hll_union(`{c}_sketch`, `{c}_sketch`))",
}
"""How a measure is computed of its columns, if it is not one of them."""


def aggregate_change(inputs: Inputs, mode: Aggregate) -> TableChange:
    """What a refinement changes in the groups."""
    if inputs.plan.kind == "rebuild":
        return TableChange(groups(inputs.all_rows(), mode), WholeTable())
    if inputs.plan.kind == "dates":
        return TableChange(groups(inputs.rows_of(inputs.plan.dates), mode), RowsOfDates(inputs.plan.dates))
    if inputs.only_added and mode.is_mergeable:
        return _extended_groups(inputs, mode)
    return _groups_again(inputs, mode)


def groups(rows: DataFrame, mode: Aggregate, also: Mapping[str, str] = MappingProxyType({})) -> DataFrame:
    """The groups of some rows: the columns of ``by``, then those of each measure.

    Args:
        also: More columns, name to aggregate in Spark SQL.
    """
    return _with_measures(_state_of_rows(rows, mode, also), mode)


def _state_of_rows(rows: DataFrame, mode: Aggregate, also: Mapping[str, str] = MappingProxyType({})) -> DataFrame:
    from pyspark.sql import functions as F

    columns = [F.expr(of_rows.format(of=of)).alias(name) for name, of, of_rows, _ in _columns(mode)]
    columns += [F.expr(sql).alias(name) for name, sql in also.items()]
    return rows.groupBy(*mode.by).agg(*columns)


def _with_measures(state: DataFrame, mode: Aggregate) -> DataFrame:
    measured = [
        f"{_OF_STATE[m.function].format(c=name)} AS `{name}`"
        for name, m in mode.measures.items()
        if m.function in _OF_STATE
    ]
    return state.selectExpr("*", *measured)


def _columns(mode: Aggregate) -> list[tuple[str, str, str, str]]:
    """Of each column that is kept: name, measured expression, how it is computed of rows, how of parts."""
    return [
        (f"{name}{suffix}", one_value(measure.of), *how)
        for name, measure in mode.measures.items()
        for suffix, how in _STATE[measure.function].items()
    ]


def _extended_groups(inputs: Inputs, mode: Aggregate) -> TableChange:
    """Add new rows to their groups; no upstream row is read again.

    All groups of the files are grouped again, without a join: they must be written again anyway.
    """
    from pyspark.sql import functions as F

    added = _state_of_rows(inputs.new_rows(), mode)
    added = added if inputs.small_enough else computed_once(added)
    files = inputs.files_with(added.select(*mode.by), _dates(inputs, mode))
    held, names = inputs.rows_in(files), [name for name, *_ in _columns(mode)]
    types = dict(held.dtypes)
    columns = [
        # The sum of a sum has a wider type: the column keeps the type that it has in the table.
        F.expr(f"CAST({of_parts.format(c=name)} AS {types[name]})").alias(name)
        for name, _, _, of_parts in _columns(mode)
    ]
    parts = held.select(*mode.by, *names, F.struct("*").alias(OLD)).unionByName(
        added.select(*mode.by, *names), allowMissingColumns=True
    )
    if inputs.small_enough:  # a shuffle would give one task all of them
        tasks = tasks_of(map(bytes_of, files))
        parts = in_one_task(parts) if tasks == 1 else parts.repartition(tasks, *mode.by)
    old, touched = F.first(OLD, ignorenulls=True).alias(OLD), F.expr(f"count_if({OLD} IS NULL) > 0").alias(_TOUCHED)
    whole = _with_measures(parts.groupBy(*mode.by).agg(*columns, old, touched), mode)
    form = F.when(F.col(_TOUCHED), F.struct(*held.columns)).otherwise(F.col(OLD)).alias(NEW)
    return TableChange(whole.where(_TOUCHED).select(*held.columns), RowsOfFiles(whole.select(OLD, form), files))


def _groups_again(inputs: Inputs, mode: Aggregate) -> TableChange:
    """Compute the touched groups of all their upstream rows."""
    touched = computed_once(inputs.touched_rows().select(*mode.by).distinct())
    dates = _dates(inputs, mode)
    rows = inputs.rows_of(dates) if dates is not None else inputs.all_rows()
    files = inputs.files_with(touched, dates)
    return TableChange(groups(with_keys(rows, touched, mode.by), mode), RowsOfKeys(touched, mode.by, files))


def _dates(inputs: Inputs, mode: Aggregate) -> frozenset[date] | None:
    """The dates of the touched groups; ``None``: any."""
    return inputs.dates if "date" in mode.by and inputs.table.by_date else None
